// What was left and why, by reason; and the files that could not be processed.

function drawDeclined(section) {
  const groups = new Map();
  for (const file of FILES) {
    for (const site of file.sites) {
      if (!isLeft(file, site)) continue;
      const reason = site.fix ? { code: file.state, sentence: file.reason || '', transform: site.fix.transform } : lastReason(site);
      const code = reason ? reason.code : NOT_TAKEN;
      if (!groups.has(code)) groups.set(code, { code, byReason: Boolean(reason) && !site.fix, total: 0, sentences: new Map() });
      const group = groups.get(code);
      group.total += 1;
      const key = reason ? `${reason.transform}: ${reason.sentence}` : NOT_TAKEN;
      const known = group.sentences.get(key) || { times: 0, file, site, reason };
      known.times += 1;
      group.sentences.set(key, known);
    }
  }
  const found = [...groups.values()].sort((a, b) => b.total - a.total);
  const list = h('div', { class: 'rows' });
  const errors = DATA.errors || [];
  fill(section,
    h('h2', { id: 'declined-title' }, 'Declined, and why'),
    h('p', { class: 'count' }, found.length ? `${count(found.reduce((sum, group) => sum + group.total, 0), 'break site')} left, for ${count(found.length, 'reason')}` : 'Nothing was left.'),
    list, paged(list, found, (group) => reasonRow(group, found[0].total), 30, 'reason'),
    errors.length > 0 && [
      h('h3', null, count(errors.length, 'file'), ' could not be processed'),
      errorList(errors)]);
}

function errorList(errors) {
  const list = h('ul', { class: 'sites' });
  return [list, paged(list, errors, (error) => h('li', null, pathText(error.path), h('div', { class: 'why' }, prose(error.sentence))), 40, 'file')];
}

function reasonRow(group, most) {
  const row = h('details', { class: 'row' },
    h('summary', null,
      h('span', { class: 'row-name' }, h('code', { class: 'reason' }, group.code)),
      h('span', { class: 'row-marks' }, splitBar(group.total, group.total, most), h('b', { class: 'figures' }, number(group.total)))));
  row.addEventListener('toggle', () => {
    if (!row.open || row.children.length > 1) return;
    const sentences = [...group.sentences.values()].sort((a, b) => b.times - a.times);
    const list = h('ul', { class: 'sites' });
    row.append(h('div', { class: 'row-body' },
      group.byReason && h('p', null, h('button', { type: 'button', class: 'quiet', onclick: () => setFilter({ reason: group.code }, 'filters') }, 'Show the files')),
      list,
      paged(list, sentences, ({ times, file, site, reason }) => h('li', null,
        h('div', null, h('b', null, number(times) + '\u00d7'), ' ', reason ? [h('code', null, reason.transform), ': ', prose(reason.sentence)] : prose(NOT_TAKEN_BECAUSE)),
        h('div', { class: 'why' }, times > 1 ? 'for one, ' : '', h('code', null, visible(`${file.path}:${site.line}`)), ': ', prose(site.message))), 12, 'reason')));
  });
  return row;
}
