// Unified diffs as tables, drawn when they are opened.

const MOST_LINES = 300;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/s;

function diffLines(text) {
  const lines = [];
  let before = 0;
  let after = 0;
  const given = text.split('\n');
  if (given[given.length - 1] === '') given.pop();
  for (const line of given) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      lines.push({ kind: 'hunk', text: `Line ${hunk[1]}${hunk[3]}` });
    } else if (!lines.length) {
      continue; // the names of the two files
    } else if (line.startsWith('-')) lines.push({ kind: 'old', before: before++, text: line.slice(1) });
    else if (line.startsWith('+')) lines.push({ kind: 'new', after: after++, text: line.slice(1) });
    else if (line.startsWith('\\')) lines.push({ kind: 'remark', text: line.slice(2) });
    else lines.push({ kind: 'same', before: before++, after: after++, text: line.slice(1) });
  }
  return lines;
}

function diffTable(text, path) {
  const body = h('tbody');
  const more = paged(body, diffLines(text), diffRow, MOST_LINES, 'line');
  return h('div', null,
    h('div', { class: 'diff-scroll', tabindex: '0', role: 'region', 'aria-label': `Diff of ${path}` },
      h('table', { class: 'diff' },
        h('thead', { class: 'sr' }, h('tr', null, ['Old line', 'New line', 'Change', 'Code'].map((name) => h('th', { scope: 'col' }, name)))),
        body)),
    more);
}

const SIGNS = { old: '-', new: '+' };

function diffRow(line) {
  if (line.kind === 'hunk' || line.kind === 'remark') {
    return h('tr', { class: line.kind }, h('td', { colspan: '3' }), h('td', null, visible(line.text)));
  }
  // A carriage return belongs to the end of the line, not to what is shown.
  const text = line.text.endsWith('\r') ? line.text.slice(0, -1) : line.text;
  return h('tr', { class: line.kind },
    h('td', { class: 'num' }, line.before), h('td', { class: 'num' }, line.after),
    h('td', { class: 'sign' }, SIGNS[line.kind] || ''), h('td', { class: 'code' }, visible(text)));
}
