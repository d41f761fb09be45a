// What an array does: throughput and latency, live and for an hour.
import { html, useEffect, useState } from './vendor/htm-preact.js';
import { bytes, micros, moment, rate } from './text.js';

const RECENT_MAX = 240;
const KINDS = {
  throughput: { label: 'Throughput', series: [['read', 'read_bytes'], ['written', 'write_bytes']], show: rate, base: 1024, least: 1048576 },
  latency: { label: 'Latency', series: [['read p99', 'read_p99_us'], ['write p99', 'write_p99_us']], show: micros, base: 1000, least: 1000 },
};

// The next round number: 1, 2 or 5 times a power of ten, of units of the kind.
const round = (max, base) => {
  if (!(max > 0)) return 1;
  const unit = base ** Math.max(0, Math.floor(Math.log(max) / Math.log(base)));
  const step = 10 ** Math.floor(Math.log10(max / unit));
  return [1, 2, 5, 10].find((times) => times * step * unit >= max) * step * unit;
};

// A line that is broken where nothing was looked at.
const path = (points, field, x, y, gap) => points.map((point, ix) => {
  const move = ix === 0 || point.at_ms - points[ix - 1].at_ms > gap;
  return `${move ? 'M' : 'L'}${x(point.at_ms).toFixed(1)} ${y(point[field]).toFixed(1)}`;
}).join('');

const Chart = ({ kind, points, span }) => {
  const { label, series, show, base, least } = KINDS[kind];
  const [hover, setHover] = useState(null);
  const end = points.length ? points.at(-1).at_ms : Date.now();
  const begin = end - span * 1000;
  const shown = points.filter((point) => point.at_ms >= begin);
  const top = round(Math.max(least, ...shown.flatMap((point) => series.map(([, field]) => point[field]))), base);
  const x = (at) => (1000 * (at - begin)) / (span * 1000);
  const y = (value) => 100 - (96 * value) / top;
  const at = hover == null ? shown.at(-1) : shown.reduce((best, point) => (Math.abs(x(point.at_ms) - hover) < Math.abs(x(best.at_ms) - hover) ? point : best), shown[0]);
  const move = (event) => { const box = event.currentTarget.getBoundingClientRect(); setHover((1000 * (event.clientX - box.left)) / box.width); };
  return html`<figure>
    <figcaption><b>${label}</b>${series.map(([name, field], ix) => html`<span class=${`series s${ix}`}><svg class="dash" aria-hidden="true"><line x1="0" x2="100%" y1="50%" y2="50%" /></svg>${name} <b class="number">${at ? show(at[field]) : '–'}</b></span>`)}
      ${hover != null && at && html`<span class="dim">at ${moment(at.at_ms)}</span>`}</figcaption>
    <div class="plot">
      <span class="tick top">${show(top)}</span><span class="tick middle">${show(top / 2)}</span><span class="tick from">${moment(begin)}</span><span class="tick to">${moment(end)}</span>
      <svg viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true" onPointerMove=${move} onPointerLeave=${() => setHover(null)}>
        <path class="grid" d="M0 4H1000M0 52H1000M0 100H1000" />
        ${series.map(([, field], ix) => html`<path class=${`curve s${ix}`} d=${path(shown, field, x, y, span * 40)} />`)}
        ${hover != null && at && html`<path class="grid" d=${`M${x(at.at_ms)} 0V100`} />`}
      </svg>
    </div>
  </figure>`;
};

export const Activity = ({ array, heard }) => {
  const [history, setHistory] = useState({ recent: [], hour: [] });
  const [hour, setHour] = useState(false);
  useEffect(() => {
    let gone = false;
    const load = async () => {
      const reply = await fetch('/api/v1/history');
      const all = reply.ok ? (await reply.json()).arrays[array.key] : null;
      if (!gone) setHistory(all || { recent: [], hour: [] });
    };
    load().catch(() => {});
    const again = setInterval(() => load().catch(() => {}), 60000);
    return () => { gone = true; clearInterval(again); };
  }, [array.key]);
  useEffect(() => {
    const rates = heard && heard.arrays[array.key];
    if (rates) setHistory((was) => ({ ...was, recent: [...was.recent, { at_ms: heard.at_ms, ...rates }].slice(-RECENT_MAX) }));
  }, [heard]);
  const points = hour ? history.hour : history.recent;
  return html`<section id="activity" aria-labelledby="activity-head">
    <h3 id="activity-head">What clients have of ${array.name}</h3>
    <p class="buttons"><button aria-pressed=${!hour} onClick=${() => setHour(false)}>Live</button><button aria-pressed=${hour} onClick=${() => setHour(true)}>The last hour</button></p>
    ${Object.keys(KINDS).map((kind) => html`<${Chart} key=${kind} kind=${kind} points=${points} span=${hour ? 3600 : 120} />`)}
  </section>`;
};
