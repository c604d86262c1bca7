// Opens the pages of plans and runs in a headless Chromium and uses them as a person would.
// Usage: node check.mjs PLIMSOLL FOLDER [SCREENSHOTS]
// PLIMSOLL is the command, which makes the pages in FOLDER; $CHROMIUM names the browser, /usr/bin/chromium otherwise.
// playwright-core is that of the checks of plimsoll-explain's page.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from '../../../plimsoll-explain/tests/browser/node_modules/playwright-core/index.mjs';

const [command, folder, screenshots] = process.argv.slice(2);
if (!command || !folder) throw new Error('usage: node check.mjs PLIMSOLL FOLDER [SCREENSHOTS]');

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const say = text => process.stdout.write(`${text}\n`);
const plimsoll = (...words) => execFileSync(command, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });

// Opens a page and collects what must not happen: errors, and requests to anything but where it is from.
async function open(address, { width = 1400, colorScheme = 'light' } = {}) {
  const page = await browser.newPage({ viewport: { width, height: 1000 }, colorScheme });
  const wrong = [];
  page.on('console', message => { if (['error', 'warning'].includes(message.type())) wrong.push(`console: ${message.text()}`); });
  page.on('pageerror', error => wrong.push(`error: ${error.stack}`));
  page.on('dialog', dialog => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', request => {
    const from = new URL(request.url()), here = new URL(address);
    const own = here.protocol === 'file:' ? from.href === here.href : from.origin === here.origin;
    if (!own) wrong.push(`request: ${request.url()}`);
  });
  await page.goto(address);
  await page.waitForSelector('html[data-ready=true]');
  return { page, wrong };
}

const file = name => pathToFileURL(resolve(folder, name)).href;
const text = (page, id) => page.$eval(`#${id}`, element => element.textContent);
const pixels = (page, selector) => page.$eval(selector, canvas => canvas.toDataURL());
const number = title => Number(title.replaceAll(',', '').match(/\d+/)[0]);
const meta = page => page.$eval('#meta', element => JSON.parse(element.textContent));
const shoot = async (page, name) => {
  if (screenshots) await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
};

// Points at a share of a canvas's width and height, and brings it into view first.
async function point(page, selector, x, y) {
  const canvas = page.locator(selector).first();
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const place = [box.x + box.width * x, box.y + box.height * y];
  await page.mouse.move(...place, { steps: 3 });
  return place;
}

async function check(name, run) {
  try { await run(); } catch (error) { say(`not as it should be: ${name}`); throw error; }
  say(`ok: ${name}`);
}

const fitsNarrow = async (address, name) => {
  const { page, wrong } = await open(address, { width: 400 });
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(inner <= outer, `${inner} pixels in ${outer}`);
  await shoot(page, `${name}-narrow`);
  assert.deepEqual(wrong, []);
  await page.close();
};

