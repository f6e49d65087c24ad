// The codebase as a map: area by the breaks before, colour by what is left of them. The same as bars.

const MOST_CELLS = 400;
const HEAD = 20;

function drawMap(section) {
  const metrics = Object.keys(METRICS).filter((name) => tree(METRICS[name][2]).before);
  if (!metrics.length) {
    fill(section, h('h2', { id: 'map-title' }, 'Map'), h('p', { class: 'note' }, 'No break sites were found.'));
    return;
  }
  let metric = metrics[0];
  let trail = [];
  const crumbs = h('nav', { class: 'crumbs', 'aria-label': 'Folder of the map' });
  const picture = h('div', { class: 'treemap', 'aria-hidden': 'true' });
  const bars = h('ul', { class: 'bars' });
  const rest = h('div');
  const title = h('h3');
  const key = h('span', { class: 'map-only' });
  const phases = switchOf('What the map shows', [['before', 'Before'], ['after', 'After']], 'after', (name) => { picture.dataset.phase = name; });
  const counted = metrics.length > 1 && switchOf('What is counted', metrics.map((name) => [name, METRICS[name][0]]), metric, (name) => {
    metric = name;
    start();
    if (FILTER.folder) setFilter({ folder: '' });
  });
  picture.dataset.phase = 'after';
  fill(section,
    h('h2', { id: 'map-title' }, 'Map'),
    h('div', { class: 'card' },
      h('div', { class: 'map-head' }, crumbs, h('div', { class: 'switches' }, counted, phases)),
      picture,
      h('p', { class: 'map-key' },
        h('span', { class: 'key fixed' }), 'fixed ', h('span', { class: 'key left' }), 'left. ',
        key),
      title, bars, rest));

  const go = (node) => {
    if (node.file) {
      setFilter({ folder: node.path }, 'files');
      return;
    }
    const known = trail.indexOf(node);
    trail = known >= 0 ? trail.slice(0, known + 1) : [...trail, node];
    draw();
    setFilter({ folder: trail.length > 1 ? node.path : '' });
  };

  function start() {
    trail = [tree(METRICS[metric][2])];
    fill(key, `The area is the number of ${METRICS[metric][1]} before.`);
    draw();
  }

  function draw() {
    const node = trail[trail.length - 1];
    fill(crumbs, trail.map((step, n) => [
      n > 0 && h('span', { 'aria-hidden': 'true' }, ' / '),
      n === trail.length - 1
        ? h('span', { 'aria-current': 'location' }, visible(step.name || DATA.project))
        : h('button', { type: 'button', class: 'link', onclick: () => go(step) }, visible(step.name || DATA.project))]));
    fill(title, count(node.list.length, 'part'), ' of ', h('code', null, visible(node.name || DATA.project)), ': ', arrow(node.before, node.left));
    const most = Math.max(1, ...node.list.map((child) => child.before));
    fill(rest, paged(bars, node.list, (child) => h('li', null, h('button', {
      type: 'button', class: 'bar-row', onclick: () => go(child),
      'aria-label': `${child.path}: ${child.before} ${METRICS[metric][1]} before, ${child.left} after. ${child.file ? 'Show the file.' : 'Open the folder.'}`,
    },
    h('span', { class: 'name' }, visible(child.name), !child.file && '/'),
    splitBar(child.before, child.left, most), arrow(child.before, child.left))), 8, 'part'));
    layOut();
  }

  function layOut() {
    const width = picture.clientWidth;
    if (!width) return;
    const node = trail[trail.length - 1];
    const box = { x: 0, y: 0, w: width, h: picture.clientHeight };
    const cells = [];
    place(node.list, box, cells, true, box);
    picture.replaceChildren(...cells);
  }

  function place(list, box, cells, nested, whole) {
    const shown = list.filter((child) => child.before).slice(0, MOST_CELLS);
    const placed = squarify(shown.map((child) => child.before), box);
    shown.forEach((child, n) => {
      const at = placed[n];
      if (at.w < 3 || at.h < 3) return;
      if (nested && child.list.length > 1 && at.w > 120 && at.h > 70) {
        cells.push(cell(child, { ...at, h: HEAD }, 'head', whole));
        place(child.list, { x: at.x, y: at.y + HEAD, w: at.w, h: at.h - HEAD }, cells, at.w > 500 && at.h > 300, whole);
      } else {
        cells.push(cell(child, at, '', whole));
      }
    });
  }

  // Places are shares of the picture, so that it also fits paper.
  function cell(node, at, kind, whole) {
    const figures = `${number(node.before)} \u2192 ${number(node.left)}`;
    const named = at.w > 44 && at.h > 16;
    return h('button', {
      type: 'button', class: 'cell ' + kind, tabindex: '-1', onclick: () => go(node),
      title: `${node.path}\n${node.before} before, ${node.left} after`,
      '--x': share(at.x, whole.w), '--y': share(at.y, whole.h), '--w': share(at.w, whole.w), '--h': share(at.h, whole.h),
      '--share': share(Math.min(node.left, node.before), node.before),
    },
    named && h('span', { class: 'name' }, visible(node.name)),
    // Half a number would be another one.
    (kind === 'head' ? at.w > 150 : named && at.h > 34 && fits(figures, at.w)) && h('span', { class: 'n' }, figures));
  }

  start();
  new ResizeObserver(layOut).observe(picture);
  onFilter(() => {
    // Clearing the filters leads back to the top of the map.
    if (!FILTER.folder && trail.length > 1) {
      start();
    }
  });
}

// Whether digits have room in a cell.
const fits = (text, width) => text.length * 7 + 12 <= width;

const share = (part, whole) => (100 * part) / whole + '%';

function switchOf(label, options, chosen, choose) {
  const buttons = options.map(([value, title]) => h('button', {
    type: 'button', 'aria-pressed': String(value === chosen),
    onclick: (event) => {
      for (const button of buttons) button.setAttribute('aria-pressed', String(button === event.currentTarget));
      choose(value);
    },
  }, title));
  return h('div', { class: 'switch', role: 'group', 'aria-label': label }, buttons);
}
