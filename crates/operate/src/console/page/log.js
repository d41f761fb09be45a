// What was decided, what happened, what checks found, and what an audit finds.
import { html, useState } from './vendor/htm-preact.js';
import { bytes, count, duration, moment, short } from './text.js';
import { Command, Words } from './arrays.js';

export const Decisions = ({ array }) => html`<section id="log" aria-labelledby="log-head">
  <h3 id="log-head">Why ${array.name} is as it is</h3>
  <ul class="log">${array.decisions.map((one) => html`<li>
    <p>${one.member && html`<b title=${one.member}>${short(one.member)}</b>: `}${one.what}</p>
    ${one.why && html`<p class="dim">${one.why}</p>`}
    ${one.next && html`<p><${Command} text=${one.next} /></p>`}</li>`)}
    ${array.notes.map((note) => html`<li><p>${note}</p></li>`)}
  </ul>
  <h4>What happened</h4>
  ${array.events.length ? html`<ul class="log">${array.events.slice(0, 30).map((event) => html`<li><time datetime=${event.time}>${moment(event.time)}</time> ${event.what}</li>`)}</ul>` : html`<p class="dim">Nothing since its server started.</p>`}
  ${array.tuning.length > 0 && html`<h4>What it decided about its speed</h4><ul class="log">${array.tuning.slice().reverse().map(
    (one) => html`<li>${one.time && html`<time datetime=${one.time}>${moment(one.time)}</time>`} ${one.what} <span class="dim">${one.why}</span></li>`,
  )}</ul>`}
</section>`;

const found = (scrub) => {
  const parts = [scrub.mismatch_sectors ? `${count(scrub.mismatch_sectors, 'sector does', 'sectors do')} not agree` : 'no mismatch'];
  if (scrub.repaired_sectors) parts.push(`${scrub.repaired_sectors} repaired`);
  if (scrub.rewritten_blocks) parts.push(`${count(scrub.rewritten_blocks, 'block', 'blocks')} rewritten`);
  if (scrub.unreadable_sectors) parts.push(`${scrub.unreadable_sectors} could not be compared`);
  if (scrub.late_sectors) parts.push(`${scrub.late_sectors} not read in time`);
  return scrub.error || parts.join(', ');
};

const Place = ({ place }) => html`<li>array bytes ${place.array_start_byte.toLocaleString('en')} and ${bytes(place.array_len_bytes)} on${place.member ? html`: <b>${short(place.member)}</b> (slot ${place.slot}) is the odd one out` : ''}</li>`;

const FILES_SHOWN = 20;

const Files = ({ found }) => html`<div class="files">
  ${found.files.length > 0 && html`<p>Files there:</p><ul>${found.files.slice(0, FILES_SHOWN).map((file) => html`<li><b>${file.path}</b>${file.volume && ` on ${file.volume}`}${file.bytes && `, ${bytes(file.bytes.len_bytes)} at byte ${file.bytes.start_byte.toLocaleString('en')}`}</li>`)}
    ${found.more + found.files.length > FILES_SHOWN && html`<li>and ${count(found.more + Math.max(0, found.files.length - FILES_SHOWN), 'more', 'more')}</li>`}</ul>`}
  ${found.notes.map((note) => html`<p class="dim">${note}</p>`)}</div>`;

export const Scrubs = ({ array }) => html`<section id="scrubs" aria-labelledby="scrubs-head">
  <h3 id="scrubs-head">Checks and repairs of ${array.name}</h3>
  ${array.scrubs.length ? html`<ul class="log">${array.scrubs.map((scrub) => html`<li key=${scrub.run}>
    <time datetime=${scrub.started}>${moment(scrub.started)}</time> <b>${scrub.action}</b>${scrub.source && ` from ${scrub.source}`}: ${scrub.outcome}${scrub.duration_secs != null && ` after ${duration(scrub.duration_secs)}`}; ${found(scrub)}
    ${scrub.mismatches.length > 0 && html`<details><summary>${scrub.truncated ? 'the first places' : count(scrub.mismatches.length, 'place', 'places')}</summary><ul>${scrub.mismatches.slice(0, 64).map((place) => html`<${Place} place=${place} />`)}</ul></details>`}
    ${array.scrub_files && array.scrub_files.run === scrub.run && html`<${Files} found=${array.scrub_files} />`}
  </li>`)}</ul>${array.naming && html`<p class="dim">Looking for the files that lie where the last one found something…</p>`}` : html`<p>None yet: whether parity or copies agree is not known. <${Command} text=${`wattle check ${array.name}`} /></p>`}
</section>`;

const Finding = ({ finding }) => html`<li class=${`finding ${finding.severity}`}>
  <p><span class="severity">${finding.severity}</span> <b>${finding.subject ? `${finding.subject}: ` : ''}${finding.title}</b> <span class="dim">${finding.code}</span></p>
  ${finding.evidence && html`<p>${finding.evidence}</p>`}
  ${finding.cost && html`<p class="dim">${finding.cost}</p>`}
  ${finding.fix && html`<p>Fix: <${Words} text=${finding.fix} /></p>`}
</li>`;

export const Audit = () => {
  const [state, setState] = useState({});
  const run = async () => {
    setState({ running: true });
    try {
      let reply = await fetch('/api/v1/audit?run=1');
      while (reply.status === 202) {
        await new Promise((resolve) => setTimeout(resolve, 500));
        reply = await fetch('/api/v1/audit');
      }
      const body = await reply.json();
      setState(reply.ok ? { report: body } : { problem: body.what || 'it could not look' });
    } catch { setState({ problem: 'the connection is lost' }); }
  };
  const { running, report, problem } = state;
  return html`<section id="audit" aria-labelledby="audit-head">
    <h3 id="audit-head">Audit of this machine</h3>
    <p class="buttons"><button onClick=${run} disabled=${running}>${running ? 'Looking…' : 'Run wattle audit'}</button> <span class="dim">reads every drive's metadata; writes nothing</span></p>
    <div aria-live="polite">
      ${problem && html`<p class="remark">${problem}</p>`}
      ${report && !report.findings.length && html`<p>Nothing was found.</p>`}
      ${report && html`<ul class="log">${report.findings.map((finding) => html`<${Finding} finding=${finding} />`)}</ul>`}
    </div>
  </section>`;
};
