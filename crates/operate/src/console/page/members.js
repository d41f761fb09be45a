// The members of an array, with what is known of their drives.
import { html } from './vendor/htm-preact.js';
import { bytes, count, micros, rate, short, stateWord } from './text.js';
import { Order } from './orders.js';

// `label` is shown instead of the table's head where the screen is narrow.
const Cell = ({ label, children, kind }) => html`<td data-label=${label} class=${kind || ''}>${children}</td>`;

const State = ({ member }) => {
  const notes = [
    member.filled != null && `${(member.filled / 10).toFixed(1)} %`,
    member.slow && `slow: ${count(member.reads_overdue, 'read', 'reads')} went around it`,
    member.silent_seconds > 0 && `no answer for ${member.silent_seconds} s`,
    member.write_mostly && 'write-mostly',
    member.remote && member.remote.state !== 'connected' && member.remote.state,
  ].filter(Boolean);
  return html`<span class=${`seat ${member.state}${member.slow || member.silent_seconds > 0 ? ' slow' : ''}`}>${stateWord(member)}</span>${notes.length > 0 && ` ${notes.join(', ')}`}`;
};

const Bad = ({ member }) => {
  if (!member.bad_bytes) return '0';
  const places = member.bad_blocks.map((range) => `${range.start_byte}..${range.start_byte + range.len_bytes}`).join(', ');
  return html`<details><summary>${bytes(member.bad_bytes)}</summary>bytes of its data: ${places}${member.bad_blocks.length > 7 && ', …'}</details>`;
};

const Row = ({ array, member, orders }) => {
  const drive = member.drive || {};
  const unknown = html`<span class="dim">not known</span>`;
  const at = { slot: member.slot };
  const here = member.member && !member.replacement;
  return html`<tr class=${member.state}>
    <th scope="row"><span class="slot">${member.slot}</span> <span class="name" title=${member.member}>${short(member.member) || 'empty'}</span></th>
    <${Cell} label="state"><${State} member=${member} /><//>
    <${Cell} label="drive">${drive.model || drive.serial ? html`${drive.model} <span class="dim">${drive.serial}</span>` : unknown}<//>
    <${Cell} label="SMART" kind=${drive.is_failing ? 'bad' : ''}>${drive.smart || unknown}<//>
    <${Cell} label="temperature" kind="number">${drive.celsius != null ? `${drive.celsius} °C` : '–'}<//>
    <${Cell} label="read errors" kind=${member.read_errors ? 'number bad' : 'number'}>${member.read_errors}<//>
    <${Cell} label="bad blocks" kind=${member.bad_bytes ? 'number bad' : 'number'}><${Bad} member=${member} /><//>
    <${Cell} label="p99 read, write" kind="number">${micros(member.read_p99_us)}, ${micros(member.write_p99_us)}<//>
    <${Cell} label="reads, writes now" kind="number">${rate(member.rates.read_bytes)}, ${rate(member.rates.write_bytes)}<//>
    ${orders && html`<${Cell} label="orders" kind="buttons">
      ${here && html`<${Order} off=${member.state !== 'in_sync'} array=${array} order=${{ order: 'fail', ...at }} label="Fail" of=${short(member.member)} />
        <${Order} off=${member.state !== 'in_sync'} array=${array} order=${{ order: 'replace', ...at }} label="Replace" of=${short(member.member)} />`}
      ${here && member.member.startsWith('/dev/') && html`<${Order} array=${array} order=${{ order: 'locate', on: true, ...at }} label="Locate" of=${short(member.member)} />`}
    <//>`}
  </tr>`;
};

export const Members = ({ array, orders }) => html`<section id="members" aria-labelledby="members-head">
  <h3 id="members-head">Members of ${array.name}</h3>
  <div class="wide" tabindex="0" role="region" aria-labelledby="members-head"><table class="members">
    <thead><tr><th scope="col">slot, member</th><th scope="col">state</th><th scope="col">model, serial</th><th scope="col">SMART</th>
      <th scope="col" class="number">temp.</th><th scope="col" class="number">errors</th><th scope="col" class="number">bad blocks</th>
      <th scope="col" class="number">p99 read, write</th><th scope="col" class="number">now read, write</th>${orders && html`<th scope="col">orders</th>`}</tr></thead>
    <tbody>${array.members.map((member) => html`<${Row} key=${`${member.slot}${member.replacement}`} array=${array} member=${member} orders=${orders} />`)}</tbody>
  </table></div>
  ${array.spares.length > 0 && html`<p>Without a slot: ${array.spares.map((spare) => `${short(spare.member)} (${spare.state})`).join(', ')}.</p>`}
</section>`;
