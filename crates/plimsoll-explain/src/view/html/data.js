// What was recorded: columns of numbers, and what can be asked of them.
// Moment n is after n events. Addresses count from the lowest one recorded.

const NEVER = 0xffffffff;
const LIVE = 0, PENDING = 1, FREE = 2;

const meta = JSON.parse(document.getElementById('meta').textContent);
const blob = await inflate(document.getElementById('blob').textContent);

async function inflate(text) {
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

function column([type, offset, count]) {
  const kind = { f64: Float64Array, u32: Uint32Array, u8: Uint8Array }[type];
  return new kind(blob, offset, count);
}

// Replaces every column's place in a description by the column itself.
function columns(value) {
  if (Array.isArray(value)) {
    return value.length === 3 && ['f64', 'u32', 'u8'].includes(value[0]) && typeof value[1] === 'number'
      ? column(value) : value;
  }
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, columns(inner)]));
}

class Device {
  constructor(described) {
    Object.assign(this, columns(described));
    this.advice = described.advice.map(columns);
    this.layouts = described.layouts.map(columns);
    this.end = this.trace ? this.trace.moments : 0;
    this.groupings = this.#groupings();
    if (this.trace) this.#index();
  }

  // The ways to group: a name, the groups' names, their order in a stack, and the group of each owner or request.
  #groupings() {
    const { categories, categoriesStacked, categoryOf, sites, sitesStacked, siteOf, siteGroup } = this.groups;
    const all = [
      { name: 'call site', names: sites, stacked: sitesStacked, ofOwner: owner => siteGroup[siteOf[owner]] ?? 0 },
      { name: 'category', names: categories, stacked: categoriesStacked, ofOwner: owner => categoryOf[owner] ?? 0 },
    ];
    if (this.trace) {
      const { born, died } = this.trace;
      const group = i => died[i] !== NEVER ? 2 : born[i] === 0 ? 0 : 1;
      all.push({ name: 'lifetime', names: ['held throughout', 'kept to the end', 'freed again'], stacked: [0, 1, 2], ofRequest: group });
    }
    for (const grouping of this.trace ? all : []) {
      const group = grouping.ofRequest ?? (i => grouping.ofOwner(this.trace.owner[i]));
      grouping.of = Uint8Array.from(this.trace.owner, (_, i) => group(i));
    }
    return all;
  }

  #index() {
    const { born, died, address, ranges, bytes } = this.trace;
    // What each event did: request i came (i + 1) or went (-i - 1).
    this.change = new Int32Array(this.end + 1);
    for (let i = 0; i < born.length; i++) {
      if (born[i] > 0) this.change[born[i]] = i + 1;
      if (died[i] !== NEVER) this.change[died[i]] = -i - 1;
    }
    const located = [];
    for (let i = 0; i < address.length; i++) if (address[i] > 0 && bytes[i] > 0) located.push(i);
    this.byAddress = Uint32Array.from(located.sort((a, b) => address[a] - address[b]));
    // Reserved bytes: moments at which they changed, and how many there were from then on.
    if (this.trace.rangesRecorded) {
      const steps = [];
      for (let i = 0; i < ranges.born.length; i++) {
        steps.push([ranges.born[i], ranges.bytes[i]]);
        if (ranges.died[i] !== NEVER) steps.push([ranges.died[i], -ranges.bytes[i]]);
      }
      steps.sort((a, b) => a[0] - b[0]);
      this.reserved = { moment: [0], bytes: [0] };
      let held = 0;
      for (const [moment, bytes] of steps) {
        held += bytes;
        const last = this.reserved.moment.length - 1;
        if (this.reserved.moment[last] === moment) this.reserved.bytes[last] = held;
        else { this.reserved.moment.push(moment); this.reserved.bytes.push(held); }
      }
    }
    for (const grouping of this.groupings) grouping.points = this.#points(grouping);
  }

  // Sums by group every few thousand moments, so that none is far from a known one.
  #points(grouping) {
    const every = 4096, size = grouping.names.length;
    const points = new Float64Array((Math.floor(this.end / every) + 1) * size);
    const sums = new Float64Array(size);
    const { born, bytes } = this.trace;
    for (let i = 0; i < born.length; i++) if (born[i] === 0) sums[grouping.of[i]] += bytes[i];
    for (let m = 0; m <= this.end; m++) {
      this.#apply(grouping, m, sums);
      if (m % every === 0) points.set(sums, m / every * size);
    }
    return { every, points };
  }

  #apply(grouping, moment, sums) {
    const change = this.change[moment];
    if (change > 0) sums[grouping.of[change - 1]] += this.trace.bytes[change - 1];
    else if (change < 0) sums[grouping.of[-change - 1]] -= this.trace.bytes[-change - 1];
  }

  // Live bytes by group at a moment.
  sums(grouping, moment) {
    const { every, points } = grouping.points, size = grouping.names.length;
    const from = Math.floor(moment / every);
    const sums = points.slice(from * size, (from + 1) * size);
    for (let m = from * every + 1; m <= moment; m++) this.#apply(grouping, m, sums);
    return sums;
  }

  // Stacks for a drawing: for each of `count` columns between two moments, the highest stack within it.
  stacks(grouping, from, to, count) {
    const size = grouping.names.length, stacks = new Float64Array(count * size), totals = new Float64Array(count);
    let moment = Math.max(0, Math.floor(from));
    const sums = this.sums(grouping, moment);
    let total = sums.reduce((a, b) => a + b, 0);
    for (let c = 0; c < count; c++) {
      const last = Math.min(this.end, Math.floor(from + (to - from) * (c + 1) / count));
      stacks.set(sums, c * size);
      totals[c] = total;
      while (moment < last) {
        moment++;
        const change = this.change[moment];
        if (change === 0) continue;
        const i = Math.abs(change) - 1, bytes = change > 0 ? this.trace.bytes[i] : -this.trace.bytes[i];
        sums[grouping.of[i]] += bytes;
        total += bytes;
        if (total > totals[c]) { totals[c] = total; stacks.set(sums, c * size); }
      }
    }
    return { stacks, totals };
  }

  reservedAt(moment) { return this.reserved ? at(this.reserved, moment, this.reserved.bytes) : null; }

  // Bytes and pieces by owner at a moment: a map from owner to [bytes, pieces].
  held(moment) {
    const held = new Map();
    const add = (owner, bytes, count) => {
      const known = held.get(owner);
      if (known) { known[0] += bytes; known[1] += count; } else held.set(owner, [bytes, count]);
    };
    if (this.trace) {
      const { born, died, bytes, owner } = this.trace;
      for (let i = 0; i < born.length; i++) if (born[i] <= moment && moment < died[i]) add(owner[i], bytes[i], 1);
    } else if (this.layouts.length) {
      const { bytes, owner, state } = this.layouts[0].pieces;
      for (let i = 0; i < bytes.length; i++) if (state[i] !== FREE) add(owner[i], bytes[i], 1);
    } else if (this.byOwner) {
      const { owner, bytes, count } = this.byOwner;
      for (let i = 0; i < owner.length; i++) add(owner[i], bytes[i], count[i]);
    }
    return held;
  }

  // What lay where: segments in order of address, each with what is held in it; the rest of each is free.
  segments(moment) {
    const layout = this.layoutAt(moment);
    if (layout) return this.#segmentsOf(layout);
    const { ranges, born, died, address, bytes, owner, rangesJoin, rangesRecorded } = this.trace;
    const segments = [];
    for (let i = 0; i < ranges.born.length; i++) {
      if (ranges.born[i] > moment || moment >= ranges.died[i]) continue;
      const last = segments.at(-1);
      if (rangesJoin && last && last.address + last.bytes === ranges.address[i]) last.bytes += ranges.bytes[i];
      else segments.push({ address: ranges.address[i], bytes: ranges.bytes[i], pieces: [], recorded: rangesRecorded });
    }
    const found = [];
    let s = 0;
    for (const i of this.byAddress) {
      if (born[i] > moment || moment >= died[i]) continue;
      const start = address[i] - 1;
      while (s < segments.length && segments[s].address + segments[s].bytes <= start) s++;
      let segment = s < segments.length && segments[s].address <= start ? segments[s] : found.at(-1);
      if (!segment || segment.address > start || segment.address + segment.bytes < start) {
        // Held, though no segment was recorded there.
        segment = { address: start, bytes: 0, pieces: [], recorded: false };
        found.push(segment);
      }
      const known = segments[s] === segment;
      const rounded = Math.ceil(bytes[i] / this.granule) * this.granule;
      if (!known) segment.bytes = Math.max(segment.bytes, start + rounded - segment.address);
      const room = segment.address + segment.bytes - start;
      const piece = { address: start, bytes: Math.min(rounded, room), requested: bytes[i], owner: owner[i], state: LIVE, request: i };
      segment.pieces.push(piece);
    }
    return found.length ? segments.concat(found).sort((a, b) => a.address - b.address) : segments;
  }

  // The layout that is known of a moment: of the one explained, and of the end.
  layoutAt(moment) { return this.layouts.find(layout => layout.moment === moment); }

  #segmentsOf({ moment, segments, pieces }) {
    const requests = new Map();
    if (this.trace) {
      const { born, died, address } = this.trace;
      for (let i = 0; i < born.length; i++) if (born[i] <= moment && moment < died[i] && address[i] > 0) requests.set(address[i] - 1, i);
    }
    const classes = ['small requests', 'large requests', '', 'expandable'];
    let p = 0;
    return Array.from(segments.address, (address, s) => {
      const segment = { address, bytes: segments.bytes[s], stream: segments.stream[s], class: classes[segments.class[s]], recorded: true, pieces: [] };
      for (const stop = p + segments.pieces[s]; p < stop; p++) {
        if (pieces.state[p] === FREE) continue;
        const { address, bytes, requested, owner, state } = pieces;
        segment.pieces.push({ address: address[p], bytes: bytes[p], requested: requested[p], owner: owner[p], state: state[p], request: requests.get(address[p]) });
      }
      return segment;
    });
  }

  // The group of a piece, for its colour.
  groupOf(grouping, piece) {
    if (!grouping.ofRequest) return grouping.ofOwner(piece.owner);
    return piece.request === undefined ? 1 : grouping.of[piece.request];
  }

  // The figures that were explained, if this is the moment they are of.
  explainedAt(moment) { return this.explained?.moment === moment ? this.explained : null; }

  // The frames of an owner, innermost first: [name, file, line, whose].
  stack(owner) {
    const frames = [];
    const { parent, frame, frames: known } = this.owners;
    for (let at = owner; at > 0 && at <= parent.length && frames.length < 512; at = parent[at - 1]) frames.push(known[frame[at - 1]]);
    return frames;
  }

  site(owner) { return this.groups.siteNames[this.groups.siteOf[owner]] ?? '(no stack was recorded)'; }

  // The time of a moment in microseconds since the first event; null where times were not recorded.
  time(moment) { return this.trace?.times && moment > 0 ? this.trace.times[moment - 1] : null; }
}

// The entry of `values` that holds at a moment, where entry i holds from steps.moment[i] on.
function at(steps, moment, values) {
  let low = 0, high = steps.moment.length;
  while (low < high) { const mid = (low + high) >> 1; if (steps.moment[mid] <= moment) low = mid + 1; else high = mid; }
  return low === 0 ? 0 : values[low - 1];
}

// The first index from which a sorted column is not below a value.
function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) { const mid = (low + high) >> 1; if (sorted[mid] < value) low = mid + 1; else high = mid; }
  return low;
}
