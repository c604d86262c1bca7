// The page of a run: live from its server, or with its data inside.

const { plan } = meta, live = !meta.data;
const charts = new Map();
let points = [], data = null;

// A time in words, as exact as anybody wants it.
function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round(seconds % 3600 / 60)} min`;
}

function chart(title) {
  if (!charts.has(title)) charts.set(title, new Chart(element('charts'), title));
  return charts.get(title);
}

function status(kind, text) {
  element('status').className = kind;
  element('status').textContent = text;
}

// Takes in what is new. Points that the server has thinned go here too, so that both keep the same.
function take(next) {
  data = next;
  points = points.filter(([step]) => step % data.stride === 0);
  points.push(...data.points.filter(([step]) => !points.length || step > points.at(-1)[0]));
  show();
}

function show() {
  const words_ = { waiting: 'about to begin', training: 'training', ended: 'ended', stopped: 'stopped before its end' };
  status(data.status, `${words_[data.status] ?? data.status}${data.why ? `: ${data.why}` : ''}`);
  element('progress').value = data.steps ? data.step / data.steps : 0;
  const left = data.seconds_left === null ? '' : `, about ${duration(data.seconds_left)} left`;
  element('progress-words').textContent = `step ${grouped(data.step)} of ${grouped(data.steps)} after ${duration(data.seconds)}${left}`;
  const figures = element('figures');
  figures.replaceChildren();
  figure(figures, 'Loss', brief(data.loss));
  for (const [name, value] of Object.entries(data.metrics)) figure(figures, name, brief(value));
  for (const [name, value] of Object.entries(data.final_metrics)) figure(figures, `Final ${name}`, brief(value));
  figure(figures, 'Epoch', `${grouped(data.epoch)} of ${grouped(data.epochs)}`);
  figure(figures, 'Steps a second', brief(data.steps_per_second));
  figure(figures, 'Samples a second', brief(data.samples_per_second));
  if (data.saved) figure(figures, data.saved.best ? 'Best checkpoint' : 'Last checkpoint', `step ${grouped(data.saved.step)}`, data.saved.path);
  const column = name => {
    const at = 1 + data.columns.indexOf(name), now = name === 'loss' ? data.loss : data.metrics[name];
    const line = points.map(point => [point[0], point[at]]);
    if (at > 0 && Number.isFinite(now) && line.at(-1)?.[0] !== data.step) line.push([data.step, now]);
    return at > 0 ? line : [];
  };
  const held = name => data.validations.filter(([, metrics]) => name in metrics).map(([step, metrics]) => [step, metrics[name]]);
  const names = [...new Set(['loss', ...data.columns.slice(1, -1), ...data.validations.flatMap(([, metrics]) => Object.keys(metrics))])];
  for (const name of names) {
    chart(name === 'loss' ? 'Loss' : name).show([{ name: 'training', colour: 10, points: column(name) }, { name: 'held out', colour: 1, points: held(name), dots: true }]);
  }
  const speed = points.map(point => [point[0], point.at(-1)]).filter(([, value]) => value > 0);
  chart('Steps a second').show([{ name: 'steps a second', colour: 6, points: speed }]);
  if (data.memory) memory(data.memory);
}

function memory({ peak, arena_bytes: arena, host_bytes: host, budget_bytes: budget, process_bytes: process, grown_bytes: grown }) {
  const whole = Math.max(arena, budget ?? 0, 1);
  const parts = plan.categories.map(name => [name, peak[name]]).filter(([, bytes]) => bytes > 0);
  element('memory-bar').replaceChildren(...parts.map(([name, bytes]) => {
    const part = make('i', { class: `swatch-${plan.categories.indexOf(name)}`, title: `${name}: ${exact(bytes)}` });
    part.style.width = `${100 * bytes / whole}%`;
    return part;
  }));
  element('memory-bar').ariaLabel = `arena ${words(arena)}${budget ? ` of a budget of ${words(budget)}` : ''}`;
  element('memory-legend').replaceChildren(...parts.map(([name, bytes]) => keyed(`swatch-${plan.categories.indexOf(name)}`, `${name} ${words(bytes)}`)));
  const of = [`arena ${exact(arena)}${budget ? ` of a budget of ${words(budget)}` : ', no budget'}`];
  if (host) of.push(`host memory ${words(host)}`);
  if (process) of.push(`process ${words(process)}`);
  of.push(grown ? `grown by ${words(grown)} since the first step` : 'not grown since the first step');
  element('memory-words').textContent = of.join(' · ');
}

async function follow() {
  let wait = 1000;
  try {
    const answer = await fetch(`data?since=${points.at(-1)?.[0] ?? 0}`, { cache: 'no-store' });
    take(await answer.json());
    if (data.status === 'ended' || data.status === 'stopped') return;
  } catch {
    status('lost', 'cannot be reached: it may have ended');
    wait = 5000;
  }
  setTimeout(follow, wait);
}

element('remedies').textContent = plan.remedies.length ? `To fit: ${plan.remedies.map(remedy => remedy.words).join(', ')}.` : 'Nothing had to be done to fit.';
element('settings').tBodies[0].replaceChildren(...meta.settings.map(([name, value]) => make('tr', {}, make('th', { scope: 'row' }, name), make('td', {}, value))));
readTheme();
const map = new PlanMap(plan);
themed(() => { map.draw(); charts.forEach(chart => chart.draw()); });
if (live) await follow(); else take(meta.data);
document.documentElement.dataset.ready = 'true';
