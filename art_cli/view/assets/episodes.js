// All episodes, searched and filtered; what is asked for stands in the address.

const FILTERS = ['split', 'step', 'tool', 'stop', 'first', 'low', 'high', 'only', 'sort'];
const PAGE = 100;

async function episodesView(root, r) {
  const form = el('form', {class: 'row', role: 'search', on: {submit: e => { e.preventDefault(); search(); }}}), count = el('p', {role: 'status'}), list = el('div', {class: 'lines'});
  const more = el('button', {type: 'button', on: {click: () => grow()}}, 'Show more');
  root.append(el('h1', null, 'Episodes'), form, count, list, more);
  let {rows} = await rowsOf(r.run), hits = null, note = '', found = [], shown = 0;
  const text = el('input', {type: 'search', id: 'search', placeholder: 'text in a conversation (/)', 'aria-label': 'Text in a conversation', value: r.query.get('text') || ''});
  form.append(text, el('button', {type: 'submit'}, 'Search'), ...controls(rows, r, () => filter()));

  async function search() {
    setQuery({text: text.value});
    hits = null; note = '';
    if (text.value.trim()) {
      count.textContent = 'Searching ...';
      const answer = await source.search(r.run, text.value.trim()).catch(e => ({hits: [], note: e.message}));
      hits = new Set(answer.hits.map(h => h.join('/')));
      note = answer.note;
    }
    filter();
  }
  function filter() {
    const q = route().query, get = name => q.get(name) || '';
    const tests = [
      get('split') && (x => x.split === get('split')), get('step') && (x => x.step === +get('step')), get('stop') && (x => x.stop === get('stop')),
      get('tool') && (x => x.tools.includes(get('tool'))), get('first') && (x => x.first === get('first')),
      get('low') && (x => x.reward !== null && x.reward >= +get('low')), get('high') && (x => x.reward !== null && x.reward <= +get('high')),
      {failed: x => x.failed, truncated: x => x.truncated, errors: x => x.errors > 0, forks: x => x.sequences > 1}[get('only')],
      hits && (x => hits.has([x.split, x.step, x.group, x.index].join('/'))),
    ].filter(Boolean);
    found = rows.filter(x => tests.every(t => t(x)));
    const order = {reward: (a, b) => (b.reward ?? -1e9) - (a.reward ?? -1e9), worst: (a, b) => (a.reward ?? 1e9) - (b.reward ?? 1e9), tokens: (a, b) => b.tokens - a.tokens, errors: (a, b) => b.errors - a.errors}[get('sort')];
    if (order) found.sort(order); else found.reverse();
    count.textContent = found.length.toLocaleString('en') + ' of ' + rows.length.toLocaleString('en') + ' episodes, mean reward ' + num(mean(found.map(x => x.reward)), 3) + '. ' + clean(note);
    list.replaceChildren();
    shown = 0;
    grow();
  }
  function grow() {
    list.append(...found.slice(shown, shown + PAGE).map(x => episodeLine(x, r)));
    shown += PAGE;
    more.hidden = shown >= found.length;
  }
  if (text.value) await search(); else filter();
  return async () => { ({rows} = await rowsOf(r.run)); if (shown <= PAGE && scrollY < 200) filter(); };
}

function controls(rows, r, changed) {
  const any = values => [['', 'any'], ...tally(values).slice(0, 60).map(([v, n]) => [String(v), clean(v) + ' (' + n + ')'])];
  const pick = (label, name, options) => select(label, options, r.query.get(name) || '', v => { setQuery({[name]: v}); changed(); });
  const bound = (label, name) => el('label', null, label + ' ', el('input', {type: 'number', step: 'any', size: 5, value: r.query.get(name) || '', 'aria-label': label, on: {input: e => { setQuery({[name]: e.target.value}); changed(); }}}));
  return [pick('Of', 'split', any(rows.map(x => x.split))), pick('Tool', 'tool', any(rows.flatMap(x => [...new Set(x.tools)]))), pick('First', 'first', any(rows.map(x => x.first))),
    pick('Ended by', 'stop', any(rows.map(x => x.stop))), pick('Only', 'only', [['', 'all'], ['failed', 'failed'], ['truncated', 'truncated'], ['errors', 'with tool errors'], ['forks', 'forked']]),
    bound('Reward from', 'low'), bound('to', 'high'), pick('Order', 'sort', [['', 'newest'], ['reward', 'best'], ['worst', 'worst'], ['tokens', 'longest'], ['errors', 'most errors']]),
    el('button', {type: 'button', on: {click: () => { history.replaceState(null, '', link('episodes', r.run)); render(); }}}, 'Clear')];
}

function episodeLine(x, r) {
  return el('a', {href: link('group', r.run, [x.split, x.step, x.group])}, rewardCell(x.reward), ' ', x.split + ' ' + x.step + ' ', el('b', null, x.scenario + ' #' + x.index),
    el('span', {class: 'dim small'}, '  ' + x.stop + (x.failed ? ', failed' : '') + (x.truncated ? ', truncated' : '') + ', ' + x.turns + ' turns, ' + x.tokens + ' tokens' + (x.errors ? ', ' + x.errors + ' tool error' + (x.errors > 1 ? 's' : '') : '') + '  ' +
      brief(x.tools.join(' > ') || 'no tool', 120) + (x.last ? '  "' + brief(x.last, 60) + '"' : '')));
}