async function checkPlan(page, plan, name) {
  await check(`${name}: the ledger at the peak is the plan's, and sums to the arena`, async () => {
    const rows = await page.$$eval('#ledger tbody tr', rows => rows.map(row => [row.cells[0].textContent, row.cells[1].title]));
    const shown = Object.fromEntries(rows.map(([name, title]) => [name, number(title)]));
    const expected = Object.fromEntries(Object.entries(plan.ledger).filter(([, bytes]) => bytes > 0));
    assert.deepEqual(shown, expected);
    assert.equal(Object.values(shown).reduce((a, b) => a + b), plan.peak_bytes);
    assert.match(await text(page, 'moment'), new RegExp(`^at the peak, while kernel ${plan.peak_position + 1} of`));
  });
  await check(`${name}: the largest are those that live at the peak`, async () => {
    const { bytes, lower, upper } = plan.buffers, at = plan.peak_position;
    const most = Math.max(...bytes.filter((_, i) => lower[i] <= at && at < upper[i]));
    const titles = await page.$$eval('#largest tbody tr', rows => rows.map(row => row.querySelector('.number').title));
    assert.equal(number(titles[0]), most);
    assert.ok(titles.length <= 10);
  });
  await check(`${name}: pointing at the arena tells what lies there`, async () => {
    const tips = [];
    for (let y = 0.05; y < 0.95; y += 0.02) {
      await point(page, '#plan-map', 0.5, y);
      tips.push(await text(page, 'tip'));
    }
    const told = tips.map(tip => tip.match(/: .*?\(?([\d,]+) (?:bytes\))?.*at offset ([\d,]+), from kernel ([\d,]+) to ([\d,]+)/)).find(Boolean);
    assert.ok(told, tips.join('\n'));
    const offset = number(told[2]), first = number(told[3]) - 1, { buffers } = plan;
    assert.ok(buffers.offset.some((at, i) => at === offset && buffers.lower[i] === first), tips.join('\n'));
  });
  await check(`${name}: a click and the keyboard choose kernels, P returns to the peak`, async () => {
    await page.mouse.click(...await point(page, '#plan-map', 0.3, 0.5));
    const clicked = await text(page, 'moment');
    assert.match(clicked, /^while kernel [\d,]+ of|^at the peak/);
    await page.focus('#plan-map');
    await page.keyboard.press('Home');
    assert.match(await text(page, 'moment'), /kernel 1 of/);
    await page.keyboard.press('ArrowRight');
    assert.match(await text(page, 'moment'), /kernel 2 of/);
    const live = Object.values(plan.live).reduce((sum, bytes) => sum + bytes[1], 0);
    const rows = await page.$$eval('#ledger tbody tr', rows => rows.map(row => [row.cells[0].textContent, row.cells[1].title]));
    assert.equal(rows.filter(([name]) => name !== 'free').reduce((sum, [, title]) => sum + number(title), 0), live);
    await page.keyboard.press('p');
    assert.match(await text(page, 'moment'), /^at the peak/);
  });
  await check(`${name}: live bytes and zooming draw another picture`, async () => {
    const seen = new Set([await pixels(page, '#plan-map')]);
    await page.check('#plan-view input[value=live]');
    seen.add(await pixels(page, '#plan-map'));
    await point(page, '#plan-map', 0.5, 0.5);
    assert.match(await text(page, 'tip'), /kernel .* live/);
    await page.click('#plan-in');
    seen.add(await pixels(page, '#plan-map'));
    assert.equal(seen.size, 3);
    await page.check('#plan-view input[value=addresses]');
    await page.click('#plan-whole');
  });
}

