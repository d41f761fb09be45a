// What lies on what: drives, arrays, groups, volumes, exports; bars are to scale.
import { html } from './vendor/htm-preact.js';
import { bytes, short } from './text.js';

// Parts of `all` bytes, one after the other.
const Bar = ({ parts, all, label }) => {
  let at = 0;
  return html`<svg class="bar" role="img" aria-label=${label} preserveAspectRatio="none">${parts.map(([size, kind]) => {
    const x = at;
    at += size;
    return html`<rect class=${kind} x=${`${(100 * x) / all}%`} width=${`${Math.max((100 * size) / all, 0.2)}%`} height="100%" />`;
  })}</svg>`;
};

const Line = ({ kind, name, size, note, parts, all, children }) => html`<li>
  <div class="line"><span class="kind">${kind}</span><b title=${name}>${short(name)}</b><span class="dim">${note}</span><span class="number">${bytes(size)}</span></div>
  ${parts && html`<${Bar} parts=${parts} all=${all} label=${`${kind} ${short(name)}: ${bytes(size)}, to scale`} />`}
  ${children && html`<ul>${children}</ul>`}
</li>`;

const Export = ({ uri }) => html`<li><div class="line"><span class="kind">export</span><code>${uri}</code></div></li>`;

const Volumes = ({ volumes, all }) => volumes.map((volume) => html`<${Line} key=${volume.name} kind="volume" name=${volume.name}
  size=${volume.size_bytes} note=${volume.read_only ? 'read-only' : ''} parts=${[[volume.size_bytes, 'data']]} all=${all}>
  ${volume.exports.map((uri) => html`<${Export} uri=${uri} />`)}<//>`);

const Group = ({ group, volumes, all }) => {
  const own = volumes.filter((volume) => volume.name.startsWith(`${group.name}/`));
  const used = own.reduce((sum, volume) => sum + volume.size_bytes, 0);
  // An older server does not tell.
  const known = group.size_bytes > 0;
  const parts = known ? [[group.size_bytes - group.free_bytes, 'data'], [group.free_bytes, 'free']] : [[used, 'data']];
  const room = known ? `${bytes(group.free_bytes)} free of` : 'served; its free room is not known';
  return html`<${Line} kind="group" name=${group.name} size=${known ? group.size_bytes : used} note=${room} parts=${parts} all=${all}>
    <${Volumes} volumes=${own} all=${all} /><//>`;
};

const raw = (array) => (array.member_bytes || 0) * array.members.filter((member) => !member.replacement).length;

const Array_ = ({ array, groups, volumes, all }) => {
  const members = array.members.filter((member) => !member.replacement);
  const redundant = Math.max(0, raw(array) - array.size_bytes);
  return html`<${Line} kind="array" name=${array.name} size=${array.size_bytes}
    note=${`${array.level}${redundant ? `, and ${bytes(redundant)} of redundancy` : ''}`}
    parts=${[[array.size_bytes, 'data'], [redundant, 'redundant']]} all=${all}>
    ${groups.filter((group) => group.arrays.includes(array.uuid)).map((group) => html`<${Group} key=${group.uuid} group=${group} volumes=${volumes} all=${all} />`)}
    ${array.exports.map((uri) => html`<${Export} uri=${uri} />`)}
    ${array.member_bytes && html`<li><details open=${members.length <= 12}><summary>${members.length} drives of ${bytes(array.member_bytes)} used of each</summary><ul>${members.map(
      (member) => html`<${Line} key=${member.slot} kind=${`slot ${member.slot}`} name=${member.member || 'empty'} size=${array.member_bytes}
        parts=${[[array.member_bytes, member.state === 'in_sync' ? 'drive' : 'gone']]} all=${all} />`,
    )}</ul></details></li>`}<//>`;
};

export const Stack = ({ view }) => {
  const all = Math.max(1, ...view.arrays.map((array) => Math.max(raw(array), array.size_bytes)), ...view.volumes.map((volume) => volume.size_bytes));
  const on = (volume) => view.groups.some((group) => volume.name.startsWith(`${group.name}/`) && group.arrays.length > 0);
  return html`<section id="stack" aria-labelledby="stack-head">
    <h3 id="stack-head">What lies on what, to scale</h3>
    <p class="dim key"><svg class="bar swatch"><rect class="data" width="100%" height="100%" /></svg> data
      <svg class="bar swatch"><rect class="redundant" width="100%" height="100%" /></svg> redundancy
      <svg class="bar swatch"><rect class="drive" width="100%" height="100%" /></svg> drive in sync
      <svg class="bar swatch"><rect class="gone" width="100%" height="100%" /></svg> not in sync</p>
    <ul class="tree">
      ${view.arrays.map((array) => html`<${Array_} key=${array.key} array=${array} groups=${view.groups} volumes=${view.volumes} all=${all} />`)}
      <${Volumes} volumes=${view.volumes.filter((volume) => !on(volume))} all=${all} />
    </ul>
  </section>`;
};
