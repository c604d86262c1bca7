// The page: which device, which grouping, which moment, and everything that follows from them.

readTheme();
const devices = meta.devices.map(described => ({ described }));
const state = { device: null, number: 0, grouping: 0, moment: 0, flameWhen: 'moment' };

const timeline = new Timeline(element('timeline'), {
  onSelect: moment => select(moment),
  onHover: (moment, event) => {
    legend(moment ?? state.moment);
    if (moment !== null && event) showTip(event, ...describeMoment(moment));
  },
});
const map = new AddressMap(element('map'), element('map-scroll'), element('map-space'));
const flame = new FlameGraph(element('flame'), {
  onZoom: zoomed => { element('flame-out').hidden = !zoomed; },
  onFound: bytes => {
    const share = bytes === null ? '' : `${words(bytes)} found, ${(100 * bytes / Math.max(1, flame.root.bytes)).toFixed(1)} %`;
    element('flame-found').textContent = share;
  },
});

const grouping = () => state.device.groupings[state.grouping] ?? state.device.groupings[0];

function choose(number) {
  state.number = number;
  state.device = devices[number].device ??= new Device(devices[number].described);
  for (const section of document.querySelectorAll('section.device')) section.hidden = section.dataset.device !== String(number);
  for (const button of document.querySelectorAll('button.overlay')) button.setAttribute('aria-pressed', 'false');
  const { device } = state, { trace, layouts, byOwner } = device;
  state.grouping = Math.min(state.grouping, device.groupings.length - 1);
  state.moment = device.explained?.moment ?? device.end;

  // A message has nothing to explore: its verdict, fix and books are the page.
  element('timeline-section').hidden = !(trace || layouts.length || byOwner);
  const absent = trace ? trace.moments === 0 ? 'Nothing happened while this was recorded.' : null
    : layouts.length ? 'This recording has the layout of one moment, and no events before it: there is no timeline.'
      : byOwner ? 'This recording has the live bytes by call stack at one moment, and no events before it: there is no timeline.'
        : 'This recording holds a few totals only: there is no timeline.';
  element('timeline-absent').textContent = absent ?? '';
  element('timeline-absent').hidden = absent === null;
  element('timeline-body').hidden = element('timeline-hint').hidden = element('jumps').hidden = absent !== null;
  // The choice of colours stands with the first drawing that has them.
  element(absent === null ? 'timeline-grouping' : 'map-grouping').append(element('grouping'));

  const located = layouts.length > 0 || trace?.located;
  element('map-section').hidden = !(trace || layouts.length);
  element('map-absent').hidden = Boolean(located);
  element('map-absent').textContent = located ? '' : 'Addresses were not recorded: the layout of the pool and its holes cannot be shown.';
  element('map-body').hidden = !located;
  element('flame-section').hidden = !(trace || layouts.length || byOwner);

  radios('grouping', device.groupings.map((g, i) => [i, g.name]), state.grouping, value => {
    state.grouping = Number(value);
    if (trace && absent === null) timeline.show(device, grouping());
    if (located) map.recolour(grouping());
    mapLegend();
    legend(state.moment);
  });
  const whens = trace ? [['moment', 'the chosen moment'], ['peak', 'the peak']] : [['moment', 'the recorded moment']];
  if (!trace) state.flameWhen = 'moment';
  radios('flame-when', whens, state.flameWhen, value => { state.flameWhen = value; showFlame(); });
  jumps();
  if (trace && absent === null) timeline.show(device, grouping());
  select(state.moment);
  showFlame();
}

// Chooses a moment; everything that shows a moment follows.
function select(moment) {
  const { device } = state;
  state.moment = timeline.selected = moment;
  if (device.trace && device.end > 0) { timeline.reveal(moment); timeline.draw(); }
  if (!element('map-body').hidden) map.show(device, grouping(), moment);
  element('moment').textContent = momentWords(moment);
  mapNote(moment);
  mapLegend();
  legend(moment);
  if (state.flameWhen === 'moment') showFlame();
}

function showFlame() {
  if (element('flame-section').hidden) return;
  const { device } = state;
  flame.show(device, device.trace && state.flameWhen === 'peak' ? device.trace.peak : state.moment, Number(element('flame-frames').value));
}

