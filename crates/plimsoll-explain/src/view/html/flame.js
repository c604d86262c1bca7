// The flame graph: live bytes by call stack, each frame within its caller.

const BAR = 20;

class FlameGraph {
  constructor(canvas, { onZoom, onFound }) {
    Object.assign(this, { canvas, onZoom, onFound, device: null, root: null, focus: null, search: '', bars: [] });
    canvas.addEventListener('pointermove', event => {
      const bar = this.#at(event);
      if (!bar) { hideTip(); return; }
      const { node } = bar, share = (100 * node.bytes / Math.max(1, this.root.bytes)).toFixed(1);
      showTip(event, make('b', {}, node.name), make('div', {}, node.place),
        make('div', {}, `${exact(node.bytes)}, ${share} % of live bytes, in ${grouped(node.count)} ${node.count === 1 ? 'allocation' : 'allocations'}`));
    });
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('click', event => {
      const bar = this.#at(event);
      if (bar) this.zoom(bar.node === this.focus ? bar.node.parent ?? this.root : bar.node);
    });
    canvas.addEventListener('keydown', event => {
      const { focus } = this;
      const keys = {
        Escape: () => this.zoom(this.root),
        ArrowUp: () => this.zoom(focus.parent ?? this.root),
        ArrowDown: () => this.zoom(focus.kids[0] ?? focus),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // Builds the graph of a moment, of frames of the user's code (0), of libraries too (1), of all (2).
  show(device, moment, depth) {
    this.device = device;
    const root = { name: 'all live bytes', place: '', whose: 1, bytes: 0, count: 0, kids: new Map(), parent: null };
    for (const [owner, [bytes, count]] of device.held(moment)) {
      let path = device.stack(owner).filter(frame => frame[3] <= depth).reverse();
      if (!path.length) path = [[device.site(owner), '', 0, 2]];
      let node = root;
      node.bytes += bytes; node.count += count;
      for (const frame of path.slice(0, 256)) {
        const [name, file, line, whose] = frame, key = `${name}\n${file}\n${line}`;
        let kid = node.kids.get(key);
        if (!kid) {
          const short = file && file !== '??' ? `${file.split(/[\\/]/).pop()}${line ? `:${line}` : ''}` : '';
          kid = { name: name || short || '?', short: name && short ? short : '', place: file ? `${file}${line ? `:${line}` : ''}` : '', whose, bytes: 0, count: 0, kids: new Map(), parent: node };
          node.kids.set(key, kid);
        }
        kid.bytes += bytes; kid.count += count;
        node = kid;
      }
    }
    const waiting = [root];
    let node;
    while ((node = waiting.pop())) {
      node.kids = [...node.kids.values()].sort((a, b) => b.bytes - a.bytes);
      waiting.push(...node.kids);
    }
    this.root = root;
    this.zoom(root);
  }

  find(text) { this.search = text.trim().toLowerCase(); this.draw(); }

  zoom(node) { this.focus = node; this.onZoom(node !== this.root); this.draw(); }

  #found(node) {
    return this.search !== '' && (node.name.toLowerCase().includes(this.search) || node.place.toLowerCase().includes(this.search));
  }

  draw() {
    if (!this.root) return;
    this.bars = [];
    const width = this.canvas.clientWidth, above = [];
    for (let node = this.focus.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, row) => this.bars.push({ node, row, x: 0, wide: width, faded: true }));
    const waiting = [{ node: this.focus, row: above.length, x: 0, wide: width }];
    let bar, rows = above.length + 1;
    while ((bar = waiting.pop())) {
      this.bars.push(bar);
      rows = Math.max(rows, bar.row + 1);
      let { x } = bar;
      for (const node of bar.node.kids) {
        const wide = bar.wide * node.bytes / Math.max(1, bar.node.bytes);
        if (wide < 0.7) break; // the others are no wider
        waiting.push({ node, row: bar.row + 1, x, wide });
        x += wide;
      }
    }
    const { context } = fit(this.canvas, rows * BAR + 2);
    context.textBaseline = 'middle'; context.textAlign = 'left';
    for (const { node, row, x, wide, faded } of this.bars) {
      context.globalAlpha = faded ? 0.5 : 1;
      context.fillStyle = this.#found(node) ? theme.found : [theme.own, theme.library, theme.native][node.whose];
      context.fillRect(x, row * BAR, Math.max(0.5, wide - 1), BAR - 1);
      if (wide < 34) continue;
      context.globalAlpha = 1;
      context.fillStyle = this.#found(node) ? theme.panel : theme.ink;
      const text = node.short ? `${node.name}  ${node.short}` : node.name, amount = words(node.bytes);
      const room = wide - 12, both = context.measureText(text).width + context.measureText(amount).width + 16;
      context.fillText(clipped(context, text, room), x + 6, row * BAR + BAR / 2);
      if (both > room) continue;
      context.textAlign = 'right'; context.fillText(amount, x + wide - 8, row * BAR + BAR / 2); context.textAlign = 'left';
    }
    context.globalAlpha = 1;
    this.canvas.setAttribute('aria-label', `Flame graph of ${words(this.root.bytes)} by call stack; looking at ${this.focus.name}, ${words(this.focus.bytes)}`);
    this.onFound(this.#sumFound());
  }

  // Bytes under what was searched for, none counted twice; null where nothing is searched for.
  #sumFound() {
    if (!this.search) return null;
    let bytes = 0;
    const waiting = [this.root];
    let node;
    while ((node = waiting.pop())) { if (this.#found(node)) bytes += node.bytes; else waiting.push(...node.kids); }
    return bytes;
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, row = Math.floor((event.clientY - box.top) / BAR);
    return this.bars.find(bar => bar.row === row && x >= bar.x && x < bar.x + bar.wide);
  }
}
