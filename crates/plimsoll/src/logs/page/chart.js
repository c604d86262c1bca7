// Charts of numbers over steps.

// At most five figures that matter, as few as say it.
const brief = number => number === null || !Number.isFinite(number) ? '–' : String(Number(number.toPrecision(5)));

class Chart {
  // `lines` are { name, colour, points, dots }, of which points are [step, number].
  constructor(parent, title) {
    this.title = title;
    this.lines = [];
    this.value = make('span', { class: 'now' });
    this.canvas = make('canvas', { role: 'img', tabindex: '0' });
    this.legend = make('p', { class: 'hint legend-line' });
    parent.append(make('section', { class: 'panel' }, make('div', { class: 'panel-head' }, make('h3', {}, title), this.value), this.canvas, this.legend));
    this.canvas.addEventListener('pointermove', event => this.#point(event));
    this.canvas.addEventListener('pointerdown', event => this.#point(event));
    this.canvas.addEventListener('pointerleave', () => { hideTip(); this.pointed = undefined; this.draw(); });
    this.canvas.addEventListener('keydown', event => {
      const points = this.lines[0]?.points ?? [], by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || !points.length) return;
      event.preventDefault();
      const at = points.findIndex(([step]) => step === this.pointed);
      this.pointed = points[Math.min(Math.max(at < 0 ? points.length - 1 : at + by, 0), points.length - 1)][0];
      this.draw();
      const bounds = this.canvas.getBoundingClientRect();
      showTip({ clientX: bounds.left + 60, clientY: bounds.top + 20 }, ...this.#words());
    });
    this.canvas.addEventListener('blur', () => { hideTip(); this.pointed = undefined; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  show(lines) {
    this.lines = lines.filter(({ points }) => points.length);
    this.value.textContent = this.lines.map(({ points }) => brief(points.at(-1)[1])).slice(0, 1).join('');
    const key = JSON.stringify(this.lines.map(({ name, colour }) => [name, colour]));
    if (key !== this.key) this.legend.replaceChildren(...this.lines.length > 1 ? this.lines.map(({ name, colour }) => keyed(`swatch-${colour}`, name)) : []);
    this.key = key;
    this.draw();
  }

  #box() { return { left: 58, top: 8, width: this.canvas.clientWidth - 58 - 8, height: 170 - 8 - 22 }; }

  #range() {
    const numbers = this.lines.flatMap(({ points }) => points.map(point => point[1])).filter(Number.isFinite);
    let low = numbers.reduce((a, b) => Math.min(a, b), Infinity), high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(low <= high)) [low, high] = [0, 1];
    if (low > 0 && low < high / 3) low = 0;
    if (low === high) { high += Math.abs(high) || 1; low = Math.min(low, 0); }
    const rough = (high - low) / 3, scale = 10 ** Math.floor(Math.log10(rough));
    const tick = scale * [1, 2, 2.5, 5, 10].find(nice => nice * scale >= rough * 0.99);
    low = Math.floor(low / tick + 1e-9) * tick; high = Math.ceil(high / tick - 1e-9) * tick;
    const steps = this.lines.flatMap(({ points }) => [points[0][0], points.at(-1)[0]]);
    const first = Math.min(...steps), last = Math.max(...steps);
    return { low, high, tick, first, last: last > first ? last : first + 1 };
  }

  draw() {
    const { context } = fit(this.canvas, 170), box = this.#box();
    if (box.width <= 0 || !this.lines.length) return;
    const { low, high, tick, first, last } = this.#range();
    const px = step => box.left + (step - first) / (last - first) * box.width, py = n => box.top + box.height - (n - low) / (high - low) * box.height;
    context.strokeStyle = theme.line; context.fillStyle = theme.soft; context.lineWidth = 1; context.textAlign = 'right';
    for (let number = low; number <= high + tick / 2; number += tick) {
      const y = py(number);
      context.beginPath(); context.moveTo(box.left, y); context.lineTo(box.left + box.width, y); context.stroke();
      context.fillText(String(Number(number.toPrecision(6))), box.left - 6, y + 4);
    }
    context.textAlign = 'left'; context.fillText(grouped(first), box.left, 170 - 6);
    context.textAlign = 'right'; context.fillText(`step ${grouped(last)}`, box.left + box.width, 170 - 6);
    context.textAlign = 'left';
    for (const { points, colour, dots } of this.lines) {
      context.strokeStyle = context.fillStyle = theme.groups[colour];
      context.lineWidth = 1.5; context.beginPath();
      let pen = false;
      for (const [step, number] of points) {
        if (!Number.isFinite(number)) { pen = false; continue; }
        if (pen) context.lineTo(px(step), py(number)); else context.moveTo(px(step), py(number));
        pen = true;
      }
      context.stroke();
      if (dots || points.length === 1) for (const [step, number] of points) { context.beginPath(); context.arc(px(step), py(number), 3, 0, 7); context.fill(); }
    }
    if (this.pointed !== undefined) {
      context.strokeStyle = theme.ink; context.lineWidth = 1;
      context.beginPath(); context.moveTo(px(this.pointed), box.top); context.lineTo(px(this.pointed), box.top + box.height); context.stroke();
    }
    this.canvas.ariaLabel = `${this.title} from step ${first} to ${last}: ${this.lines.map(({ name, points }) => `${name} ${brief(points.at(-1)[1])}`).join(', ')}`;
  }

  #words() {
    return [make('b', {}, `step ${grouped(this.pointed)}`), ...this.lines.map(({ name, points }) => {
      const near = points.reduce((a, b) => Math.abs(b[0] - this.pointed) < Math.abs(a[0] - this.pointed) ? b : a);
      return make('div', {}, `${name} ${brief(near[1])}${near[0] === this.pointed ? '' : ` at step ${grouped(near[0])}`}`);
    })];
  }

  #point(event) {
    if (!this.lines.length) return;
    const box = this.#box(), { first, last } = this.#range(), bounds = this.canvas.getBoundingClientRect();
    const at = first + (event.clientX - bounds.left - box.left) / box.width * (last - first);
    this.pointed = this.lines[0].points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)[0];
    this.draw();
    showTip(event, ...this.#words());
  }
}