function momentWords(moment) {
  const { device } = state, explained = device.explainedAt(moment);
  const parts = explained ? [explained.label] : [];
  if (device.trace) {
    const time = device.time(moment);
    parts.push(`after event ${grouped(moment)} of ${grouped(device.end)}${time === null ? '' : `, ${seconds(time)}`}`);
    parts.push(`${words(explained?.live ?? device.sums(grouping(), moment).reduce((a, b) => a + b, 0))} live`);
    const reserved = explained?.reserved ?? device.reservedAt(moment);
    if (reserved !== null) parts.push(`${words(reserved)} reserved`);
  } else if (!explained) parts.push('at the recorded moment');
  if (!element('map-body').hidden && map.segments.every(segment => segment.recorded)) {
    const { count, bytes, largest } = map.holes();
    parts.push(count ? `${words(bytes)} free in ${grouped(count)} ${count === 1 ? 'hole' : 'holes'}, the largest ${words(largest)}` : 'no holes');
  }
  return parts.join(' · ');
}

function mapNote(moment) {
  const { device } = state, { trace } = device, notes = [];
  if (trace && !device.layoutAt(moment)) {
    if (!trace.rangesRecorded) notes.push('What the pool reserved was not recorded: outlines are ranges of addresses that were used at some time.');
    let unknown = 0, bytes = 0;
    for (let i = 0; i < trace.born.length; i++) {
      if (trace.address[i] === 0 && trace.born[i] <= moment && moment < trace.died[i]) { unknown++; bytes += trace.bytes[i]; }
    }
    if (unknown) notes.push(`Live, but not drawn because addresses were not recorded: ${grouped(unknown)} ${unknown === 1 ? 'request' : 'requests'}, ${words(bytes)}.`);
    if (!trace.complete) notes.push('Recording began after the program had: allocations made before are known only as far as they were freed or still live later.');
  }
  element('map-note').textContent = notes.join(' ');
}

// The colours on the map at the chosen moment, most bytes first.
function mapLegend() {
  if (element('map-body').hidden) return;
  const key = (kind, name) => make('span', {}, make('i', { class: `key ${kind}` }), name);
  const keys = map.groups().map(([group, bytes]) => key(`swatch-${group % 12}`, `${grouping().names[group]} ${words(bytes)}`));
  if (map.segments.some(segment => segment.pieces.some(piece => piece.state === PENDING))) keys.push(key('pending', 'freed, still used by work in flight'));
  element('map-legend').replaceChildren(...keys, key('hole', map.segments.every(segment => segment.recorded) ? 'free' : 'not in use'));
}

// What a moment was, for the tooltip.
function describeMoment(moment) {
  const { device } = state, { trace } = device;
  const sums = device.sums(grouping(), moment), total = sums.reduce((a, b) => a + b, 0);
  const time = device.time(moment), lines = [];
  lines.push(make('b', {}, `after event ${grouped(moment)}${time === null ? '' : `, ${seconds(time)}`}`));
  lines.push(make('div', {}, `live ${exact(total)}`));
  const reserved = device.reservedAt(moment);
  if (reserved !== null) lines.push(make('div', {}, `reserved ${exact(reserved)}`));
  if (timeline.overlay) {
    const { moment: moments, reserved: after } = timeline.overlay;
    lines.push(make('div', {}, `reserved after the change ${exact(at({ moment: moments }, moment, after))}`));
  }
  const change = device.change[moment];
  if (change !== 0) {
    const i = Math.abs(change) - 1;
    lines.push(make('div', {}, `${change > 0 ? 'allocates' : 'frees'} ${exact(trace.bytes[i])}`), make('div', {}, device.site(trace.owner[i])));
  }
  const mark = lowerBound(trace.marks, moment);
  if (trace.marks[mark] === moment) lines.push(make('div', {}, `mark: ${trace.markNames[trace.mark[mark]] ?? ''}`));
  const refusal = lowerBound(trace.refused, moment);
  if (trace.refused[refusal] === moment) lines.push(make('div', {}, `refused ${exact(trace.refusedBytes[refusal])}`));
  else if (trace.failure?.moment === moment) lines.push(make('div', {}, `refused ${exact(trace.failure.requested)}${trace.failure.op ? ` for ${trace.failure.op}` : ''}`));
  return lines;
}

