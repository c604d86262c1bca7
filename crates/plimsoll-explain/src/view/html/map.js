// The address map: segments like words on lines, each as wide as its bytes, long ones going on in the next row.

const ROW = 22, GAP = 6;

class AddressMap {
  constructor(canvas, scroll, space) {
    Object.assign(this, { canvas, scroll, space, device: null, zoom: 1, highlight: null, pointed: null });
    scroll.addEventListener('scroll', () => this.draw());
    canvas.addEventListener('pointermove', event => this.#point(event));
    canvas.addEventListener('pointerleave', () => { this.pointed = null; hideTip(); this.draw(); });
    canvas.addEventListener('keydown', event => {
      if (event.key === '+' || event.key === '=') this.rescale(2);
      else if (event.key === '-') this.rescale(0.5);
    });
  }

  show(device, grouping, moment) {
    if (device !== this.device) this.zoom = 1;
    Object.assign(this, { device, grouping, moment, segments: device.segments(moment), pointed: null });
    this.#flow();
    this.draw();
  }

  recolour(grouping) { this.grouping = grouping; this.draw(); }

  rescale(factor) {
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), 4096);
    this.#flow();
    this.draw();
  }

  // Places every segment: cells of one row each, in order.
  #flow() {
    this.left = 132;
    const width = Math.max(50, this.canvas.clientWidth - this.left - 4);
    const total = this.segments.reduce((sum, segment) => sum + segment.bytes, 0);
    const rows = Math.min(Math.max(4, Math.ceil(this.segments.length / 12)), 14) * this.zoom;
    this.scale = Math.max(total / rows / width, 1 / 64); // bytes a pixel
    this.cells = []; // by row: segment, first byte, bytes, x, width
    let row = 0, x = 0;
    for (const segment of this.segments) {
      let from = 0;
      if (x > 0 && x + Math.min(segment.bytes / this.scale, width / 3) > width) { row++; x = 0; }
      do {
        const room = (width - x) * this.scale;
        const bytes = Math.min(segment.bytes - from, room);
        const wide = Math.max(bytes / this.scale, 3);
        (this.cells[row] ??= []).push({ segment, from, bytes, x: this.left + x, wide });
        from += bytes;
        x += wide + 3;
        if (x >= width - 2) { row++; x = 0; }
      } while (from < segment.bytes && this.cells.length < 100000);
    }
    this.space.style.height = `${Math.max(1, this.cells.length) * (ROW + GAP)}px`;
  }

  draw() {
    if (!this.segments) return;
    const height = Math.min(520, Math.max(1, this.cells.length) * (ROW + GAP));
    const { context } = fit(this.canvas, height);
    const free = hatch(context, theme.hole, theme.hatch, false);
    this.pendingPattern = hatch(context, theme.soft, theme.hole, true);
    const first = Math.floor(this.scroll.scrollTop / (ROW + GAP)), last = Math.min(this.cells.length - 1, first + Math.ceil(height / (ROW + GAP)));
    context.textBaseline = 'middle';
    for (let row = first; row <= last; row++) {
      const y = row * (ROW + GAP) - this.scroll.scrollTop + 1;
      context.fillStyle = theme.soft; context.textAlign = 'right';
      const head = this.cells[row][0];
      context.font = '11px ui-monospace, Menlo, Consolas, monospace';
      context.fillText(this.#hex(head.segment.address + head.from), this.left - 10, y + ROW / 2);
      for (const cell of this.cells[row]) this.#cell(context, cell, y, free);
    }
    this.canvas.setAttribute('aria-label', `${this.segments.length} segments at event ${grouped(this.moment)}`);
  }

  #cell(context, { segment, from, bytes, x, wide }, y, free) {
    context.fillStyle = free;
    context.fillRect(x, y, wide, ROW);
    const start = segment.address + from, end = start + bytes, scale = wide / bytes;
    const { pieces } = segment;
    for (let i = this.#pieceAfter(pieces, start); i < pieces.length && pieces[i].address < end; i++) {
      const piece = pieces[i], group = this.device.groupOf(this.grouping, piece);
      const a = x + (Math.max(piece.address, start) - start) * scale, b = x + (Math.min(piece.address + piece.bytes, end) - start) * scale;
      context.globalAlpha = this.highlight !== null && this.highlight !== group ? 0.2 : 1;
      context.fillStyle = piece.state === PENDING ? this.pendingPattern : theme.groups[group % 12];
      context.fillRect(a, y, b - a, ROW);
      if (b - a > 5) { context.globalAlpha = 1; context.fillStyle = theme.panel; context.fillRect(b - 1, y, 1, ROW); }
      if (piece === this.pointed) { context.globalAlpha = 1; context.strokeStyle = theme.ink; context.lineWidth = 2; context.strokeRect(a, y, Math.max(2, b - a), ROW); }
    }
    context.globalAlpha = 1;
    context.strokeStyle = segment.recorded ? theme.soft : theme.line; context.lineWidth = 1;
    context.strokeRect(x - 0.5, y - 0.5, wide + 1, ROW + 1);
  }

  // The first piece that ends after an address.
  #pieceAfter(pieces, address) {
    let low = 0, high = pieces.length;
    while (low < high) { const mid = (low + high) >> 1; if (pieces[mid].address + pieces[mid].bytes <= address) low = mid + 1; else high = mid; }
    return low;
  }

  #hex(address) { return '0x' + (BigInt('0x' + this.device.base) + BigInt(Math.floor(address))).toString(16); }

  #point(event) {
    if (!this.segments) return;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top + this.scroll.scrollTop;
    const cell = y % (ROW + GAP) <= ROW + 1 && this.cells[Math.floor(y / (ROW + GAP))]?.find(c => x >= c.x - 1 && x <= c.x + c.wide + 1);
    const before = this.pointed;
    if (!cell) { this.pointed = null; hideTip(); if (before) this.draw(); return; }
    const { segment } = cell, { pieces } = segment;
    const address = segment.address + cell.from + Math.min(Math.max((x - cell.x) / cell.wide * cell.bytes, 0), cell.bytes - 1);
    // The pointed piece, or one that the pixel touches.
    const pixel = cell.bytes / cell.wide;
    let i = this.#pieceAfter(pieces, address - pixel / 2);
    const piece = pieces[i]?.address <= address + pixel / 2 ? pieces[i] : null;
    this.pointed = piece;
    if (before !== piece) this.draw();
    const where = `in a segment of ${exact(segment.bytes)}${segment.class ? `, ${segment.class}` : ''}${segment.stream ? `, stream ${segment.stream}` : ''}`;
    if (piece) {
      const rounding = piece.bytes > piece.requested ? `, with rounding ${grouped(piece.bytes)}` : '';
      const since = piece.request === undefined ? '' : `since event ${grouped(this.device.trace.born[piece.request])} `;
      showTip(event, make('b', {}, exact(piece.requested) + rounding), make('div', {}, this.device.site(piece.owner)),
        make('div', {}, `${piece.state === PENDING ? 'freed, still used by work in flight; ' : ''}${since}at ${this.#hex(piece.address)}`),
        make('div', {}, where), stackLines(this.device, piece.owner));
      return;
    }
    i = this.#pieceAfter(pieces, address);
    const from = i > 0 ? pieces[i - 1].address + pieces[i - 1].bytes : segment.address;
    const to = pieces[i]?.address ?? segment.address + segment.bytes;
    showTip(event, make('b', {}, `${segment.recorded ? 'free' : 'not in use'}: ${exact(to - from)}`), make('div', {}, `at ${this.#hex(from)}`), make('div', {}, where));
  }

  // Groups that are on the map, with their bytes, most first.
  groups() {
    const sums = new Map();
    for (const { pieces } of this.segments) {
      for (const piece of pieces) {
        if (piece.state !== LIVE) continue;
        const group = this.device.groupOf(this.grouping, piece);
        sums.set(group, (sums.get(group) ?? 0) + piece.bytes);
      }
    }
    return [...sums].sort((a, b) => b[1] - a[1]);
  }

  // Holes: how many, their bytes and the largest. What a segment has that nothing in it holds is free.
  holes() {
    let count = 0, bytes = 0, largest = 0;
    const hole = size => { if (size > 0) { count++; bytes += size; largest = Math.max(largest, size); } };
    for (const segment of this.segments) {
      let end = segment.address;
      for (const piece of segment.pieces) { hole(piece.address - end); end = Math.max(end, piece.address + piece.bytes); }
      hole(segment.address + segment.bytes - end);
    }
    return { count, bytes, largest };
  }
}
