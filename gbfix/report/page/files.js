// The files: one row each, with its figures; diff, sites and evidence are drawn when it is opened.

const PAGE = 60;
const ORDERS = {
  sites: ['most break sites', (a, b) => b.before - a.before],
  fixed: ['most fixed', (a, b) => b.fixed - a.fixed],
  left: ['most left', (a, b) => b.left - a.left],
  path: ['path', () => 0],
};

function drawFiles(section) {
  let order = 'fixed';
  const list = h('div', { class: 'rows' });
  const rest = h('div');
  const shown = h('p', { class: 'count', role: 'status' });
  const sort = h('label', { class: 'field inline' }, h('span', null, 'Sort by'),
    h('select', { id: 'order', onchange: (event) => { order = event.target.value; draw(); } },
      Object.entries(ORDERS).map(([value, [title]]) => h('option', { value, selected: value === order }, title))));
  fill(section,
    h('h2', { id: 'files-title' }, 'Files'),
    h('div', { class: 'list-head' }, shown, sort),
    list, rest);
  const byPath = (a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0);
  function draw() {
    const found = FILES.filter(fileMatches).sort((a, b) => ORDERS[order][1](a, b) || byPath(a, b));
    const before = found.reduce((sum, file) => sum + file.before, 0);
    const left = found.reduce((sum, file) => sum + file.left, 0);
    shown.textContent = `${found.length === FILES.length ? count(found.length, 'file') : `${number(found.length)} of ${count(FILES.length, 'file')}`}, ${number(before)} break sites before, ${number(left)} after`;
    fill(rest, paged(list, found, fileRow, PAGE, 'file'),
      !found.length && h('p', { class: 'empty' }, 'No file matches. ', h('button', { type: 'button', class: 'link', onclick: clearFilters }, 'Clear filters')));
  }
  draw();
  onFilter(draw);
}

function fileRow(file) {
  const row = h('details', { class: 'row' },
    h('summary', null,
      h('span', { class: 'row-name' }, pathText(file.path)),
      h('span', { class: 'row-marks' },
        file.before > 0 && h('span', { class: 'figures' }, arrow(file.before, file.left), splitBar(file.before, file.left, 0)),
        h('span', { class: 'badges' },
          file.safeties.map((safety) => safetyBadge(safety, file.sites.filter((site) => site.fix && site.fix.safety === safety).length)),
          file.state !== 'unchanged' && stateBadge(file.state),
          file.verdict && verdictBadge(file.verdict)))));
  row.addEventListener('toggle', () => {
    if (row.open && row.children.length === 1) row.append(fileBody(file));
  });
  return row;
}

function fileBody(file) {
  const arms = file.arms;
  const facts = [
    file.reason && [file.state === 'unchanged' ? 'Note' : file.state[0].toUpperCase() + file.state.slice(1), prose(file.reason)],
    ['Verdict', file.verdict ? verdictBadge(file.verdict) : 'not run'],
    arms && ['Arms run', arms.total ? `${arms.covered} of ${arms.total}` : 'no branch was rewritten'],
    file.breaks && ['Graph breaks', arrow(file.breaks.before, file.breaks.after)],
    file.fragments && ['Graph fragments', arrow(file.fragments.before, file.fragments.after)],
    ['Lines', number(file.lines)],
  ].filter(Boolean);
  const fixed = file.sites.filter((site) => site.fix);
  const left = file.sites.filter((site) => !site.fix);
  return h('div', { class: 'row-body' },
    h('dl', { class: 'facts-list' }, facts.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)))),
    arms && lines('Arms that were not run', arms.missing, 'part'),
    file.diff && [
      h('h4', null, file.applied ? 'Diff' : 'Diff, not in the file'),
      diffTable(file.diff, file.path)],
    siteList(file.applied ? 'Fixed' : 'Fixes that were not written', fixed, fixedSite),
    siteList('Left as it is', left, leftSite),
    checkedHere(file));
}

function siteList(title, sites, draw) {
  if (!sites.length) return null;
  const list = h('ul', { class: 'sites' });
  const more = paged(list, sites, draw, 40, 'site');
  return [h('h4', null, `${title} (${number(sites.length)})`), list, more];
}

function siteHead(site) {
  return [
    h('code', { class: 'at' }, `${site.line}:${site.column}`), ' ',
    h('code', null, site.code), ' ', h('b', null, site.name), ' in ', h('code', null, visible(site.function || 'the module')),
    !site.certain && h('span', { class: 'badge outline none' }, 'possible'),
    site.cost !== undefined && h('span', { class: 'badge outline none', title: 'fragments times calls' }, `cost ${number(site.cost)}`)];
}

const fixedSite = (site) => h('li', null,
  h('div', null, siteHead(site), ' ', safetyBadge(site.fix.safety)),
  h('div', { class: 'why' }, h('code', null, site.fix.transform), ': ', prose(site.fix.reason)));

const leftSite = (site) => h('li', null,
  h('div', null, siteHead(site)),
  h('div', { class: 'why' }, prose(site.message)),
  !(site.refusals || []).length && !(site.offers || []).length && h('div', { class: 'why' }, prose(NOT_TAKEN_BECAUSE)),
  (site.refusals || []).map((index) => {
    const reason = REASONS[index];
    return h('div', { class: 'why' }, h('code', null, reason.transform), ' declined, ', h('code', { class: 'reason' }, reason.code), ': ', prose(reason.sentence));
  }),
  (site.offers || []).map(offerLine));

// What was on offer and not taken.
function offerLine(index) {
  const offer = OFFERS[index];
  return h('div', { class: 'why' }, 'could be taken: ', h('code', null, offer.transform), ' ', safetyBadge(offer.safety), ' ', prose(offer.reason),
    offer.setting !== undefined && [': ', h('code', null, visible(offer.setting))]);
}

function checkedHere(file) {
  const here = CHECKED_BY_PATH.get(file.path);
  if (!here) return null;
  return [h('h4', null, 'Run'), h('div', { class: 'rows nested' }, here.map(entryRow))];
}
