// Call stacks in words.

const frameWords = ([name, file, line]) => {
  const place = file && file !== '??' ? `${file}${line ? `:${line}` : ''}` : '';
  return name && place ? `${name}  ${place}` : name || place || '?';
};

// An owner's stack for the tooltip, innermost first; of many native frames only the first few.
function stackLines(device, owner) {
  const stack = device.stack(owner);
  if (!stack.length) return make('div', { class: 'stack' }, 'no stack recorded');
  const source = stack.filter(frame => frame[3] < 2);
  const shown = (source.length ? source : stack).slice(0, 14);
  const lines = shown.map(frame => make('div', frame[3] === 0 ? { class: 'own' } : {}, frameWords(frame)));
  if (shown.length < stack.length) lines.push(make('div', {}, `and ${stack.length - shown.length} more frames`));
  return make('div', { class: 'stack' }, ...lines);
}
