// Words for numbers, colours, canvases and the tooltip.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

function words(bytes) {
  let unit = 0, value = bytes;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

const grouped = number => Math.round(number).toLocaleString('en-US');
const exact = bytes => bytes < 1024 ? `${bytes} B` : `${words(bytes)} (${grouped(bytes)} bytes)`;

function seconds(micros) {
  if (micros < 1e3) return `${micros} µs`;
  if (micros < 1e6) return `${(micros / 1e3).toFixed(2)} ms`;
  return `${(micros / 1e6).toFixed(3)} s`;
}

const element = id => document.getElementById(id);

// Builds an element; text is only ever text.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

let theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(`--${name}`).trim();
  theme = Object.fromEntries(['paper', 'panel', 'ink', 'soft', 'line', 'faint', 'accent', 'warn', 'bad', 'good', 'hole',
    'hatch', 'reserved', 'after', 'own', 'library', 'native', 'found'].map(name => [name, colour(name)]));
  theme.groups = Array.from({ length: 12 }, (_, i) => colour(`c${i}`));
}

// Fits a canvas to its place and returns its context, in CSS pixels.
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, sans-serif';
  return { context, width, height };
}

function hatch(context, back, line, rising) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const pen = tile.getContext('2d');
  pen.fillStyle = back; pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = line; pen.lineWidth = 1;
  pen.beginPath();
  for (const o of [-8, 0, 8]) {
    if (rising) { pen.moveTo(o - 1, 9); pen.lineTo(o + 9, -1); } else { pen.moveTo(o - 1, -1); pen.lineTo(o + 9, 9); }
  }
  pen.stroke();
  return context.createPattern(tile, 'repeat');
}

// Cuts a text to a width.
function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, mid) + '…').width <= width) low = mid; else high = mid - 1;
  }
  return low > 0 ? text.slice(0, low) + '…' : '';
}

const tip = element('tip');
function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const x = event.clientX + 16 + width > innerWidth ? event.clientX - 12 - width : event.clientX + 16;
  const y = event.clientY + 16 + height > innerHeight ? event.clientY - 12 - height : event.clientY + 16;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}
function hideTip() { tip.hidden = true; }
