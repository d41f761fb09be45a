// Orders: each shows the command that it runs, and asks. The token stays in memory only.
import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';

let token = '';

const post = async (order) => {
  const reply = await fetch('/api/v1/orders', {
    method: 'POST', body: JSON.stringify(order), headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
  });
  const text = await reply.text();
  let body = {};
  try { body = JSON.parse(text); } catch { body = { what: text }; }
  if (reply.ok) return body;
  if (reply.status === 401) token = '';
  throw new Error([body.what, body.why, body.next].filter(Boolean).join('. '));
};

// `off`: it cannot be given now. What is said of it stays until it is closed.
export const Order = ({ array, order, label, of, off }) => {
  const [shown, setShown] = useState(null);
  const [dialog, field, leave] = [useRef(null), useRef(null), useRef(null)];
  const asked = { ...order, array: array.key };
  const ask = async (what) => {
    try {
      setShown({ busy: true });
      setShown({ what, planned: await post(what) });
    } catch (error) { setShown(token ? { problem: error.message } : { wants: true, problem: error.message }); }
  };
  const open = () => {
    setShown(token ? { busy: true } : { wants: true });
    dialog.current.showModal();
    if (token) ask(asked);
  };
  const give = (event) => { event.preventDefault(); token = field.current.value.trim(); ask(asked); };
  const run = async () => {
    try {
      const { what, planned } = shown;
      setShown({ busy: true });
      setShown({ what, done: await post({ ...what, confirm: planned.command }) });
    } catch (error) { setShown({ problem: error.message }); }
  };
  const close = () => dialog.current.close();
  const { what, busy, wants, planned, done, problem } = shown || {};
  // The focus goes where the next step is; never to what changes something.
  useEffect(() => { if (shown) (wants ? field : leave).current.focus(); }, [shown]);
  if (off && !shown) return null;
  const whose = of ? `${label} ${of}` : `${label} ${array.name}`;
  return html`<button onClick=${open} aria-label=${whose} aria-haspopup="dialog">${label}</button>
    <dialog ref=${dialog} aria-label=${whose} onClose=${() => setShown(null)}>
      <h4>${whose}</h4>
      ${problem && html`<p class="remark" role="alert">${problem}</p>`}
      ${busy && html`<p>…</p>`}
      ${wants && html`<form onSubmit=${give}><label>Token <input type="password" ref=${field} autocomplete="off" required /></label> <button>Go on</button></form>`}
      ${planned && html`<p>${planned.effect}</p><p>This runs: <code>${planned.command}</code></p>`}
      ${done && html`<p role="status">Done: ${done.message}</p>`}
      <p class="buttons"><button ref=${leave} onClick=${close}>${done || problem ? 'Close' : 'Cancel'}</button>${done && what.on && html`<button onClick=${() => ask({ ...what, on: false })}>Put it out</button>`}${planned && html`<button class="run" onClick=${run}>Run it</button>`}</p>
    </dialog>`;
};
