// The episodes of an evaluation: a row a scenario, and the candidates' conversations side by side.

const data = JSON.parse(document.getElementById('data').textContent), STEP = 100;
const grid = document.getElementById('grid'), more = document.getElementById('more');
const SHOWN = {all: 'all scenarios', differ: 'those where candidates differ', failed: 'those where someone fails'};
const count = el('span', {class: 'dim', role: 'status'});
let shown = [], next = 0;

function wanted(s, which) {
  const passed = s.cells.map(cell => cell.map(i => data.attempts[i].passed));
  if (which === 'failed') return passed.flat().some(p => !p);
  return which !== 'differ' || new Set(passed.map(ps => mean(ps.map(Number)))).size > 1;
}

// The clicked attempt first, then those of the other candidates in the same trial.
function talks(s, candidate, trial) {
  const order = [candidate, ...s.cells.keys()].filter((c, n, all) => all.indexOf(c) === n);
  const items = order.filter(c => s.cells[c][trial] !== undefined).map(c => {
    const a = data.attempts[s.cells[c][trial]];
    const messages = a.messages.map(m => ({...m, content: data.texts[m.content]}));
    return {label: data.candidates[c] + (s.cells[c].length > 1 ? ', trial ' + (trial + 1) : ''), episode: {...a, messages}};
  });
  return el('tr', {class: 'talk'}, el('td', {class: 'text', colspan: data.candidates.length + 1}, columns(items)));
}

function toggle(button, row, s, candidate, trial) {
  const open = button.getAttribute('aria-expanded') === 'true';
  for (const b of row.querySelectorAll('button')) b.setAttribute('aria-expanded', 'false');
  if (row.nextSibling && row.nextSibling.className === 'talk') row.nextSibling.remove();
  if (open) return;
  button.setAttribute('aria-expanded', 'true');
  row.after(talks(s, candidate, trial));
}

function addRow(s) {
  const tags = Object.entries(s.tags).map(([k, v]) => k + ' ' + v).join(', '), row = el('tr');
  row.append(el('td', {class: 'text'}, s.id + (tags ? ' (' + tags + ')' : '')), ...s.cells.map((cell, c) => el('td', null, cell.map((i, trial) => {
    const a = data.attempts[i], button = el('button', {type: 'button', class: 'num small ' + (a.passed ? 'passed' : ''), 'aria-expanded': 'false'}, num(a.reward));
    button.addEventListener('click', () => toggle(button, row, s, c, trial));
    return button;
  }))));
  grid.append(row);
}

function showMore() {
  shown.slice(next, next + STEP).forEach(addRow);
  next += STEP;
  more.hidden = next >= shown.length;
}

function show(which) {
  shown = data.scenarios.filter(s => wanted(s, which));
  next = 0;
  grid.replaceChildren(el('tr', null, el('th', null, 'scenario'), data.candidates.map(name => el('th', null, name))));
  count.textContent = shown.length + ' of ' + data.scenarios.length;
  showMore();
}

document.getElementById('controls').append(select('Show', Object.entries(SHOWN), 'all', show), count);
document.getElementById('theme').addEventListener('click', switchTheme);
more.addEventListener('click', showMore);
startTheme();
show('all');
