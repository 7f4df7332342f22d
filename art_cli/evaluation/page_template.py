"""What the page of an evaluation is made of: its frame, its looks, and what happens on a click.

No network, no library. All that candidates and envs have said comes in as JSON and is shown as
text, never as markup.
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
<p>$summary</p>
$tables
<h2>Episodes</h2>
<p>One row a scenario, one square an attempt: filled where it passed, its reward inside. Click one
to read the conversation.</p>
<p><label>Show <select id="which"><option value="all">all scenarios</option>
<option value="differ">those where candidates differ</option>
<option value="failed">those where someone fails</option></select></label>
<span id="count"></span></p>
<table id="grid"></table>
<button id="more" hidden>Show more</button>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
"""

STYLE = """
:root { color-scheme: light dark; --line: #8884; --pass: #2a9d5c; --soft: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
td small { opacity: .7; }
td.sure { font-weight: 600; }
svg { display: block; margin-left: auto; }
svg .bar { fill: #4c78a8; opacity: .55; } svg .ci { stroke: currentColor; stroke-width: 1.5; }
#grid td { padding: .15rem .5rem; vertical-align: top; }
#grid td.talk { text-align: left; white-space: normal; padding: .5rem 0 1.5rem; }
.cell { border: 1px solid var(--line); border-radius: 3px; cursor: pointer; font: inherit;
  font-size: .8rem; margin: 1px; min-width: 2.6rem; background: var(--soft); color: inherit; }
.cell.pass { background: var(--pass); color: #fff; } .cell.open { outline: 2px solid currentColor; }
.turn { border-left: 3px solid var(--line); margin: .4rem 0; padding: .1rem .7rem; }
.turn b { font-size: .75rem; text-transform: uppercase; opacity: .7; }
.turn pre { font: .85rem/1.4 ui-monospace, monospace; margin: 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.turn.assistant { border-color: #4c78a8; } .turn.tool { border-color: #b38728; }
.note { opacity: .8; font-size: .85rem; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const grid = document.getElementById('grid'), more = document.getElementById('more');
const STEP = 100;
let shown = [], next = 0;

function make(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}
function attemptsOf(s) { return s.cells.flat().map(i => data.attempts[i]); }
function rates(s) {
  return s.cells.map(c => c.filter(i => data.attempts[i].pass).length / Math.max(1, c.length));
}
function wanted(s, which) {
  if (which === 'failed') return attemptsOf(s).some(a => !a.pass);
  if (which === 'differ') return new Set(rates(s)).size > 1;
  return true;
}
function talk(a) {
  const td = make('td', undefined, 'talk');
  td.colSpan = data.candidates.length + 1;
  const facts = Object.entries(a.facts).map(([k, v]) => k + ' ' + v).join(' \\u00b7 ');
  td.append(make('div', facts, 'note'));
  for (const [role, text] of a.messages) {
    const turn = make('div', undefined, 'turn ' + role);
    turn.append(make('b', role), make('pre', data.texts[text]));
    td.append(turn);
  }
  if (a.context) {
    const turn = make('div', undefined, 'turn');
    turn.append(make('b', 'what really happened'), make('pre', a.context));
    td.append(turn);
  }
  return td;
}
function toggle(button, row, attempt) {
  const open = button.classList.contains('open');
  for (const b of row.querySelectorAll('.cell.open')) b.classList.remove('open');
  if (row.nextSibling && row.nextSibling.isTalk) row.nextSibling.remove();
  if (open) return;
  button.classList.add('open');
  const tr = make('tr');
  tr.isTalk = true;
  tr.append(talk(attempt));
  row.after(tr);
}
function addRow(s) {
  const row = make('tr');
  const tags = Object.entries(s.tags).map(([k, v]) => k + ' ' + v).join(', ');
  row.append(make('td', s.id + (tags ? ' (' + tags + ')' : '')));
  for (const cell of s.cells) {
    const td = make('td');
    for (const i of cell) {
      const a = data.attempts[i];
      const button = make('button', a.reward, 'cell' + (a.pass ? ' pass' : ''));
      button.addEventListener('click', () => toggle(button, row, a));
      td.append(button);
    }
    row.append(td);
  }
  grid.append(row);
}
function showMore() {
  shown.slice(next, next + STEP).forEach(addRow);
  next += STEP;
  more.hidden = next >= shown.length;
}
function show(which) {
  grid.replaceChildren();
  const head = make('tr');
  head.append(make('th', 'scenario'), ...data.candidates.map(name => make('th', name)));
  grid.append(head);
  shown = data.scenarios.filter(s => wanted(s, which));
  next = 0;
  document.getElementById('count').textContent = shown.length + ' of ' + data.scenarios.length;
  showMore();
}
document.getElementById('which').addEventListener('change', e => show(e.target.value));
more.addEventListener('click', showMore);
show('all');
"""
