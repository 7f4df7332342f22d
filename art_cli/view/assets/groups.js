// The map of groups, a group with its siblings side by side, and one episode's place among them.

const VALUES = {
  reward: ['mean reward', g => mean(g.rows.map(r => r.reward))],
  spread: ['spread of rewards (signal)', g => spread(g)],
  tokens: ['tokens an episode', g => mean(g.rows.map(r => r.tokens))],
  errors: ['tool errors an episode', g => mean(g.rows.map(r => r.errors))],
  score: ['score of the judge', g => mean(g.rows.map(r => r.score))],
};

function spread(g) {
  const known = g.rows.map(r => r.reward).filter(v => v !== null);
  return known.length ? Math.max(...known) - Math.min(...known) : null;
}

async function groupsView(root, r) {
  const head = el('div', {class: 'row'}), {made, plot} = card('Groups: a column a step, a click opens a group', '', {tall: true, label: 'Heat map of groups; the list below has the same'});
  const list = el('div'), note = el('p', {class: 'small dim'});
  root.append(el('h1', null, 'Groups'), head, note, made, list);
  let cells = [], shownStep = null;

  async function update() {
    const {rows} = await rowsOf(r.run);
    const splits = [...new Set(rows.map(x => x.split))].sort().reverse();
    const q = route().query, split = splits.includes(q.get('split')) ? q.get('split') : splits.includes('train') ? 'train' : splits[0];
    if (!rows.length) return head.replaceChildren('There are no trajectories of this run yet.');
    const groups = groupsOf(rows.filter(x => x.split === split)), value = VALUES[q.get('value')] ? q.get('value') : 'reward';
    const scenarios = new Set(groups.map(g => g.scenario)), repeats = groups.length / scenarios.size;
    const by = q.get('by') || (repeats >= 1.5 && scenarios.size <= 400 ? 'scenario' : 'place');
    head.replaceChildren(select('Of', splits.map(s => [s, s]), split, v => { setQuery({split: v, step: ''}); update(); }),
      select('Colour', Object.entries(VALUES).map(([k, [t]]) => [k, t]), value, v => { setQuery({value: v}); update(); }),
      select('Rows', [['scenario', 'scenarios'], ['place', 'places in a step']], by, v => { setQuery({by: v}); update(); }));
    note.textContent = groups.length.toLocaleString('en') + ' groups of ' + scenarios.size.toLocaleString('en') + ' scenarios' +
      (by === 'place' && repeats < 1.5 ? '; hardly any scenario comes twice, so rows are places in a step.' : '.');
    cells = map(plot, groups, value, by);
    const steps = [...new Set(groups.map(g => g.step))];
    shownStep = steps.includes(+q.get('step')) && q.has('step') ? +q.get('step') : steps[steps.length - 1];
    list.replaceChildren(...stepList(groups, steps, shownStep, r, v => { setQuery({step: v}); update(); }));
  }
  await update();
  if (cells.length) onClick(plot, p => {
    const g = cells[p.pointIndex[0]] && cells[p.pointIndex[0]][p.pointIndex[1]];
    if (g) go(link('group', r.run, [g.split, g.step, g.group]));
  });
  return update;
}

function map(plot, groups, value, by) {
  const steps = [...new Set(groups.map(g => g.step))].sort((a, b) => a - b), at = new Map(steps.map((s, i) => [s, i]));
  const of = VALUES[value][1], byRow = new Map();
  for (const g of groups) {
    const key = by === 'scenario' ? g.scenario : g.group;
    if (!byRow.has(key)) byRow.set(key, []);
    byRow.get(key).push(g);
  }
  const ordered = [...byRow].map(([key, gs]) => [key, gs, mean(gs.map(of)) ?? -Infinity]);
  ordered.sort((a, b) => by === 'scenario' ? a[2] - b[2] : b[0] - a[0]);
  const cells = ordered.map(([, gs]) => {
    const row = steps.map(() => null);
    for (const g of gs) row[at.get(g.step)] = g;
    return row;
  });
  const look = x => x === null ? null : of(x);
  draw(plot, [{type: 'heatmap', z: cells.map(row => row.map(look)), x: steps.map(String), y: ordered.map(([key]) => plain(key)),
    text: cells.map(row => row.map(g => g ? plain(g.scenario) : '')), colorscale: [[0, heat(0)], [0.5, heat(0.5)], [1, heat(1)]],
    hovertemplate: 'step %{x}, %{text}<br>' + VALUES[value][0] + ' %{z:.3~g}<extra></extra>', xgap: 1, ygap: ordered.length > 60 ? 0 : 1,
    colorbar: {thickness: 10, outlinewidth: 0}, hoverongaps: false}],
    {hovermode: 'closest', xaxis: {type: 'category', title: {text: 'step', font: {size: 10}}}, yaxis: {type: 'category', showticklabels: ordered.length <= 60}});
  return cells;
}

