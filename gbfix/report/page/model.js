// The outcome as it was shipped, with what the views need worked out once.

const DATA = JSON.parse(document.getElementById('data').textContent);
const APPLIED = new Set(['written', 'planned']);
const NOT_RUN = 'not run';

const REASONS = DATA.reasons || [];
const OFFERS = DATA.offers || [];
const FILES = (DATA.files || []).map((file, index) => {
  const sites = file.sites || [];
  const applied = APPLIED.has(file.state);
  const fixed = sites.filter((site) => site.fix);
  return {
    ...file,
    index,
    sites,
    applied,
    before: sites.length,
    fixed: applied ? fixed.length : 0,
    left: applied ? sites.length - fixed.length : sites.length,
    safeties: ['safe', 'review', 'unsafe'].filter((safety) => fixed.some((site) => site.fix.safety === safety)),
    seen: file.verdict || NOT_RUN,
  };
});
const CHECKED = DATA.checked || [];
const CHECKED_BY_PATH = new Map();
for (const one of CHECKED) {
  if (!CHECKED_BY_PATH.has(one.path)) CHECKED_BY_PATH.set(one.path, []);
  CHECKED_BY_PATH.get(one.path).push(one);
}

const NAMES = new Map();
for (const file of FILES) for (const site of file.sites) NAMES.set(site.code, site.name);

// A site ends with a fix or with reasons; one with neither has a fix on offer that was not asked for.
const NOT_TAKEN = 'fix not taken';
const NOT_TAKEN_BECAUSE = 'What is on offer, an unsafe fix or a setting of Dynamo, was not asked for; `gbfix check` shows it.';

// Why a site was left: the last that was tried has come closest.
function lastReason(site) {
  const given = site.refusals || [];
  return given.length ? REASONS[given[given.length - 1]] : null;
}

const isLeft = (file, site) => !file.applied || !site.fix;

// What a file can be found by; made on the first search, since it is long.
function searchable(file) {
  if (file.text === undefined) {
    const parts = [file.path, file.reason || '', file.diff || ''];
    for (const site of file.sites) {
      parts.push(site.code, site.name, site.function, site.message);
      if (site.fix) parts.push(site.fix.transform);
    }
    file.text = parts.join('\n').toLowerCase();
  }
  return file.text;
}

// What a map can count, as the numbers of a file before and after.
const METRICS = {
  sites: ['Found by reading', 'break sites', (file) => [file.before, file.left]],
  breaks: ['Seen by running', 'graph breaks', (file) => (file.breaks ? [file.breaks.before, file.breaks.after] : [0, 0])],
};

// The folders as a tree; a folder with nothing but one folder in it is one with that.
function tree(measure) {
  const root = { name: '', path: '', children: new Map(), before: 0, left: 0, files: 0 };
  for (const file of FILES) {
    const [before, left] = measure(file);
    if (!before && !left) continue;
    let node = root;
    const parts = file.path.split('/');
    parts.forEach((part, depth) => {
      add(node, before, left);
      const path = parts.slice(0, depth + 1).join('/');
      if (!node.children.has(part)) {
        const leaf = depth === parts.length - 1;
        node.children.set(part, {
          name: part, path, children: new Map(), before: 0, left: 0, files: 0, file: leaf ? file : null,
        });
      }
      node = node.children.get(part);
    });
    add(node, before, left);
  }
  return joined(root, true);
}

function add(node, before, left) {
  node.before += before;
  node.left += left;
  node.files += 1;
}

function joined(node, isRoot) {
  let children = [...node.children.values()].map((child) => joined(child, false));
  while (!node.file && children.length === 1 && !children[0].file) {
    const only = children[0];
    node = { ...only, name: isRoot ? only.path : node.name + '/' + only.name };
    children = only.list;
  }
  children.sort((a, b) => b.before - a.before || (a.path < b.path ? -1 : 1));
  return { ...node, list: children };
}
