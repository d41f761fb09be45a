// Numbers, times and states in words.

export const bytes = (n) => {
  if (n == null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (n >= 1024 && unit < 5) { n /= 1024; unit += 1; }
  return `${n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ${units[unit]}`;
};

export const rate = (n) => (n ? `${bytes(n)}/s` : '0');

export const micros = (us) => {
  if (!us) return '–';
  if (us < 1000) return `${us} µs`;
  return us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
};

export const duration = (secs) => {
  secs = Math.max(0, Math.round(secs));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(secs / unit));
  if (secs < 120) return `${secs} s`;
  if (secs < 7200) return `${minutes} min`;
  if (secs < 172800) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
};

// A moment as the machine's clock had it, short where it was today.
export const moment = (time) => {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return time;
  const [day, today] = [date, new Date()].map((d) => d.toDateString());
  const clock = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  return day === today ? clock : `${date.toLocaleDateString([], { year: 'numeric', month: 'short', day: 'numeric' })} ${clock}`;
};

export const short = (name) => (!name || name.includes('://') ? name : name.slice(name.lastIndexOf('/') + 1));

export const count = (n, one, several) => `${n.toLocaleString('en')} ${n === 1 ? one : several}`;

export const stateWord = (member) => {
  if (member.replacement) return 'replacement';
  return { in_sync: 'in sync', rebuilding: 'rebuilding', missing: 'missing', faulty: 'failed' }[member.state] || member.state;
};
