// The timeline: live bytes stacked by group, reserved bytes, the limit, failures and marks, event by event.

class Timeline {
  constructor(canvas, { onSelect, onHover }) {
    Object.assign(this, { canvas, onSelect, onHover, device: null, grouping: null, from: 0, to: 1, selected: 0 });
    this.highlight = null; // the group pointed at in the legend
    this.overlay = null;   // the advice drawn over what was recorded
    this.hover = null;     // the moment pointed at
    this.drag = null;      // where a drag began, in pixels
    this.#listen();
  }

  show(device, grouping) {
    if (this.device !== device) { this.from = 0; this.to = Math.max(1, device.end); this.overlay = null; }
    Object.assign(this, { device, grouping });
    this.draw();
  }

  // The part of the canvas that is drawn on.
  get plot() {
    const left = 74, right = 10, top = 16, bottom = 26;
    return { left, top, width: Math.max(10, this.canvas.clientWidth - left - right), height: this.height - top - bottom };
  }
  get height() { return 340; }
  x(moment) { const { left, width } = this.plot; return left + (moment - this.from) / (this.to - this.from) * width; }
  moment(x) {
    const { left, width } = this.plot;
    const moment = this.from + (x - left) / width * (this.to - this.from);
    return Math.round(Math.min(Math.max(moment, 0), this.device.end));
  }

  // The moment of the most live bytes among those that one pixel stands for.
  momentAt(x) {
    const reach = (this.to - this.from) / this.plot.width / 2, exact = this.from + (x - this.plot.left) / this.plot.width * (this.to - this.from);
    if (reach < 1) return this.moment(x);
    const first = Math.max(0, Math.floor(exact - reach)), last = Math.min(this.device.end, Math.ceil(exact + reach));
    const { failure, refused } = this.device.trace;
    if (failure?.moment >= first && failure?.moment <= last) return failure.moment;
    const near = refused[lowerBound(refused, first)];
    if (near <= last) return near;
    let total = this.device.sums(this.grouping, first).reduce((a, b) => a + b, 0), most = total, best = first;
    for (let m = first + 1; m <= last; m++) {
      const change = this.device.change[m];
      if (change !== 0) total += Math.sign(change) * this.device.trace.bytes[Math.abs(change) - 1];
      if (total > most) { most = total; best = m; }
    }
    return best;
  }

  zoom(factor, around) {
    const { end } = this.device, span = Math.min(Math.max((this.to - this.from) * factor, Math.min(20, end)), Math.max(1, end));
    const share = (around - this.from) / (this.to - this.from);
    this.range(around - share * span, around - share * span + span);
  }

  range(from, to) {
    const end = Math.max(1, this.device.end), span = Math.min(Math.max(to - from, Math.min(20, end)), end);
    this.from = Math.min(Math.max(from, 0), end - span);
    this.to = this.from + span;
    this.draw();
  }

  // Moves the visible part so that a moment is in it.
  reveal(moment) {
    if (moment >= this.from && moment <= this.to) return;
    const span = this.to - this.from;
    this.range(moment - span / 2, moment + span / 2);
  }

  draw() {
    if (!this.device?.trace) return;
    const { context, width } = fit(this.canvas, this.height);
    const plot = this.plot, { device, grouping } = this, columns = Math.max(1, Math.floor(plot.width));
    const { stacks, totals } = device.stacks(grouping, this.from, this.to, columns);
    const lines = this.#lines(columns);
    let top = 1;
    for (const values of [totals, ...lines.map(line => line.values)]) for (const value of values) if (value > top) top = value;
    const ceiling = device.limit ?? device.capacity;
    const limitShown = ceiling !== null && ceiling <= top * 1.8;
    if (limitShown) top = Math.max(top, ceiling);
    top *= 1.04;
    const y = bytes => plot.top + plot.height * (1 - bytes / top);

    this.#axes(context, plot, top, y);
    const size = grouping.names.length, base = new Float64Array(columns);
    for (const g of grouping.stacked) {
      context.beginPath();
      context.moveTo(plot.left, y(base[0]));
      for (let c = 0; c < columns; c++) { const below = y(base[c]); context.lineTo(plot.left + c, below); context.lineTo(plot.left + c + 1, below); }
      for (let c = columns - 1; c >= 0; c--) {
        base[c] += stacks[c * size + g];
        const above = y(base[c]);
        context.lineTo(plot.left + c + 1, above); context.lineTo(plot.left + c, above);
      }
      context.closePath();
      context.globalAlpha = this.highlight !== null && this.highlight !== g ? 0.18 : 1;
      context.fillStyle = theme.groups[g % 12];
      context.fill();
    }
    context.globalAlpha = 1;
    for (const line of lines) this.#line(context, plot, y, line);
    if (ceiling !== null) this.#limit(context, plot, y, ceiling, limitShown);
    this.#marks(context, plot);
    this.#failures(context, plot);
    this.#cursor(context, plot, this.selected, theme.ink, [], true);
    if (this.hover !== null && this.drag === null) this.#cursor(context, plot, this.hover, theme.soft, [3, 3]);
    if (this.drag !== null && this.dragTo !== undefined) {
      context.fillStyle = theme.accent; context.globalAlpha = 0.18;
      context.fillRect(Math.min(this.drag, this.dragTo), plot.top, Math.abs(this.dragTo - this.drag), plot.height);
      context.globalAlpha = 1;
    }
    context.clearRect(plot.left + plot.width, 0, width, plot.top + plot.height);
    this.canvas.setAttribute('aria-label', `Live bytes from event ${grouped(this.from)} to ${grouped(this.to)}, stacked by ${grouping.name}; event ${grouped(this.selected)} is chosen`);
  }

