// Opens pages in a headless Chromium and uses them as a person would.
// Usage: node check.mjs PAGE LARGE_PAGE [SCREENSHOTS]
// The pages are those of the example `page`; $CHROMIUM names the browser, /usr/bin/chromium otherwise.

import assert from 'node:assert/strict';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const [page1, page2, screenshots] = process.argv.slice(2);
if (!page1 || !page2) throw new Error('usage: node check.mjs PAGE LARGE_PAGE [SCREENSHOTS]');

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const say = text => process.stdout.write(`${text}\n`);

// Opens a page and collects what must not happen: errors, and requests to anything but the page.
async function open(path, colorScheme = 'light') {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, colorScheme });
  const wrong = [], address = pathToFileURL(resolve(path)).href;
  page.on('console', message => { if (['error', 'warning'].includes(message.type())) wrong.push(`console: ${message.text()}`); });
  page.on('pageerror', error => wrong.push(`error: ${error.stack}`));
  page.on('request', request => { if (request.url() !== address) wrong.push(`request: ${request.url()}`); });
  page.on('dialog', dialog => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(address);
  await page.waitForSelector('html[data-ready=true]');
  return { page, wrong };
}

const pixels = (page, id) => page.$eval(`#${id}`, canvas => canvas.toDataURL());
const text = (page, id) => page.$eval(`#${id}`, element => element.textContent);
const shown = (page, id) => page.$eval(`#${id}`, element => element.checkVisibility());

// Points at a share of a canvas's width and height (above 1: at pixels of it), and brings it into view first.
async function point(page, id, x, y) {
  const canvas = page.locator(`#${id}`);
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const place = [box.x + box.width * x, box.y + (y > 1 ? y : box.height * y)];
  await page.mouse.move(...place, { steps: 3 });
  return place;
}

async function check(name, run) {
  try { await run(); } catch (error) { say(`not as it should be: ${name}`); throw error; }
  say(`ok: ${name}`);
}

