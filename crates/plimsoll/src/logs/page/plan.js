// The plan: what lies where in the arena while which kernel runs.

const meta = JSON.parse(element('meta').textContent);
const remedyWords = { recompute: 'made again here', copy_back: 'back from host memory', copy_out: 'copied to host memory' };
const purposeWords = { recompute: 'makes again what was dropped', copy_out: 'copy to host memory', copy_back: 'copy back', wait: 'wait for a copy' };

function figure(list, name, value, title = '') {
  list.append(make('div', {}, make('dt', {}, name), make('dd', title ? { title } : {}, value)));
}

// A row of a legend: a swatch and a word.
const keyed = (kind, words) => make('span', {}, make('i', { class: `key ${kind}` }), words);

class PlanMap {
  constructor(plan) {
    this.plan = plan;
    this.count = plan.kernels.name.length;
    this.top = plan.budget_bytes && plan.budget_bytes <= plan.peak_bytes * 1.3 ? Math.max(plan.budget_bytes, plan.peak_bytes) : plan.peak_bytes;
    this.canvas = element('plan-map');
    this.mode = 'addresses';
    this.chosen = plan.peak_position;
    this.live = Object.entries(plan.live).map(([name, bytes]) => ({ at: plan.categories.indexOf(name), name, bytes }));
    this.totals = Array.from({ length: this.count }, (_, k) => this.live.reduce((sum, { bytes }) => sum + bytes[k], 0));
    this.whole();
    this.#legend();
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.choose(this.chosen);
  }

  whole() { this.x = [0, Math.max(1, this.count)]; this.y = [0, Math.max(1, this.top)]; }

  kernelWords(k) {
    const { name, scope, purpose } = this.plan.kernels;
    const why = purposeWords[purpose[k]];
    return `${grouped(k + 1)} of ${grouped(this.count)}, ${name[k]}${scope[k] ? ` of ${scope[k]}` : ''}${why ? ` (${why})` : ''}`;
  }

  // What is live at a kernel, the largest first; of an operand and the result in its place, the larger.
  liveAt(k) {
    const { bytes, offset, lower, upper } = this.plan.buffers, at = new Map();
    for (let i = 0; i < bytes.length; i++) {
      if (lower[i] > k || upper[i] <= k) continue;
      const other = at.get(offset[i]);
      if (other === undefined || bytes[other] < bytes[i]) at.set(offset[i], i);
    }
    return [...at.values()].sort((a, b) => bytes[b] - bytes[a] || a - b);
  }

  choose(k) {
    this.chosen = Math.min(Math.max(k, 0), this.count - 1);
    if (this.chosen < this.x[0] || this.chosen >= this.x[1]) {
      const wide = this.x[1] - this.x[0], from = Math.min(Math.max(this.chosen - wide / 2, 0), this.count - wide);
      this.x = [from, from + wide];
    }
    this.#tables();
    this.draw();
  }