  // What is drawn as lines: reserved bytes as recorded, and under the advice that is compared.
  #lines(columns) {
    const lines = [];
    const sample = (steps, values) => {
      const sampled = new Float64Array(columns), span = (this.to - this.from) / columns;
      let i = Math.max(0, lowerBound(steps.moment, this.from) - 1);
      let held = steps.moment.length && steps.moment[i] <= this.from ? values[i] : 0;
      for (let c = 0; c < columns; c++) {
        let most = held;
        const last = Math.floor(this.from + span * (c + 1));
        for (; i < steps.moment.length && steps.moment[i] <= last; i++) { held = values[i]; if (held > most) most = held; }
        sampled[c] = most;
      }
      return sampled;
    };
    if (this.device.reserved) lines.push({ colour: theme.reserved, values: sample(this.device.reserved, this.device.reserved.bytes) });
    if (this.overlay) {
      const { moment, reserved } = this.overlay;
      const until = moment.length ? moment[moment.length - 1] : 0;
      lines.push({ colour: theme.after, values: sample(this.overlay, reserved), until });
    }
    return lines;
  }

  #line(context, plot, y, { colour, values, until }) {
    context.strokeStyle = colour; context.lineWidth = 1.75; context.setLineDash([]);
    context.beginPath();
    const last = until === undefined ? values.length : Math.min(values.length, Math.ceil(this.x(until) - plot.left));
    for (let c = 0; c < last; c++) {
      const height = y(values[c]);
      if (c === 0) context.moveTo(plot.left, height); else context.lineTo(plot.left + c, height);
      context.lineTo(plot.left + c + 1, height);
    }
    context.stroke();
  }

  #axes(context, plot, top, y) {
    context.textBaseline = 'middle'; context.textAlign = 'right';
    let step = 2 ** Math.ceil(Math.log2(top / 6));
    if (top / step < 3) step /= 2;
    for (let bytes = 0; bytes <= top; bytes += step) {
      const at = Math.round(y(bytes)) + 0.5;
      context.strokeStyle = bytes === 0 ? theme.soft : theme.line; context.lineWidth = 1;
      context.beginPath(); context.moveTo(plot.left, at); context.lineTo(plot.left + plot.width, at); context.stroke();
      context.fillStyle = theme.soft;
      context.fillText(words(bytes), plot.left - 8, at);
    }
    context.textBaseline = 'top'; context.textAlign = 'center';
    const span = this.to - this.from, rough = span / 8, unit = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
    const each = Math.max(1, [1, 2, 5, 10].map(n => n * unit).find(n => n >= rough) ?? unit * 10);
    for (let moment = Math.ceil(this.from / each) * each; moment <= this.to; moment += each) {
      const at = this.x(moment);
      if (at > plot.left + plot.width - 30) break;
      context.fillStyle = theme.soft;
      context.fillText(grouped(moment), at, plot.top + plot.height + 8);
    }
    context.textAlign = 'right';
    context.fillText('events', plot.left - 8, plot.top + plot.height + 8);
  }

  #limit(context, plot, y, bytes, shown) {
    context.fillStyle = theme.bad; context.textAlign = 'left'; context.textBaseline = 'bottom';
    const name = this.device.limit !== null ? 'limit' : 'device';
    if (!shown) { context.fillText(`↑ ${name} ${words(bytes)}`, plot.left + 6, plot.top + 1); return; }
    const at = Math.round(y(bytes)) + 0.5;
    context.strokeStyle = theme.bad; context.lineWidth = 1.5; context.setLineDash([6, 4]);
    context.beginPath(); context.moveTo(plot.left, at); context.lineTo(plot.left + plot.width, at); context.stroke();
    context.setLineDash([]);
    context.fillText(`${name} ${words(bytes)}`, plot.left + 6, at - 2);
  }

  #marks(context, plot) {
    const { marks } = this.device.trace;
    const bottom = plot.top + plot.height;
    const first = lowerBound(marks, this.from), last = lowerBound(marks, this.to + 1);
    // A line for each where they can be told apart, ticks on the axis in any case.
    const sparse = last - first <= plot.width / 14;
    context.lineWidth = 1; context.setLineDash([]);
    context.strokeStyle = theme.soft;
    context.beginPath();
    let drawn = -9;
    for (let i = first; i < last; i++) {
      const at = Math.round(this.x(marks[i])) + 0.5;
      if (at - drawn < 2) continue;
      drawn = at;
      context.moveTo(at, bottom); context.lineTo(at, bottom + 5);
    }
    context.stroke();
    if (!sparse) return;
    context.strokeStyle = theme.ink; context.globalAlpha = 0.22; context.setLineDash([2, 3]);
    context.beginPath();
    for (let i = first; i < last; i++) { const at = Math.round(this.x(marks[i])) + 0.5; context.moveTo(at, plot.top); context.lineTo(at, bottom); }
    context.stroke();
    context.globalAlpha = 1; context.setLineDash([]);
  }

  #failures(context, plot) {
    const { refused, failure } = this.device.trace;
    context.strokeStyle = context.fillStyle = theme.bad; context.lineWidth = 1.5;
    const pin = (moment, size) => {
      const at = this.x(moment);
      context.beginPath(); context.moveTo(at, plot.top); context.lineTo(at - size, plot.top - 2 * size); context.lineTo(at + size, plot.top - 2 * size); context.fill();
      return at;
    };
    // A program may go on after a refusal: each has a pin, the one it ended with a line too.
    let drawn = -9;
    for (let i = lowerBound(refused, this.from); i < refused.length && refused[i] <= this.to; i++) {
      if (this.x(refused[i]) - drawn >= 3) drawn = pin(refused[i], 3);
    }
    const last = failure?.moment ?? refused.at(-1);
    if (!(last >= this.from && last <= this.to)) return;
    const at = pin(last, 5.5);
    context.beginPath(); context.moveTo(at, plot.top); context.lineTo(at, plot.top + plot.height); context.stroke();
  }

  #cursor(context, plot, moment, colour, dash, handle) {
    if (moment < this.from || moment > this.to) return;
    const at = Math.round(this.x(moment)) + 0.5;
    context.strokeStyle = context.fillStyle = colour; context.lineWidth = 1; context.setLineDash(dash);
    context.beginPath(); context.moveTo(at, plot.top); context.lineTo(at, plot.top + plot.height); context.stroke();
    context.setLineDash([]);
    if (handle) { context.beginPath(); context.arc(at, plot.top + plot.height, 4, 0, 7); context.fill(); }
  }

  #listen() {
    const { canvas } = this;
    const place = event => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      const around = this.from + (place(event) - this.plot.left) / this.plot.width * (this.to - this.from);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = event.deltaX / this.plot.width * (this.to - this.from);
        this.range(this.from + by, this.to + by);
      } else this.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), around);
    }, { passive: false });
    canvas.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = place(event); this.dragTo = undefined;
    });
    canvas.addEventListener('pointermove', event => {
      const x = place(event);
      if (this.drag !== null && Math.abs(x - this.drag) > 4) { this.dragTo = x; hideTip(); this.draw(); return; }
      if (this.drag !== null) return;
      this.hover = this.momentAt(x);
      this.draw();
      this.onHover(this.hover, event);
    });
    canvas.addEventListener('pointerup', event => {
      if (this.drag === null) return;
      const [start, stop] = [this.drag, this.dragTo];
      this.drag = null; this.dragTo = undefined;
      if (stop === undefined) this.onSelect(this.momentAt(place(event)));
      else this.range(this.moment(Math.min(start, stop)), this.moment(Math.max(start, stop)));
    });
    canvas.addEventListener('pointercancel', () => { this.drag = null; this.draw(); });
    canvas.addEventListener('dblclick', () => this.range(0, this.device.end));
    canvas.addEventListener('pointerleave', () => { this.hover = null; hideTip(); this.draw(); this.onHover(null); });
    canvas.addEventListener('keydown', event => {
      const step = event.shiftKey ? Math.max(1, Math.round((this.to - this.from) / 50)) : 1;
      const keys = {
        ArrowLeft: () => this.onSelect(Math.max(0, this.selected - step)),
        ArrowRight: () => this.onSelect(Math.min(this.device.end, this.selected + step)),
        Home: () => this.onSelect(0), End: () => this.onSelect(this.device.end),
        '+': () => this.zoom(0.5, this.selected), '=': () => this.zoom(0.5, this.selected),
        '-': () => this.zoom(2, this.selected), '0': () => this.range(0, this.device.end),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
}
