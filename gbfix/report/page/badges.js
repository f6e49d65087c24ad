// Small marks that say a word with a shape and a colour; the word is always there.

const VERDICTS = {
  'verified': ['good', '\u2713'],
  'partly verified': ['part', '\u25d0'],
  'different': ['bad', '\u2715'],
  'no fewer breaks': ['part', '='],
  'original fails in eager': ['none', '!'],
  'original fails compiled but not eager': ['none', '!'],
  'not run': ['none', '\u2013'],
};
const SAFETIES = { safe: 'good', review: 'part', unsafe: 'bad' };
const STATES = { 'written': 'good', 'planned': 'good', 'withheld': 'part', 'not written': 'bad', 'unchanged': 'none' };

function verdictBadge(status) {
  const [tone, mark] = VERDICTS[status] || ['none', '?'];
  return h('span', { class: 'badge ' + tone }, h('span', { 'aria-hidden': 'true' }, mark + ' '), status);
}

const safetyBadge = (safety, times) =>
  h('span', { class: 'badge ' + (SAFETIES[safety] || 'none') }, safety, times > 1 && ' \u00d7' + times);

const stateBadge = (state) => h('span', { class: 'badge outline ' + (STATES[state] || 'none') }, state);

// How much was fixed and how much is left, as a bar; its width is by the number before.
function splitBar(before, left, whole) {
  return h('span', {
    class: 'split', role: 'img', 'aria-label': `${before} before, ${left} after`,
    '--whole': (whole ? (100 * before) / whole : 100) + '%',
    '--share': (before ? Math.min(100, (100 * left) / before) : 0) + '%',
  }, h('span'));
}

// What the colours of such bars say.
const barKey = () => h('p', { class: 'bar-key' }, h('span', { class: 'key fixed' }), 'fixed ', h('span', { class: 'key left' }), 'left');

function arrow(before, after) {
  return h('span', { class: 'arrow' },
    h('span', { class: 'sr' }, 'before '), h('b', null, number(before)),
    h('span', { 'aria-hidden': 'true' }, ' \u2192 '), h('span', { class: 'sr' }, ', after '), h('b', null, number(after)));
}

function pathText(path) {
  const cut = path.lastIndexOf('/') + 1;
  return h('span', { class: 'path' },
    // Long paths wrap behind a slash.
    path.slice(0, cut).split(/(?<=\/)/).map((part) => [h('span', { class: 'folder' }, visible(part)), h('wbr')]),
    h('b', null, visible(path.slice(cut))));
}
