// What the server tells: a value, then changes to it, then what arrays did.
// A change is {v: value}, {o: {key: change}} of an object, or {a: {index: change}} of a list.

const apply = (value, change) => {
  if ('v' in change) return change.v;
  const copy = Array.isArray(value) ? value.slice() : { ...value };
  for (const [key, inner] of Object.entries(change.o || change.a)) copy[key] = apply(copy[key], inner);
  return copy;
};

export const follow = ({ onView, onPoints, onLive }) => {
  let view = null;
  const source = new EventSource('/events');
  const on = (name, heard) => source.addEventListener(name, (event) => heard(JSON.parse(event.data)));
  on('snapshot', (value) => {
    view = value;
    // Before the first look of a server that has just started there is nothing.
    if (view) onView(view);
    onLive(true);
  });
  on('change', (change) => onView(view = apply(view, change)));
  on('points', onPoints);
  source.onerror = () => {
    onLive(false);
    // A browser gives up on a refusal; a server that starts again refuses for a moment.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow({ onView, onPoints, onLive }), 2000);
  };
};