try {
  const hostile = '</script><img src=x onerror=window.broken=1>';
  plimsoll('plan', 'digits', '--html', join(folder, 'plan.html'));
  plimsoll('plan', 'gpt-small', '--budget', '120MiB', '--exact', '--html', join(folder, 'budget.html'));

  const { page, wrong } = await open(file('plan.html'));
  await shoot(page, 'plan');
  const { plan } = await meta(page);
  await check('plan: it is what the command says', () => assert.deepEqual(plan, JSON.parse(plimsoll('plan', 'digits', '--json'))));
  await checkPlan(page, plan, 'plan');
  assert.deepEqual(wrong, []);
  await check('plan: fits 400 pixels', () => fitsNarrow(file('plan.html'), 'plan'));

  const budget = await open(file('budget.html'), { colorScheme: 'dark' });
  await check('plan: remedies are marked, in the dark too', async () => {
    await shoot(budget.page, 'plan-budget-dark');
    const { plan } = await meta(budget.page);
    assert.ok(plan.remedies.length > 0 && plan.buffers.remedy.includes('recompute'));
    assert.match(await text(budget.page, 'plan-legend'), /made again/);
    assert.match(await text(budget.page, 'fitting'), /recompute/);
    assert.notEqual(await budget.page.evaluate(() => getComputedStyle(document.body).backgroundColor), await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    assert.deepEqual(budget.wrong, []);
  });
  await check('plan: twenty thousand buffers stay quick, and hostile names are text', async () => {
    const large = readFileSync(join(folder, 'plan.html'), 'utf8').replace(/(<script type="application\/json" id="meta">)(.*?)(<\/script>)/s, (_, before, json, after) => {
      const meta = JSON.parse(json), { kernels, buffers, live } = meta.plan, count = 10_000;
      for (const of of [kernels]) for (const name in of) of[name] = Array.from({ length: count }, (_, i) => of[name][i % of[name].length]);
      for (const name in live) live[name] = Array.from({ length: count }, (_, i) => live[name][i % live[name].length]);
      const had = buffers.name.length;
      for (const name in buffers) buffers[name] = Array.from({ length: 2 * count }, (_, i) => buffers[name][i % had]);
      buffers.lower = buffers.lower.map((_, i) => Math.floor(i / 2));
      buffers.upper = buffers.lower.map(lower => Math.min(count, lower + 40));
      buffers.name.fill(hostile); kernels.scope.fill(hostile);
      return before + JSON.stringify(meta).replaceAll('<', '\\u003c') + after;
    });
    writeFileSync(join(folder, 'large.html'), large);
    const { page, wrong } = await open(file('large.html'));
    const times = await page.evaluate(async () => {
      const canvas = document.getElementById('plan-map'), times = [];
      canvas.focus();
      for (let i = 0; i < 9; i++) {
        const start = performance.now();
        canvas.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        times.push(performance.now() - start);
      }
      return times.sort((a, b) => a - b);
    });
    await point(page, '#plan-map', 0.5, 0.5);
    assert.ok((await text(page, 'tip')).includes(hostile) && (await text(page, 'largest')).includes(hostile));
    assert.equal(await page.evaluate(() => window.broken), undefined);
    assert.equal(await page.locator('img').count(), 0);
    say(`   another kernel of 20,000 buffers is shown in ${times[4].toFixed(1)} ms`);
    assert.deepEqual(wrong, []);
  });

  // A run, live: it is ended when all was seen.
  const run = spawn(command, ['train', 'digits', '--steps', '1000000', '--serve', '127.0.0.1:0', '--out', join(folder, 'live')]);
  try {
    let said = '';
    const address = await new Promise((found, failed) => {
      run.stdout.on('data', piece => { said += piece; const url = said.match(/http:\S+/); if (url) found(url[0]); });
      run.on('exit', code => failed(new Error(`training ended with ${code}: ${said}`)));
    });
    const { page, wrong } = await open(address);
    await check('live: it shows training go on', async () => {
      await page.waitForFunction(() => /training/.test(document.getElementById('status').textContent));
      const steps = () => page.$eval('#progress-words', element => Number(element.textContent.replaceAll(',', '').match(/step (\d+)/)[1]));
      const before = await steps();
      await page.waitForFunction(before => Number(document.getElementById('progress-words').textContent.replaceAll(',', '').match(/step (\d+)/)[1]) > before, before);
      assert.match(await text(page, 'progress-words'), /of 1,000,000 after .* left$/);
      assert.match(await text(page, 'settings'), /batch32/);
      await shoot(page, 'live');
    });
    await check('live: pointing at the loss tells a step', async () => {
      await point(page, '#charts canvas', 0.5, 0.5);
      assert.match(await text(page, 'tip'), /^step [\d,]+training [\d.e-]+/);
    });
    await check('live: another host, method and path are refused', async () => {
      const status = (path, headers = {}, method = 'GET') => new Promise((done, failed) => {
        get(new URL(path, address), { headers, method }, answer => { answer.resume(); done(answer.statusCode); }).on('error', failed);
      });
      assert.equal(await status('/data?since=0'), 200);
      assert.equal(await status('/data?since=0', { host: 'evil.example' }), 403);
      assert.equal(await status('/data?since=0', { host: `evil.example:${new URL(address).port}` }), 403);
      assert.equal(await status('/data?since=-1'), 400);
      assert.equal(await status('/', {}, 'POST'), 405);
      assert.equal(await status('/etc/passwd'), 404);
    });
    await check('live: fits 400 pixels', () => fitsNarrow(address, 'live'));
    assert.deepEqual(wrong, []);
    await page.close();
  } finally {
    run.removeAllListeners('exit');
    run.kill();
  }

  plimsoll('train', 'digits', '--epochs', '6', '--out', join(folder, 'run'), '--log-every', '5');
  const saved = await open(file('run/page.html'));
  await shoot(saved.page, 'run');
  await check('run: the saved page has the report\'s numbers', async () => {
    const report = JSON.parse(readFileSync(join(folder, 'run/run.json'), 'utf8')), { data } = await meta(saved.page);
    assert.equal(await text(saved.page, 'status'), 'ended');
    assert.equal(data.loss, report.losses.at(-1));
    assert.deepEqual(data.points.map(point => point[1]), report.losses);
    const figures = await saved.page.$$eval('#figures div', list => Object.fromEntries(list.map(of => [of.children[0].textContent, of.children[1].textContent])));
    assert.equal(Number(figures.Loss), Number(data.loss.toPrecision(5)));
    assert.equal(Number(figures['Final accuracy']), Number(report.final_metrics.accuracy.toPrecision(5)));
    assert.match(await text(saved.page, 'memory-words'), new RegExp(`${report.arena_bytes.toLocaleString('en-US')} bytes`));
  });
  await checkPlan(saved.page, (await meta(saved.page)).plan, 'run');
  await check('run: fits 400 pixels, and follows a dark colour scheme', async () => {
    await fitsNarrow(file('run/page.html'), 'run');
    const dark = await open(file('run/page.html'), { colorScheme: 'dark' });
    await shoot(dark.page, 'run-dark');
    assert.deepEqual(dark.wrong, []);
  });
  await check('nothing was asked of the network and nothing went wrong', () => assert.deepEqual(saved.wrong, []));
} finally {
  await browser.close();
}
