// The first screen: the verdict of the machine, and each array in words.
import { html, useState } from './vendor/htm-preact.js';
import { bytes, count, duration, moment, short } from './text.js';
import { Order } from './orders.js';

const SHAPES = {
  good: ['M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20z', 'M7 12.5l3.5 3.5L17 9'],
  attention: ['M12 2 22 12 12 22 2 12z', 'M12 7.5v5M12 15.5v1'],
  degraded: ['M12 2 23 21H1z', 'M12 9v5.5M12 17v1'],
  unusable: ['M7.5 1.5h9l6 6v9l-6 6h-9l-6-6v-9z', 'M8 8l8 8M16 8l-8 8'],
  unknown: ['M3 3h18v18H3z', 'M9 9.5a3 3 0 1 1 4.5 2.5Q12 13 12 14.5M12 17v1'],
};

export const Mark = ({ standing }) => {
  const [outline, sign] = SHAPES[standing] || SHAPES.unknown;
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path class="fill" d=${outline} /><path class="sign" d=${sign} /></svg>`;
};

const alertsText = ({ is_known: known, configured, watched, last_delivered: last, owed }) => {
  if (!known) return ['unknown', 'Alerts: whether any are configured is not known here.'];
  if (!configured) return ['attention', 'Alerts: none configured. A failure is told on this page only.'];
  const arrived = last ? `last arrived ${moment(last)}` : 'none has arrived yet';
  if (!watched) return ['degraded', `Alerts: configured, but nothing watches; ${arrived}.`];
  if (owed) return ['degraded', `Alerts: ${count(owed, 'notification is', 'notifications are')} not delivered yet; ${arrived}.`];
  return ['good', `Alerts: configured; ${arrived}.`];
};

// Text with `commands` in it.
export const Words = ({ text }) => text.split('`').map((part, ix) => (ix % 2 ? html`<code>${part}</code>` : part));

export const Verdict = ({ view, live, now }) => {
  const { verdict } = view;
  const [standing, alerts] = alertsText(view.alerts);
  const at = moment(new Date(live.at).toISOString());
  return html`<header class=${`verdict ${live.on ? verdict.standing : 'unknown'}`}>
    <${Mark} standing=${live.on ? verdict.standing : 'unknown'} />
    <div>
      <div role="status" aria-live="polite" aria-atomic="true">
        <h1>${verdict.headline}</h1>
        <p class="detail"><${Words} text=${verdict.detail} /></p>
      </div>
      ${!live.on && html`<p class="stale" role="alert">Not live: the connection is lost. This is how it was at ${at}, ${duration((now - live.at) / 1000)} ago.</p>`}
      <p class=${`alerts ${standing}`}><${Words} text=${alerts} /></p>
    </div>
  </header>`;
};

export const Command = ({ text }) => {
  const [copied, setCopied] = useState(false);
  // What stands behind a command in brackets is a remark.
  const [command] = text.split('   (');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch { /* The browser does not let it: the text can be selected. */ }
  };
  return html`<span class="command"><code>${text}</code>
    <button class="quiet" onClick=${copy} aria-label=${`Copy the command ${command}`}>${copied ? 'copied' : 'copy'}</button></span>`;
};

const SLOT_WORDS = { U: 'in sync', _: 'not in sync' };

const Slots = ({ slots }) => html`<span class="slots" role="img" aria-label=${`Slots ${slots}`}>[${[...slots.slice(1, -1)].map(
  (letter, ix) => html`<b class=${letter === 'U' ? 'up' : 'down'} title=${`slot ${ix}: ${SLOT_WORDS[letter] || letter}`}>${letter}</b>`,
)}]</span>`;

export const Job = ({ job, paused }) => {
  if (!job) return paused && html`<p class="job"><b>Background work is held</b> until it is resumed.</p>`;
  const part = job.total_bytes ? job.done_bytes / job.total_bytes : 0;
  const percent = (part * 100).toFixed(1);
  const speed = `${bytes(job.speed_bytes_per_sec)}/s`;
  const left = job.remaining_secs == null ? 'time left not known' : `${duration(job.remaining_secs)} left`;
  const action = { recovery: 'rebuild', resync: 'resync' }[job.action] || job.action;
  return html`<div class="job">
    <p><b>${action} ${percent} %</b>${job.paused ? ', paused' : `, ${left} at ${speed}`}${job.members.length > 0 && `, onto ${job.members.map(short).join(', ')}`}</p>
    <progress max="1000" value=${Math.round(part * 1000)} aria-label=${`${action} of the array`}>${percent} %</progress>
    ${job.limited_by && !job.paused && html`<p class="limit">limited by ${job.limited_by.text}</p>`}
  </div>`;
};

const Since = ({ since, now }) => {
  const ago = duration((now - Date.parse(since.time)) / 1000);
  return html`${moment(since.time)}${since.or_earlier ? ' or earlier' : ''} <span class="dim">(${ago})</span>`;
};

export const ArrayCard = ({ array, orders, now, chosen, choose }) => {
  const { verdict } = array;
  const scrubs = !!array.job && ['check', 'repair'].includes(array.job.action);
  const held = array.paused || (!!array.job && array.job.paused);
  const what = [array.level, array.layout, array.chunk_bytes && `chunk ${bytes(array.chunk_bytes)}`, bytes(array.size_bytes)];
  return html`<article class=${`array ${verdict.standing}`} aria-labelledby=${`name-${array.key}`}>
    <div class="title">
      <h2 id=${`name-${array.key}`}>${array.name}</h2>
      <${Slots} slots=${array.slots} />
      <span class="state"><${Mark} standing=${verdict.standing} />${verdict.word}</span>
      <span class="dim what">${what.filter(Boolean).join(', ')}${array.read_only && ', read-only'}</span>
    </div>
    <p class="meaning">${verdict.meaning}</p>
    ${verdict.remarks.map((remark) => html`<p class="remark">${remark}</p>`)}
    <${Job} job=${array.job} paused=${array.paused} />
    <dl class="facts">
      <dt>redundancy</dt><dd>${verdict.redundancy}</dd>
      ${array.since && html`<dt>${verdict.word}</dt><dd>since <${Since} since=${array.since} now=${now} /></dd>`}
      ${array.next && html`<dt>next</dt><dd><${Command} text=${array.next} /></dd>`}
      ${!array.next && verdict.standing === 'degraded' && array.job && !array.job.paused && html`<dt>next</dt><dd>nothing to do: it ends by itself</dd>`}
    </dl>
    ${(orders || choose) && html`<p class="buttons">
      ${choose && html`<button aria-pressed=${chosen} onClick=${choose}>Show its details</button>`}
      ${orders && [['check', 'Check', scrubs], ['abort', scrubs && `End the ${array.job.action}`, !scrubs], ['pause', 'Pause', !array.job || held], ['resume', 'Resume', !held]].map(
        ([order, label, off]) => html`<${Order} key=${order} array=${array} order=${{ order }} label=${label} off=${off} />`,
      )}
    </p>`}
  </article>`;
};
