// What the reader wants to see. It is kept in the address, so that a link says it too.

const FILTER = { q: '', code: '', safety: '', verdict: '', state: '', reason: '', folder: '' };
const LISTENERS = [];
const NONE = 'none';

const onFilter = (listener) => LISTENERS.push(listener);

function setFilter(changes, target) {
  Object.assign(FILTER, changes);
  keepInAddress();
  for (const listener of LISTENERS) listener();
  if (target) document.getElementById(target).scrollIntoView({ block: 'start' });
}

function keepInAddress() {
  const held = Object.entries(FILTER).filter(([, value]) => value);
  const hash = new URLSearchParams(held).toString();
  try {
    history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search);
  } catch {
    // Some browsers forbid it for pages from a file; the filters work all the same.
  }
}

function readAddress() {
  const given = location.hash.slice(1);
  if (!given.includes('=')) return;
  for (const [name, value] of new URLSearchParams(given)) if (name in FILTER) FILTER[name] = value;
}

const within = (path) => !FILTER.folder || path === FILTER.folder || path.startsWith(FILTER.folder + '/');

function siteMatches(file, site) {
  if (FILTER.code && site.code !== FILTER.code) return false;
  if (FILTER.safety === NONE && site.fix) return false;
  if (FILTER.safety && FILTER.safety !== NONE && (!site.fix || site.fix.safety !== FILTER.safety)) return false;
  if (FILTER.reason) {
    const reason = isLeft(file, site) ? lastReason(site) : null;
    if (!reason || reason.code !== FILTER.reason) return false;
  }
  return true;
}

function fileMatches(file) {
  if (!within(file.path)) return false;
  if (FILTER.verdict && file.seen !== FILTER.verdict) return false;
  if (FILTER.state && file.state !== FILTER.state) return false;
  const bySite = FILTER.code || FILTER.safety || FILTER.reason;
  if (bySite && !file.sites.some((site) => siteMatches(file, site))) return false;
  return words().every((word) => searchable(file).includes(word));
}

function entryMatches(one) {
  if (!within(one.path)) return false;
  if (FILTER.verdict && one.status !== FILTER.verdict) return false;
  if (FILTER.code) {
    const breaks = one.before ? one.before.breaks || [] : [];
    if (!breaks.some((found) => found.diagnosis === FILTER.code)) return false;
  }
  const text = [one.id, one.status, one.reason].join('\n').toLowerCase();
  return words().every((word) => text.includes(word));
}

const words = () => FILTER.q.toLowerCase().split(/\s+/).filter(Boolean);

function tally(values) {
  const found = new Map();
  for (const value of values) found.set(value, (found.get(value) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

function drawFilters(form) {
  const search = h('input', {
    type: 'search', id: 'q', placeholder: 'Path, function, code, words of a diff', autocomplete: 'off', spellcheck: 'false',
  });
  let waiting = 0;
  search.addEventListener('input', () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => setFilter({ q: search.value.trim() }), 120);
  });
  form.addEventListener('submit', (event) => event.preventDefault());

  const sites = FILES.flatMap((file) => file.sites);
  const codes = tally(sites.map((site) => site.code));
  const safeties = tally(sites.map((site) => (site.fix ? site.fix.safety : NONE)));
  const verdicts = tally([...FILES.map((file) => file.seen), ...CHECKED.map((one) => one.status)]);
  const states = tally(FILES.map((file) => file.state));
  const reasons = tally(
    FILES.flatMap((file) => file.sites.filter((site) => isLeft(file, site)).map(lastReason))
      .filter(Boolean).map((reason) => reason.code));
  const selects = {
    code: select('code', 'Diagnosis', codes, (code) => `${code} ${NAMES.get(code)}`),
    safety: select('safety', 'Safety', safeties, (safety) => (safety === NONE ? 'not fixed' : safety)),
    verdict: select('verdict', 'Verdict', verdicts.map(([name]) => [name]), (verdict) => verdict),
    state: select('state', 'File', states, (state) => state),
    reason: select('reason', 'Declined for', reasons, (reason) => reason),
  };
  const active = h('div', { class: 'active', 'aria-live': 'polite' });
  put(form, [
    h('label', { class: 'field grow' }, h('span', null, 'Search'), search),
    ...Object.values(selects),
    active,
  ]);
  onFilter(() => {
    if (document.activeElement !== search) search.value = FILTER.q;
    for (const [name, field] of Object.entries(selects)) {
      field.lastChild.value = FILTER[name];
      field.classList.toggle('set', Boolean(FILTER[name]));
    }
    const held = Object.values(FILTER).some(Boolean);
    fill(active,
      FILTER.folder && chip('in ' + FILTER.folder, () => setFilter({ folder: '' })),
      held && h('button', { type: 'button', class: 'quiet', onclick: clearFilters }, 'Clear filters'));
  });
}

function clearFilters() {
  setFilter(Object.fromEntries(Object.keys(FILTER).map((name) => [name, ''])));
}

function select(name, title, options, label) {
  return h('label', { class: 'field' },
    h('span', null, title),
    h('select', { id: 'by-' + name, onchange: (event) => setFilter({ [name]: event.target.value }) },
      h('option', { value: '' }, 'all'),
      options.map(([value, times]) =>
        h('option', { value }, times === undefined ? label(value) : `${label(value)} (${number(times)})`))));
}

function chip(text, remove) {
  return h('button', { type: 'button', class: 'chip', onclick: remove, 'aria-label': `Remove filter: ${text}` },
    visible(text), h('span', { 'aria-hidden': 'true' }, ' \u00d7'));
}