function stepList(groups, steps, step, r, choose) {
  const mine = groups.filter(g => g.step === step).sort((a, b) => (spread(b) ?? -1) - (spread(a) ?? -1));
  return [el('h2', null, 'Step ' + step), el('div', {class: 'row'}, select('Step', steps.map(s => [String(s), String(s)]), String(step), choose),
    el('span', {class: 'dim small'}, 'those with most to learn first')),
  table(['group', 'mean reward', 'rewards', 'tokens', 'tool errors'], mine.slice(0, 300).map(g => [
    el('td', null, el('a', {href: link('group', r.run, [g.split, g.step, g.group])}, g.scenario)), num(mean(g.rows.map(x => x.reward)), 2),
    el('td', null, el('div', {class: 'cells'}, g.rows.map(x => rewardCell(x.reward)))), num(mean(g.rows.map(x => x.tokens)), 0), num(mean(g.rows.map(x => x.errors)), 1)]))];
}

function rewardCell(reward, href, low, high) {
  const made = el(href ? 'a' : 'span', {class: 'cell num', href}, reward === null ? 'none' : num(reward, 2));
  const [a, b] = low === undefined ? [0, 1] : [low, high];
  made.style.background = reward === null ? '#c9ced6' : heat(b > a ? (reward - a) / (b - a) : 0.5);
  return made;
}

async function groupView(root, r) {
  const [split, step, group] = [r.rest[0], +r.rest[1], +r.rest[2]];
  const d = await source.group(r.run, split, step, group);
  const order = d.episodes.map((e, i) => ({e, i})).sort((a, b) => (b.e.reward ?? -Infinity) - (a.e.reward ?? -Infinity));
  const first = d.episodes[0] || {};
  root.append(el('div', {class: 'row'}, el('h1', null, split + ' step ' + step + ', ' + (first.scenario_id ?? 'group ' + group)), ...await steppers(r, split, step, group),
    split !== 'train' && el('a', {href: link('compare', r.run, [split, first.scenario_id ?? ''])}, 'Before and after')));
  root.append(fold('scenario (seed ' + first.seed + ')', el('pre', null, JSON.stringify(first.scenario, null, 2))));
  let scored = -1; // judgements have one score for each trajectory with a reward, in their order
  const place = d.episodes.map(e => e.reward === null ? -1 : ++scored);
  root.append(...columns(order.map(({e, i}) => ({label: '#' + (e.index ?? i), episode: e, tokens: link('tokens', r.run, [split, step, group, i]),
    judgements: place[i] < 0 ? [] : d.judgements.map(j => ({judge: j.judge, score: j.scores[place[i]], words: j.explanations[place[i]]}))}))));
}

// Links to the groups before and after; the keys j and k use them.
async function steppers(r, split, step, group) {
  const groups = groupsOf((await rowsOf(r.run)).rows.filter(x => x.split === split));
  const n = groups.findIndex(g => g.step === step && g.group === group);
  const to = (g, text, key) => g && el('a', {href: link('group', r.run, [g.split, g.step, g.group]), 'data-key': key, title: 'Key ' + key}, text);
  return [to(groups[n - 1], '← before', 'k'), to(groups[n + 1], 'next →', 'j')];
}