// The legend doubles as a table: bytes of each group at the moment pointed at or chosen.
function legend(moment) {
  const { device } = state;
  if (!device.trace || device.end === 0) return;
  const { names } = grouping(), sums = device.sums(grouping(), moment), total = sums.reduce((a, b) => a + b, 0);
  element('legend-head').textContent = `Live after event ${grouped(moment)}`;
  const body = element('legend');
  const line = (key, name, bytes, share) => {
    const first = make('td', { title: name }, make('i', { class: `key ${key}` }), name);
    const bar = make('td', { class: 'thin' });
    if (share !== null) { const i = make('i'); i.style.width = `${100 * share}%`; bar.append(i); }
    return make('tr', {}, first, make('td', { class: 'number', title: `${grouped(bytes)} bytes` }, words(bytes)), bar);
  };
  const rows = names.map((name, g) => {
    const row = line(`swatch-${g % 12}`, name, sums[g], total > 0 ? sums[g] / total : 0);
    row.className = 'group';
    row.addEventListener('pointerenter', () => highlight(g));
    row.addEventListener('pointerleave', () => highlight(null));
    return row;
  });
  if (device.reserved) rows.push(line('line', 'reserved', device.reservedAt(moment), null));
  if (timeline.overlay) rows.push(line('after', `reserved with: ${timeline.overlay.change}`, at(timeline.overlay, moment, timeline.overlay.reserved), null));
  const ceiling = device.limit ?? device.capacity;
  if (ceiling !== null) rows.push(line('dashed', device.limit !== null ? 'limit' : 'device', ceiling, null));
  body.replaceChildren(...rows);
}

function highlight(group) {
  timeline.highlight = map.highlight = group;
  timeline.draw();
  if (!element('map-body').hidden) map.draw();
}

function radios(id, choices, chosen, onChange) {
  const set = element(id), [caption] = set.children;
  const labels = choices.map(([value, name]) => {
    const input = make('input', { type: 'radio', name: id, value });
    input.checked = value === chosen;
    input.addEventListener('change', () => onChange(value));
    return make('label', {}, input, name);
  });
  set.replaceChildren(caption, ...labels);
}

function jumps() {
  const { device } = state, { trace } = device;
  if (!trace) return;
  const places = [['whole', () => timeline.range(0, device.end)], ['peak', () => select(trace.peak)]];
  const failed = trace.refused.at(-1) ?? trace.failure?.moment;
  if (failed) places.push(['failure', () => select(failed)]);
  places.push(['end', () => select(device.end)]);
  element('jumps').replaceChildren(...places.map(([name, go]) => {
    const button = make('button', { type: 'button' }, name);
    button.addEventListener('click', go);
    return button;
  }));
}

for (const button of document.querySelectorAll('button.overlay')) {
  const number = Number(button.dataset.advice);
  button.addEventListener('click', () => {
    const pressed = button.getAttribute('aria-pressed') === 'true';
    for (const other of document.querySelectorAll('button.overlay')) other.setAttribute('aria-pressed', 'false');
    button.setAttribute('aria-pressed', String(!pressed));
    timeline.overlay = pressed ? null : state.device.advice.find(advice => advice.number === number) ?? null;
    timeline.draw();
    legend(state.moment);
    if (!pressed) element('timeline-section').scrollIntoView({ behavior: 'smooth', block: 'center' });
  });
}
for (const button of document.querySelectorAll('button.copy')) {
  const fix = button.parentElement.querySelector('code') ?? button.parentElement.querySelector('.change');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(fix.textContent);
    } catch {
      // A page from a file may not use the clipboard: then the text is marked, to be copied by hand.
      getSelection().selectAllChildren(fix);
      document.execCommand('copy');
    }
    button.textContent = 'copied';
  });
}
element('flame-search').addEventListener('input', event => flame.find(event.target.value));
element('flame-frames').addEventListener('change', showFlame);
element('flame-out').addEventListener('click', () => flame.zoom(flame.root));
element('map-in').addEventListener('click', () => map.rescale(2));
element('map-out').addEventListener('click', () => map.rescale(0.5));

const chooser = element('device');
devices.forEach(({ described }, i) => chooser.append(make('option', { value: i }, described.name || `device ${i}`)));
element('device-choice').hidden = devices.length < 2;
chooser.addEventListener('change', () => choose(Number(chooser.value)));

function redraw() {
  readTheme();
  const { device } = state;
  if (device.trace && device.end > 0) timeline.draw();
  if (!element('map-body').hidden) map.show(device, grouping(), state.moment);
  flame.draw();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
window.addEventListener('resize', redraw);
if (devices.length) choose(0);
document.documentElement.dataset.ready = 'true';
