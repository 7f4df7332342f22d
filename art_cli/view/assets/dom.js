// Elements. All text goes in as text nodes: nothing that anyone said becomes markup.

// What a terminal does not show either: first and last of each range, as numbers.
const HIDDEN = new RegExp('[' + WORDS.hidden.map(
  ends => ends.map(n => '\\u{' + n.toString(16) + '}').join('-')).join('') + ']', 'gu');

// Return a text with what nobody sees as JSON's escapes, two for what UTF-16 has in two halves.
function clean(text) {
  return String(text ?? '').replace(/\r\n/g, '\n').replace(
    HIDDEN, c => c.split('').map(
      half => '\\u' + half.charCodeAt(0).toString(16).padStart(4, '0')).join(''));
}

// el('a', {class: 'x', href: '#/', on: {click: f}}, 'text', element, ...)
function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'on') {
      for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    } else if (name === 'value' || name === 'checked' || name === 'selected') {
      made[name] = value;
    } else if (name === 'href' && !String(value).startsWith('#')) {
      throw new Error('links of this page stay on it');
    } else {
      made.setAttribute(name, value === true ? '' : clean(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return made;
}

function select(label, options, value, change) {
  const made = el('select', {'aria-label': label, on: {change: e => change(e.target.value)}},
    options.map(([v, text]) => el('option', {value: v}, text)));
  made.value = value;
  return el('label', null, label + ' ', made);
}

function table(heads, rows) {
  return el('div', {class: 'scroll'}, el('table', null,
    el('thead', null, el('tr', null, heads.map(h => el('th', {scope: 'col'}, h)))),
    el('tbody', null, rows.map(cells => el('tr', null, cells.map(
      c => c instanceof Node && c.tagName === 'TD' ? c : el('td', null, c)))))));
}

function num(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '-';
  if (digits !== undefined) return value.toFixed(digits);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toLocaleString('en') : size >= 0.01 ? String(+value.toPrecision(3)) : value.toExponential(1);
}

function mean(values) {
  const known = values.filter(v => v !== null && v !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

// A colour between two ends that are told apart by the colour-blind too: orange, pale, blue.
function heat(share) {
  const s = Math.min(1, Math.max(0, share));
  const [from, to, t] = s < 0.5 ? [[230, 126, 60], [240, 236, 222], s * 2] : [[240, 236, 222], [88, 152, 220], s * 2 - 1];
  return 'rgb(' + from.map((v, i) => Math.round(v + (to[i] - v) * t)).join(',') + ')';
}