try {
  const { page, wrong } = await open(page1);
  const shoot = async (name, from = page) => {
    if (screenshots) await from.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
  };
  await shoot('light');

  await check('the page opens at the moment that was explained, and says which', async () => {
    const label = await page.locator('section.device:not([hidden]) p.moment b').textContent();
    assert.match(label, /^at the refusal \(event \d+\)$/);
    assert.ok((await text(page, 'moment')).startsWith(label));
  });
  await check('a click on the timeline chooses a moment and the address map is drawn again', async () => {
    const [before, words] = [await pixels(page, 'map'), await text(page, 'moment')];
    await page.mouse.click(...await point(page, 'timeline', 0.3, 0.5));
    assert.notEqual(await text(page, 'moment'), words);
    assert.match(await text(page, 'moment'), /after event [\d,]+ of [\d,]+.* live · .* reserved · .* holes?, the largest/);
    assert.notEqual(await pixels(page, 'map'), before);
  });
  await check('at the peak the groups sum to the most that was live', async () => {
    await page.click('#jumps button:text-is("peak")');
    const bytes = title => Number(title.replaceAll(',', '').match(/\d+/)[0]);
    const titles = await page.$$eval('#legend tr.group td.number', cells => cells.map(cell => cell.title));
    const most = await page.locator('section.device:not([hidden]) dl div:has-text("Most in use") span').getAttribute('title');
    assert.equal(titles.map(bytes).reduce((a, b) => a + b), bytes(most));
  });
  await check('pointing at the timeline tells the moment', async () => {
    await point(page, 'timeline', 0.6, 0.4);
    assert.match(await text(page, 'tip'), /after event [\d,]+.*live .*bytes.*reserved/);
  });
  await check('pointing at the map tells pieces with their stack, and holes', async () => {
    const tips = [];
    for (let x = 0.12; x < 0.6; x += 0.01) {
      await point(page, 'map', x, 40);
      if (await shown(page, 'tip')) tips.push(await text(page, 'tip'));
    }
    assert.ok(tips.some(tip => /since event .* at 0x[0-9a-f]+.*in a segment of .*model\.py/.test(tip)), tips.join('\n'));
    assert.ok(tips.some(tip => /^free: .*at 0x/.test(tip)), tips.join('\n'));
  });
  await check('the wheel zooms the timeline, a drag too, a double click shows the whole', async () => {
    const whole = await page.getAttribute('#timeline', 'aria-label');
    await point(page, 'timeline', 0.5, 0.5);
    await page.mouse.wheel(0, -400);
    await page.waitForFunction(label => document.getElementById('timeline').ariaLabel !== label, whole);
    const zoomed = await page.getAttribute('#timeline', 'aria-label');
    await page.mouse.move(...await point(page, 'timeline', 0.4, 0.5));
    await page.mouse.down();
    await point(page, 'timeline', 0.6, 0.5);
    await page.mouse.up();
    assert.notEqual(await page.getAttribute('#timeline', 'aria-label'), zoomed);
    await shoot('zoomed');
    await page.mouse.dblclick(...await point(page, 'timeline', 0.5, 0.5));
    assert.match(await page.getAttribute('#timeline', 'aria-label'), /from event 0 to/);
  });
  await check('the keyboard moves the chosen moment', async () => {
    await page.focus('#timeline');
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.match(await text(page, 'moment'), /after event 2 of/);
    await page.keyboard.press('End');
  });
  await check('the stack can be by call site, category and lifetime', async () => {
    const seen = new Set();
    for (const [value, expected] of [['1', /optimizer|forward pass/], ['2', /freed again/], ['0', /train\.py:47 remember/]]) {
      await page.check(`#grouping input[value="${value}"]`);
      assert.match(await text(page, 'legend'), expected);
      seen.add(await pixels(page, 'timeline'));
    }
    assert.equal(seen.size, 3);
  });
  await check('an advice is drawn over the timeline, and taken off again', async () => {
    const before = await pixels(page, 'timeline');
    const button = page.locator('section.device:not([hidden]) button.overlay').first();
    await button.click();
    assert.match(await text(page, 'legend'), /reserved with: PYTORCH_CUDA_ALLOC_CONF/);
    const compared = await pixels(page, 'timeline');
    await shoot('compared');
    await button.click();
    assert.notEqual(compared, before);
    assert.doesNotMatch(await text(page, 'legend'), /reserved with/);
  });
  await check('the flame graph is searched, looked into and left', async () => {
    await page.fill('#flame-search', 'remember');
    assert.match(await text(page, 'flame-found'), /GiB found, [\d.]+ %/);
    const whole = await page.getAttribute('#flame', 'aria-label');
    await page.mouse.click(...await point(page, 'flame', 0.2, 0.5));
    assert.notEqual(await page.getAttribute('#flame', 'aria-label'), whole);
    assert.ok(await shown(page, 'flame-out'));
    await page.focus('#flame');
    await page.keyboard.press('Escape');
    assert.equal(await page.getAttribute('#flame', 'aria-label'), whole);
    await page.check('#flame-when input[value="peak"]');
    assert.notEqual(await page.getAttribute('#flame', 'aria-label'), whole);
    await page.fill('#flame-search', '');
  });
  await check('other devices show what was recorded of them, and say what was not', async () => {
    await page.selectOption('#device', '1');
    assert.ok(!await shown(page, 'timeline'));
    assert.match(await text(page, 'timeline-absent'), /there is no timeline/);
    assert.ok(await shown(page, 'map') && await shown(page, 'flame'));
    assert.match(await text(page, 'map-legend'), /train\.py:47 remember .*GiB/);
    await shoot('layout-only');
    await page.selectOption('#device', '2');
    assert.ok(!await shown(page, 'map') && await shown(page, 'flame'));
    await page.selectOption('#device', '3');
    assert.ok(!await shown(page, 'map') && !await shown(page, 'flame'));
    assert.match(await text(page, 'timeline-absent'), /a few totals only/);
    await page.selectOption('#device', '4');
    assert.ok(await shown(page, 'timeline') && !await shown(page, 'map') && await shown(page, 'flame'));
    assert.match(await text(page, 'map-absent'), /Addresses were not recorded/);
    await page.selectOption('#device', '0');
    assert.ok(await shown(page, 'timeline') && await shown(page, 'map'));
  });
  await check('hostile names are shown as text and do nothing', async () => {
    assert.equal(await page.evaluate(() => window.broken), undefined);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.locator('script').count(), 3);
    assert.ok((await page.textContent('.files')).includes('</script><img'));
    await page.fill('#flame-search', '</script><img');
    assert.match(await text(page, 'flame-found'), /found/);
  });
  await check('the fix stands above the tables, and a button copies it', async () => {
    const top = async selector => (await page.locator(`section.device:not([hidden]) ${selector}`).first().boundingBox()).y;
    assert.ok(await top('.fix') < await top('.advice') && await top('.advice') < await top('.books'));
    await page.click('section.device:not([hidden]) .fix button.copy');
    await page.waitForSelector('section.device:not([hidden]) .fix button.copy:text-is("copied")');
  });
  await check('at 400 pixels nothing is wider than the page', async () => {
    await page.setViewportSize({ width: 400, height: 800 });
    const widths = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(widths[0] <= widths[1], `${widths[0]} of ${widths[1]} pixels`);
    await shoot('narrow');
    await page.setViewportSize({ width: 1400, height: 1000 });
  });
  await check('nothing was asked of the network and nothing went wrong', () => assert.deepEqual(wrong, []));

  const dark = await open(page1, 'dark');
  await check('the page follows a dark colour scheme', async () => {
    const paper = await dark.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.notEqual(paper, await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await shoot('dark', dark.page);
    assert.deepEqual(dark.wrong, []);
  });

  const begin = performance.now();
  const large = await open(page2);
  const opened = performance.now() - begin;
  await check('a page of many events answers a click', async () => {
    const total = Number((await text(large.page, 'moment')).match(/of ([\d,]+)/)[1].replaceAll(',', ''));
    assert.ok(total >= 100_000, `${total} events`);
    await large.page.locator('#timeline').scrollIntoViewIfNeeded();
    const times = await large.page.evaluate(async () => {
      const canvas = document.getElementById('timeline'), box = canvas.getBoundingClientRect();
      const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
      const times = [];
      for (let i = 1; i <= 9; i++) {
        const place = { clientX: box.left + box.width * i / 10, clientY: box.top + 100, button: 0, pointerId: 1, bubbles: true };
        const before = document.getElementById('moment').textContent, start = performance.now();
        canvas.setPointerCapture = () => {}; // pointers that a script makes cannot be captured
        canvas.dispatchEvent(new PointerEvent('pointerdown', place));
        canvas.dispatchEvent(new PointerEvent('pointerup', place));
        const handled = performance.now() - start;
        if (document.getElementById('moment').textContent === before) throw new Error('the click chose nothing');
        await painted();
        times.push([handled, performance.now() - start]);
      }
      return times;
    });
    const most = index => Math.max(...times.map(time => time[index])).toFixed(1);
    say(`   ${total} events: opened in ${opened.toFixed(0)} ms; a click is handled in at most ${most(0)} ms and painted in ${most(1)} ms`);
    assert.deepEqual(large.wrong, []);
  });
} finally {
  await browser.close();
}
