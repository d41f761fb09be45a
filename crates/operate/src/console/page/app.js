// The page: one value from the server, shown.
import { html, render, useEffect, useState } from './vendor/htm-preact.js';
import { follow } from './feed.js';
import { ArrayCard, Verdict } from './arrays.js';
import { Members } from './members.js';
import { Stack } from './stack.js';
import { Activity } from './charts.js';
import { Audit, Decisions, Scrubs } from './log.js';

const PARTS = [['members', 'Members'], ['activity', 'Activity'], ['log', 'Log'], ['scrubs', 'Checks'], ['stack', 'Stack'], ['audit', 'Audit']];

const Troubles = ({ view }) => html`${view.problems.map((problem) => html`<p class="remark">${problem.what}: ${problem.why}. ${problem.next}</p>`)}
  ${view.died.map((socket) => html`<p class="remark">${socket}: its server ended without being stopped. Serve its members again, which recovers.</p>`)}`;

const Page = () => {
  const [view, setView] = useState(null);
  const [heard, setHeard] = useState(null);
  const [live, setLive] = useState({ on: true, at: Date.now() });
  const [now, setNow] = useState(Date.now());
  const [chosen, choose] = useState(null);
  useEffect(() => {
    follow({
      onView: setView,
      onPoints: setHeard,
      onLive: (on) => setLive((was) => ({ on, at: on || !was.on ? (on ? Date.now() : was.at) : Date.now() })),
    });
    const tick = setInterval(() => setNow(Date.now()), 5000);
    return () => clearInterval(tick);
  }, []);
  useEffect(() => { if (view) document.title = `${view.verdict.headline} – wattle`; }, [view && view.verdict.headline]);
  if (!view) return null;
  const array = view.arrays.find((one) => one.key === chosen) || view.arrays[0];
  const orders = view.takes_orders;
  const several = view.arrays.length > 1;
  const parts = array ? PARTS : PARTS.filter(([id]) => id === 'stack' || id === 'audit');
  return html`<a class="skip" href="#details">Skip to the details</a>
    <${Verdict} view=${view} live=${live} now=${now} />
    <main>
      <${Troubles} view=${view} />
      <div class="arrays">${view.arrays.map((one) => html`<${ArrayCard} key=${one.key} array=${one} orders=${orders} now=${now}
        chosen=${one === array} choose=${several && (() => choose(one.key))} />`)}</div>
      <nav aria-label="Details">${parts.map(([id, name]) => html`<a href=${`#${id}`}>${name}</a>`)}</nav>
      <div id="details" tabindex="-1">
        ${array && html`<${Members} array=${array} orders=${orders} />`}
        <div class="columns">
          ${array && html`<div><${Activity} key=${array.key} array=${array} heard=${heard} /><${Decisions} array=${array} /></div>`}
          <div>${array && html`<${Scrubs} array=${array} />`}<${Stack} view=${view} /><${Audit} /></div>
        </div>
      </div>
    </main>
    <footer><p>wattle ${view.version}. ${orders ? 'Orders need the token, show their command and ask.' : 'Read-only: this page was started without a token.'}
      The same as JSON: <a href="/api/v1/status">status</a>, <a href="/api/v1/why">why</a>, <a href="/api/v1/scrubs">scrubs</a>, <a href="/api/v1/history">history</a>.</p></footer>`;
};

const place = document.getElementById('page');
place.replaceChildren();
render(html`<${Page} />`, place);