  #tables() {
    const { plan, chosen } = this, { buffers } = plan, atPeak = chosen === plan.peak_position;
    if (chosen < 0) return;
    element('moment').textContent = `${atPeak ? 'at the peak, ' : ''}while kernel ${this.kernelWords(chosen)} runs`;
    const rows = this.live.map(({ at, name, bytes }) => [`swatch-${at}`, name, bytes[chosen], `var(--c${at})`]).filter(row => row[2] > 0);
    rows.sort((a, b) => b[2] - a[2]);
    const free = plan.peak_bytes - this.totals[chosen];
    if (free > 0) rows.push(['free', atPeak ? 'padding' : 'free', free, 'var(--hatch)']);
    const body = element('ledger').tBodies[0];
    body.replaceChildren(...rows.map(([kind, name, bytes, colour]) => {
      const bar = make('i');
      bar.style.background = colour;
      bar.style.width = `${100 * bytes / plan.peak_bytes}%`;
      return make('tr', {}, make('td', {}, make('i', { class: `key ${kind}` }), name), make('td', { class: 'number', title: `${grouped(bytes)} bytes` }, words(bytes)),
        make('td', { class: 'number' }, `${(100 * bytes / Math.max(1, plan.peak_bytes)).toFixed(1)} %`), make('td', { class: 'thin' }, bar));
    }));
    element('ledger').tFoot.replaceChildren(make('tr', {}, make('th', { scope: 'row' }, 'arena'), make('td', { class: 'number', title: `${grouped(plan.peak_bytes)} bytes` }, words(plan.peak_bytes)), make('td', {}), make('td', {})));
    element('largest').tBodies[0].replaceChildren(...this.liveAt(chosen).slice(0, 10).map(i => make('tr', {},
      make('td', {}, make('i', { class: `key swatch-${buffers.category[i]}` }), buffers.name[i], buffers.remedy[i] ? ` – ${remedyWords[buffers.remedy[i]]}` : ''),
      make('td', { class: 'wide' }, buffers.shape[i] || 'workspace'), make('td', { class: 'number', title: `${grouped(buffers.bytes[i])} bytes` }, words(buffers.bytes[i])),
      make('td', { class: 'number wide' }, grouped(buffers.offset[i])), make('td', { class: 'number wide' }, `${grouped(buffers.lower[i] + 1)}–${grouped(buffers.upper[i])}`))));
  }

  #legend() {
    const used = new Set(this.plan.buffers.category), remedies = new Set(this.plan.buffers.remedy);
    const list = [...used].sort((a, b) => a - b).map(at => keyed(`swatch-${at}`, this.plan.categories[at]));
    list.push(keyed('peak', 'peak'));
    if (remedies.has('recompute')) list.push(keyed('again', 'made again'));
    if (remedies.has('copy_back') || remedies.has('copy_out')) list.push(keyed('moved', 'to or from host memory'));
    element('plan-legend').replaceChildren(...list);
  }

  // The place of the picture inside of the canvas.
  #box() { return { left: 66, top: 8, width: this.canvas.clientWidth - 66 - 6, height: this.height - 8 - 24 }; }

  draw() {
    this.height = window.innerWidth < 640 ? 300 : 440;
    const { context } = fit(this.canvas, this.height), box = this.#box();
    if (box.width <= 0 || this.count === 0) return;
    const [x0, x1] = this.x, [y0, y1] = this.y;
    const px = k => box.left + (k - x0) / (x1 - x0) * box.width, py = b => box.top + box.height - (b - y0) / (y1 - y0) * box.height;
    context.fillStyle = theme.faint;
    context.fillRect(box.left, box.top, box.width, box.height);
    context.save();
    context.beginPath(); context.rect(box.left, box.top, box.width, box.height); context.clip();
    if (this.mode === 'addresses') this.#rectangles(context, px, py); else this.#areas(context, px, py, box);
    context.strokeStyle = theme.ink; context.lineWidth = 1;
    const line = px(this.chosen + 0.5);
    context.beginPath(); context.moveTo(line, box.top); context.lineTo(line, box.top + box.height); context.stroke();
    const { budget_bytes: budget } = this.plan;
    if (budget && budget <= this.top) {
      context.strokeStyle = theme.bad; context.setLineDash([6, 4]); context.lineWidth = 1.5;
      context.beginPath(); context.moveTo(box.left, py(budget)); context.lineTo(box.left + box.width, py(budget)); context.stroke();
      context.setLineDash([]);
      context.fillStyle = theme.bad; context.fillText('budget', box.left + 6, py(budget) + 14);
    }
    const peak = px(this.plan.peak_position + 0.5);
    context.fillStyle = theme.ink;
    context.beginPath(); context.moveTo(peak - 5, box.top); context.lineTo(peak + 5, box.top); context.lineTo(peak, box.top + 7); context.fill();
    context.restore();
    context.fillStyle = theme.soft; context.textAlign = 'right';
    for (let i = 0; i <= 4; i++) {
      const bytes = y0 + (y1 - y0) * i / 4;
      context.fillText(words(bytes), box.left - 6, Math.min(Math.max(py(bytes) + 4, 12), this.height - 24));
    }
    context.textAlign = 'center';
    const ticks = Math.max(2, Math.floor(box.width / 90));
    const seen = new Set();
    for (let i = 0; i <= ticks; i++) {
      const k = Math.min(this.count - 1, Math.floor(x0 + (x1 - x0 - 1) * i / ticks));
      if (seen.has(k)) continue;
      seen.add(k);
      context.fillText(grouped(k + 1), Math.min(px(k + 0.5), box.left + box.width - 8), this.height - 8);
    }
    context.textAlign = 'left';
    this.canvas.ariaLabel = `${this.mode === 'addresses' ? 'Addresses' : 'Live bytes'} of kernels ${Math.floor(x0) + 1} to ${Math.ceil(x1)} of ${this.count}; chosen: kernel ${this.chosen + 1}, ${words(this.totals[this.chosen])} live`;
  }

  #rectangles(context, px, py) {
    const { bytes, offset, lower, upper, category, remedy } = this.plan.buffers;
    const [x0, x1] = this.x, [y0, y1] = this.y;
    const patterns = { recompute: hatch(context, 'transparent', theme.ink, true) };
    patterns.copy_back = patterns.copy_out = hatch(context, 'transparent', theme.ink, false);
    for (let i = 0; i < bytes.length; i++) {
      if (upper[i] <= x0 || lower[i] >= x1 || offset[i] + bytes[i] <= y0 || offset[i] >= y1) continue;
      const left = px(lower[i]), top = py(offset[i] + bytes[i]), wide = Math.max(px(upper[i]) - left, 0.6), high = Math.max(py(offset[i]) - top, 0.6);
      const gap = wide > 3 && high > 3 ? 0.5 : 0;
      context.fillStyle = theme.groups[category[i]];
      context.fillRect(left, top, wide - gap, high - gap);
      if (remedy[i] && wide > 1.5 && high > 1.5) { context.fillStyle = patterns[remedy[i]]; context.fillRect(left, top, wide - gap, high - gap); }
    }
    if (this.pointed !== undefined) {
      const i = this.pointed;
      context.strokeStyle = theme.ink; context.lineWidth = 2;
      context.strokeRect(px(lower[i]), py(offset[i] + bytes[i]), Math.max(px(upper[i]) - px(lower[i]), 2), Math.max(py(offset[i]) - py(offset[i] + bytes[i]), 2));
    }
  }

  #areas(context, px, py, box) {
    const [x0, x1] = this.x, wide = (x1 - x0) / box.width;
    const column = (left, right, k) => {
      let below = 0;
      for (const { at, bytes } of this.live) {
        if (bytes[k] > 0) {
          context.fillStyle = theme.groups[at];
          const [low, high] = [py(below), py(below + bytes[k])];
          context.fillRect(left, high, right - left, low - high);
          below += bytes[k];
        }
      }
    };
    if (wide <= 1) {
      for (let k = Math.floor(x0); k < Math.min(this.count, Math.ceil(x1)); k++) column(px(k), px(k + 1) + 0.3, k);
      return;
    }
    // Of the kernels of a pixel, the one with the most.
    for (let x = 0; x < box.width; x++) {
      let most = Math.floor(x0 + x * wide);
      for (let k = most; k < Math.min(this.count, x0 + (x + 1) * wide); k++) if (this.totals[k] > this.totals[most]) most = k;
      column(box.left + x, box.left + x + 1.3, most);
    }
  }

  // The kernel and the address of a place on the canvas, if it is in the picture.
  #place(event) {
    const box = this.#box(), bounds = this.canvas.getBoundingClientRect();
    const x = (event.clientX - bounds.left - box.left) / box.width, y = 1 - (event.clientY - bounds.top - box.top) / box.height;
    if (x < 0 || x >= 1 || y < 0 || y > 1) return null;
    const k = Math.min(this.count - 1, Math.floor(this.x[0] + x * (this.x[1] - this.x[0])));
    return { k, address: this.y[0] + y * (this.y[1] - this.y[0]), share: [x, y] };
  }

  #point(event) {
    const place = this.#place(event), before = this.pointed;
    this.pointed = undefined;
    if (!place) { hideTip(); if (before !== undefined) this.draw(); return; }
    const { k, address } = place, { bytes, offset, lower, upper, name, shape, category, remedy } = this.plan.buffers;
    const kernel = make('div', {}, `kernel ${this.kernelWords(k)}: ${exact(this.totals[k])} live`);
    if (this.mode === 'live') {
      const lines = this.live.filter(({ bytes }) => bytes[k] > 0).map(({ name, bytes }) => make('div', {}, `${name} ${exact(bytes[k])}`));
      showTip(event, kernel, ...lines);
      return;
    }
    for (let i = 0; i < bytes.length; i++) {
      if (lower[i] <= k && k < upper[i] && offset[i] <= address && address < offset[i] + bytes[i]) this.pointed = i;
    }
    const i = this.pointed;
    if (i !== before) this.draw();
    if (i === undefined) { showTip(event, make('b', {}, 'free'), kernel); return; }
    const { categories } = this.plan;
    showTip(event, make('b', {}, name[i]), make('div', {}, `${categories[category[i]]}${shape[i] ? ` ${shape[i]}` : ''}: ${exact(bytes[i])}`),
      make('div', {}, `at offset ${grouped(offset[i])}, from kernel ${grouped(lower[i] + 1)} to ${grouped(upper[i])}`),
      ...(remedy[i] ? [make('div', {}, remedyWords[remedy[i]])] : []), kernel);
  }

  zoom(axis, factor, at) {
    const whole = axis === 'x' ? [0, this.count] : [0, this.top], [from, to] = this[axis];
    const least = axis === 'x' ? Math.min(4, this.count) : Math.min(1024, this.top);
    const wide = Math.min(Math.max((to - from) * factor, least), whole[1]);
    const start = Math.min(Math.max(from + (to - from) * at - wide * at, 0), whole[1] - wide);
    this[axis] = [start, start + wide];
    this.draw();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener('pointermove', event => this.#point(event));
    canvas.addEventListener('pointerdown', event => { this.#point(event); const place = this.#place(event); if (place) this.choose(place.k); });
    canvas.addEventListener('pointerleave', () => { hideTip(); this.pointed = undefined; this.draw(); });
    canvas.addEventListener('wheel', event => {
      const place = this.#place(event);
      if (!place) return;
      event.preventDefault();
      const turned = event.deltaY || event.deltaX;
      this.zoom(event.shiftKey ? 'y' : 'x', turned < 0 ? 0.8 : 1.25, place.share[event.shiftKey ? 1 : 0]);
    }, { passive: false });
    canvas.addEventListener('keydown', event => {
      const far = event.shiftKey ? Math.ceil(this.count / 20) : 1;
      const at = (this.chosen + 0.5 - this.x[0]) / (this.x[1] - this.x[0]);
      const keys = {
        ArrowLeft: () => this.choose(this.chosen - far), ArrowRight: () => this.choose(this.chosen + far),
        Home: () => this.choose(0), End: () => this.choose(this.count - 1), p: () => this.choose(this.plan.peak_position),
        '+': () => this.zoom('x', 0.8, at), '=': () => this.zoom('x', 0.8, at), '-': () => this.zoom('x', 1.25, at), 0: () => { this.whole(); this.draw(); },
      };
      const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
    });
    element('plan-peak').addEventListener('click', () => this.choose(this.plan.peak_position));
    element('plan-in').addEventListener('click', () => this.zoom('x', 0.5, 0.5));
    element('plan-out').addEventListener('click', () => this.zoom('x', 2, 0.5));
    element('plan-whole').addEventListener('click', () => { this.whole(); this.draw(); });
    element('plan-view').addEventListener('change', event => { this.mode = event.target.value; this.draw(); });
  }
}

// Draws with the colours of now, and again when they change.
function themed(draw) {
  const again = () => { readTheme(); draw(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  again();
}
