// The head of the page, and the figures of the whole migration.

function drawTop(header) {
  const policy = DATA.policy || {};
  const planned = FILES.some((file) => file.state === 'planned');
  const when = DATA.finished || DATA.started;
  const facts = [
    when && new Date(when).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' }),
    policy.require && `${planned ? 'would write' : 'writes'} what is ${policy.require === 'review' ? 'safe or for review' : policy.require}`,
    planned ? 'dry run, nothing verified or written' : policy.verify ? 'verified by running' : 'not verified by running',
    timing(DATA.totals.seconds || {}),
    DATA.resumed && `taken up again ${count(DATA.resumed, 'time')}`,
    DATA.branch && `branch ${DATA.branch}`,
  ].filter(Boolean);
  document.body.classList.toggle('unverified', planned || !policy.verify);
  fill(header, h('div', { class: 'wide' },
    h('p', { class: 'brand' }, 'gbfix migration'),
    h('h1', null, visible(DATA.project || DATA.root)),
    h('p', { class: 'facts' }, facts.map((fact) => h('span', null, visible(fact)))),
    h('nav', { 'aria-label': 'Sections' },
      [['totals', 'Totals'], ['map', 'Map'], CHECKED.length && ['entries', 'Entries'], ['files', 'Files'], ['declined', 'Declined']]
        .filter(Boolean).map(([id, name]) => h('a', { href: '#' + id }, name)))));
}

function drawTotals(section) {
  const totals = DATA.totals;
  const by = totals.by_safety || {};
  const share = (name) => [name, by[name] || 0];
  const parts = [share('safe'), share('review'), share('unsafe')].filter(([, n]) => n);
  const verb = FILES.some((file) => file.state === 'planned') ? 'could be fixed' : 'fixed';
  fill(section,
    h('h2', { id: 'totals-title', class: 'sr' }, 'Totals'),
    h('div', { class: 'hero' },
      h('div', { class: 'headline' },
        h('p', { class: 'figure' }, h('span', { class: 'from' }, number(totals.sites)),
          h('span', { class: 'to-mark', 'aria-hidden': 'true' }, '\u2192'), h('span', { class: 'sr' }, ' to '),
          h('span', null, number(totals.left))),
        h('p', { class: 'caption' }, 'break sites before and after: ',
          h('b', null, `${number(totals.fixed)} ${verb}`), `, ${percent(totals.fixed, totals.sites)}`),
        progress(parts, totals),
      ),
      h('dl', { class: 'tiles' },
        tile('Files changed', number(totals.written), `of ${number(totals.files)} looked at, ${number(totals.lines)} lines`),
        measured('Graph breaks', totals.breaks),
        measured('Graph fragments', totals.fragments),
        verdictTile(totals.by_verdict || {}),
        totals.withheld ? tile('Withheld', number(totals.withheld), 'files that the policy did not allow') : null,
        totals.not_written ? tile('Not written', number(totals.not_written), 'files; each says why') : null,
        totals.errors ? tile('Errors', number(totals.errors), 'files that could not be processed') : null,
      )),
    diagnoses(totals.by_code || {}),
    (DATA.notices || []).map((text) => h('p', { class: 'note' }, prose(text))),
    commits());
}

function progress(parts, totals) {
  const whole = totals.sites || 1;
  return [
    h('div', { class: 'stack', 'aria-hidden': 'true' },
      parts.map(([name, n]) => h('span', { class: 'part ' + name, '--share': (100 * n) / whole + '%' })),
      totals.left > 0 && h('span', { class: 'part left', '--share': (100 * totals.left) / whole + '%' })),
    h('ul', { class: 'legend' },
      parts.map(([name, n]) => h('li', { class: name }, `${name} `, h('b', null, number(n)))),
      h('li', { class: 'left' }, 'left ', h('b', null, number(totals.left)))),
  ];
}

const tile = (title, figure, note) =>
  h('div', { class: 'tile' }, h('dt', null, title), h('dd', null, h('span', { class: 'big' }, figure), note && h('small', null, note)));

function measured(title, change) {
  if (!change) return tile(title, h('span', { class: 'unknown' }, 'not measured'), 'nothing was run');
  return tile(title, arrow(change.before, change.after), 'in what was run');
}

function verdictTile(by) {
  const found = Object.entries(by).filter(([, n]) => n);
  if (!found.length) return null;
  const whole = found.reduce((sum, [, n]) => sum + n, 0);
  return tile('Verified', number(by.verified || 0), h('span', null, `of ${number(whole)} run`,
    found.filter(([name]) => name !== 'verified').map(([name, n]) => `, ${number(n)} ${name}`)));
}

function timing(seconds) {
  const parts = Object.entries(seconds).filter(([name, value]) => name !== 'total' && value);
  const whole = seconds.total || parts.reduce((sum, [, value]) => sum + value, 0);
  if (!whole) return null;
  return `took ${duration(whole)}` + (parts.length > 1 ? ` (${parts.map(([name, value]) => `${name} ${duration(value)}`).join(', ')})` : '');
}

function diagnoses(by) {
  const rows = Object.entries(by).sort((a, b) => b[1].before - a[1].before);
  if (!rows.length) return null;
  const most = rows[0][1].before;
  return h('div', { class: 'card' },
    h('div', { class: 'map-head' }, h('h3', null, 'By diagnosis'), barKey()),
    h('ul', { class: 'bars' }, rows.map(([code, change]) =>
      h('li', null, h('button', {
        type: 'button', class: 'bar-row', onclick: () => setFilter({ code }, 'filters'),
        'aria-label': `${code} ${NAMES.get(code) || ''}: ${change.before} before, ${change.after} after. Show the files.`,
      },
      h('span', { class: 'name' }, h('code', null, code), ' ', NAMES.get(code) || ''),
      splitBar(change.before, change.after, most), arrow(change.before, change.after))))));
}

function commits() {
  const made = DATA.commits || [];
  if (!made.length) return null;
  return h('details', { class: 'card' },
    h('summary', null, h('h3', null, count(made.length, 'commit'), DATA.branch && [' on ', h('code', null, visible(DATA.branch))])),
    h('ul', { class: 'plain' }, made.map((commit) =>
      h('li', null, h('code', null, commit.hash.slice(0, 10)), ' ', visible(commit.subject), ' ', h('small', null, count((commit.files || []).length, 'file'))))));
}
