// What was run: a verdict for each, the evidence that it stands on, and the picture of its graphs.

function drawEntries(section) {
  if (!CHECKED.length) {
    section.hidden = true;
    return;
  }
  const list = h('div', { class: 'rows' });
  const rest = h('div');
  const shown = h('p', { class: 'count', role: 'status' });
  fill(section, h('h2', { id: 'entries-title' }, 'Compiled entries'), shown, list, rest);
  const draw = () => {
    const found = CHECKED.filter(entryMatches);
    shown.textContent = found.length === CHECKED.length ? count(found.length, 'entry', 'entries') + ' run' : `${number(found.length)} of ${count(CHECKED.length, 'entry', 'entries')}`;
    fill(rest, paged(list, found, entryRow, 20, 'entry', 'entries'));
  };
  draw();
  onFilter(draw);
}

function entryRow(one) {
  const before = one.before;
  const after = one.after;
  const row = h('details', { class: 'row' },
    h('summary', null,
      h('span', { class: 'row-name' }, h('b', null, visible(one.name)), ' ', h('span', { class: 'folder' }, visible(one.path))),
      h('span', { class: 'row-marks' },
        before && after && h('span', { class: 'figures' }, arrow(fragmentsOf(before), fragmentsOf(after)), ' fragments'),
        verdictBadge(one.status))));
  row.addEventListener('toggle', () => {
    if (row.open && row.children.length === 1) row.append(h('div', { class: 'row-body' }, evidence(one), fragmentsPicture(one)));
  });
  return row;
}

// As in the totals: what was compiled again, for other inputs, is no other fragment.
function fragmentsOf(captured) {
  const recorded = captured.fragments || [];
  return recorded.length ? recorded.filter((fragment) => !fragment.again).length : captured.graphs;
}

function evidence(one) {
  const arms = one.arms || {};
  const facts = [
    ['Verdict', [one.reason ? prose(one.reason) : one.status]],
    one.calls && ['Run', `${count(one.calls, 'call')} with ${count((one.inputs || []).length, 'input')}${one.recorded ? ' recorded from a program' : ''}${one.gradients ? ', with gradients' : ''}, backend ${one.backend} on ${one.device}, ${duration(one.seconds)}`],
    ['Arms run', arms.total ? `${arms.covered} of ${arms.total}` : 'no branch was rewritten'],
  ].filter(Boolean);
  return [
    h('dl', { class: 'facts-list' }, facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)))),
    lines('Arms that were not run', arms.missing, 'part'),
    lines('Differences', one.differences, 'bad'),
    lines('Differs in compiled runs only, as the fix says', one.remarks, 'none'),
    lines('Inputs', one.inputs, 'none', true),
  ];
}

function lines(title, texts, tone, folded) {
  if (!texts || !texts.length) return null;
  const list = h('ul', { class: 'plain mono' });
  const more = paged(list, texts, (text) => h('li', null, visible(text)), 8, 'line');
  return h('details', { class: 'lines ' + tone, open: !folded }, h('summary', null, `${title} (${number(texts.length)})`), list, more);
}
