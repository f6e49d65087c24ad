// The codebase as a map: area by break sites before, colour by what is left of them. The same as bars.

const MOST_CELLS = 400;
const HEAD = 20;

function drawMap(section) {
  const root = tree();
  if (!root.before) {
    fill(section, h('h2', { id: 'map-title' }, 'Map'), h('p', { class: 'note' }, 'No break sites were found.'));
    return;
  }
  let trail = [root];
  let phase = 'after';
  const crumbs = h('nav', { class: 'crumbs', 'aria-label': 'Folder of the map' });
  const picture = h('div', { class: 'treemap', 'aria-hidden': 'true' });
  const bars = h('ul', { class: 'bars' });
  const rest = h('div');
  const title = h('h3');
  const phases = h('div', { class: 'switch', role: 'group', 'aria-label': 'What the map shows' },
    ['before', 'after'].map((name) => h('button', {
      type: 'button', 'aria-pressed': String(name === phase),
      onclick: (event) => {
        phase = name;
        for (const button of event.target.parentNode.children) button.setAttribute('aria-pressed', String(button === event.target));
        picture.dataset.phase = name;
      },
    }, name[0].toUpperCase() + name.slice(1))));
  picture.dataset.phase = phase;
  fill(section,
    h('h2', { id: 'map-title' }, 'Map of break sites'),
    h('div', { class: 'card' },
      h('div', { class: 'map-head' }, crumbs, phases),
      picture,
      h('p', { class: 'map-key' },
        h('span', { class: 'key fixed' }), 'fixed ', h('span', { class: 'key left' }), 'left. ',
        h('span', { class: 'map-only' }, 'The area is the number of break sites before.')),
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

  function draw() {
    const node = trail[trail.length - 1];
    fill(crumbs, trail.map((step, n) => [
      n > 0 && h('span', { 'aria-hidden': 'true' }, ' / '),
      n === trail.length - 1
        ? h('span', { 'aria-current': 'location' }, visible(step.name || DATA.project))
        : h('button', { type: 'button', class: 'link', onclick: () => go(step) }, visible(step.name || DATA.project))]));
    fill(title, count(node.list.length, 'part'), ' of ', h('code', null, visible(node.name || DATA.project)), ': ', arrow(node.before, node.left));
    const most = node.list[0].before;
    fill(rest, paged(bars, node.list, (child) => h('li', null, h('button', {
      type: 'button', class: 'bar-row', onclick: () => go(child),
      'aria-label': `${child.path}: ${child.before} break sites before, ${child.left} after. ${child.file ? 'Show the file.' : 'Open the folder.'}`,
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
    place(node.list, box, cells, true);
    picture.replaceChildren(...cells);
  }

  function place(list, box, cells, nested) {
    const shown = list.slice(0, MOST_CELLS);
    const placed = squarify(shown.map((child) => child.before), box);
    shown.forEach((child, n) => {
      const at = placed[n];
      if (at.w < 3 || at.h < 3) return;
      if (nested && child.list.length > 1 && at.w > 120 && at.h > 70) {
        cells.push(cell(child, { ...at, h: HEAD }, 'head'));
        place(child.list, { x: at.x, y: at.y + HEAD, w: at.w, h: at.h - HEAD }, cells, at.w > 500 && at.h > 300);
      } else {
        cells.push(cell(child, at, ''));
      }
    });
  }

  function cell(node, at, kind) {
    const named = at.w > 44 && at.h > 16;
    return h('button', {
      type: 'button', class: 'cell ' + kind, tabindex: '-1', onclick: () => go(node),
      title: `${node.path}\n${node.before} before, ${node.left} after`,
      '--x': at.x + 'px', '--y': at.y + 'px', '--w': at.w + 'px', '--h': at.h + 'px',
      '--share': (100 * node.left) / node.before + '%',
    },
    named && h('span', { class: 'name' }, visible(node.name)),
    (kind === 'head' ? at.w > 150 : named && at.h > 34) && h('span', { class: 'n' }, `${number(node.before)} \u2192 ${number(node.left)}`));
  }

  draw();
  new ResizeObserver(layOut).observe(picture);
  onFilter(() => {
    // Clearing the filters leads back to the top of the map.
    if (!FILTER.folder && trail.length > 1) {
      trail = [root];
      draw();
    }
  });
}
