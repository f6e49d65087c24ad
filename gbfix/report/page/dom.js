// Elements and text. Nothing in these scripts parses markup: text from outside becomes text nodes.

// Marks that reorder or hide text, and control characters other than tabs and line ends.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const SVG = 'http://www.w3.org/2000/svg';

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name.startsWith('--')) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

// Text of which every character can be seen, as nodes.
function visible(text) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(ODD)) {
    if (found.index > end) nodes.push(text.slice(end, found.index));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, '0');
    nodes.push(h('span', { class: 'odd', title: 'a character that cannot be seen' }, 'U+' + code));
    end = found.index + 1;
  }
  nodes.push(text.slice(end));
  return nodes;
}

// Sentences with `code` in them.
function prose(text) {
  return text.split('`').map((piece, n) => (n % 2 ? h('code', null, visible(piece)) : visible(piece)));
}

const NUMBER = new Intl.NumberFormat('en');
const number = (value) => NUMBER.format(value);
const count = (value, one, many) => number(value) + ' ' + (value === 1 ? one : many || one + 's');
const percent = (part, whole) => (whole ? Math.round((100 * part) / whole) + '%' : '0%');

function duration(seconds) {
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 60) return seconds.toFixed(1) + ' s';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min ' + Math.round(seconds % 60) + ' s';
  return Math.floor(seconds / 3600) + ' h ' + Math.round((seconds % 3600) / 60) + ' min';
}

// A list that shows so many at first, and more on demand.
function paged(list, items, draw, size, one, many) {
  const more = h('button', { type: 'button', class: 'more', onclick: () => show(true) });
  let shown = 0;
  function show(asked) {
    const from = shown;
    shown = Math.min(items.length, shown + size);
    const rows = items.slice(from, shown).map(draw);
    list.append(...rows);
    more.hidden = shown >= items.length;
    const rest = items.length - shown;
    more.textContent = rest > size
      ? `Show ${number(size)} more of ${count(rest, one, many)}`
      : `Show the other ${rest === 1 ? one : count(rest, one, many)}`;
    if (!asked || !rows.length) return;
    const first = rows[0].querySelector('summary, button, a') || rows[0];
    if (first === rows[0]) first.setAttribute('tabindex', '-1');
    first.focus();
  }
  list.replaceChildren();
  show(false);
  return more;
}
