// What Dynamo captured of one callable: its graphs in order, with what cut them between.

const MOST_FRAGMENTS = 30;
const MOST_OPERATORS = 24;

function fragmentsPicture(one) {
  return h('div', { class: 'lanes' }, lane('Before', one.before, one.path), lane('After', one.after, one.path));
}

function lane(title, captured, path) {
  if (!captured) return h('section', { class: 'lane' }, h('h4', null, title), h('p', { class: 'quiet-text' }, 'not captured'));
  const breaks = captured.breaks || [];
  const fragments = captured.fragments || [];
  const most = Math.max(1, ...fragments.map((fragment) => (fragment.operators || []).length));
  const items = [];
  fragments.forEach((fragment, n) => {
    items.push({ fragment, n });
    if (fragment.cut_by !== undefined) items.push({ cut: fragment.cut_by });
  });
  for (const skip of captured.skips || []) items.push({ skip });
  const list = h('ol', { class: 'graph' });
  const more = paged(list, items, (item) => {
    if (item.fragment) return fragmentCard(item.fragment, item.n, most, path);
    if (item.skip) return skipCard(item.skip, path);
    return cutMark(item.cut, breaks[item.cut]);
  }, MOST_FRAGMENTS, 'piece');
  return h('section', { class: 'lane' },
    h('h4', null, title, ' ', h('small', null, summaryOf(captured))),
    items.length ? [list, more] : h('p', { class: 'quiet-text' }, captured.graphs ? 'The graphs were counted, not recorded.' : 'No graph was captured.'),
    breaks.length > 0 && h('ol', { class: 'cuts' }, breaks.map((found, n) => h('li', null,
      h('span', { class: 'cut-number', 'aria-hidden': 'true' }, n + 1), ' ',
      h('div', null, h('code', { class: 'at' }, visible(`${found.file}:${found.line}`)), ' ',
        found.diagnosis && [h('code', null, found.diagnosis), ' '], found.registry && [h('code', null, found.registry), ' '],
        visible(firstLine(found.reason)), ' ', h('small', null, `(${found.kind})`))))),
    captured.fullgraph_error && h('p', { class: 'quiet-text' }, 'fullgraph: ', visible(captured.fullgraph_error)));
}

const firstLine = (text) => text.split('\n', 1)[0];

function summaryOf(captured) {
  return [
    count(captured.graphs, 'graph'), count(captured.operators, 'operator'), count((captured.breaks || []).length, 'break'),
    captured.skips && count(captured.skips.length, 'frame') + ' skipped',
    captured.recompiles ? count(captured.recompiles, 'recompile') : null,
    captured.left_out !== undefined && count(captured.left_out, 'operator') + ' outside of graphs',
    captured.fullgraph !== undefined && 'fullgraph ' + (captured.fullgraph ? 'yes' : 'no'),
  ].filter(Boolean).join(', ');
}

function fragmentCard(fragment, n, most, path) {
  const operators = fragment.operators || [];
  const runs = [];
  for (const operator of operators) {
    const last = runs[runs.length - 1];
    if (last && last[0] === operator) last[1] += 1;
    else runs.push([operator, 1]);
  }
  const list = h('ul', { class: 'operators' });
  const draw = ([name, times]) => h('li', null, visible(name), times > 1 && h('span', { class: 'times' }, ' \u00d7' + times));
  const more = paged(list, runs, draw, MOST_OPERATORS, 'operator');
  return h('li', { class: 'fragment' + (fragment.again ? ' again' : ''), '--size': Math.max(0.15, Math.sqrt(operators.length / most)).toFixed(3) },
    h('div', { class: 'fragment-head' }, h('b', null, `Graph ${n + 1}`), ' ', count(operators.length, 'operator'), fragment.again && ', compiled again'),
    h('div', { class: 'fragment-of' }, whereabouts(fragment, path)),
    list, more);
}

function cutMark(index, found) {
  const what = found ? `${found.file}:${found.line}: ${firstLine(found.reason)}` : 'a break';
  return h('li', { class: 'cut', title: what },
    h('span', { class: 'cut-number', 'aria-hidden': 'true' }, index + 1), h('span', { class: 'sr' }, 'cut by ', visible(what)));
}

// Where the code is; the file is said where it is another than the entry's.
const whereabouts = (found, path) => [
  h('code', null, visible(found.function)), ' ', visible(found.file === path ? `line ${found.line}` : `${found.file}:${found.line}`)];

function skipCard(skip, path) {
  return h('li', { class: 'fragment skipped' },
    h('div', { class: 'fragment-head' }, h('b', null, 'Not compiled at all')),
    h('div', { class: 'fragment-of' }, whereabouts(skip, path)),
    h('p', null, visible(firstLine(skip.reason))));
}
