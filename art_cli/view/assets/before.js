// Before and after: the same held-out scenario at each evaluation.

async function beforeView(root, r) {
  const body = el('div');
  root.append(el('h1', null, 'Before and after'), body);
  async function update() {
    const {rows} = await rowsOf(r.run), held = rows.filter(x => x.split !== 'train');
    const steps = [...new Set(held.map(x => x.step))].sort((a, b) => a - b);
    if (steps.length < 2) {
      body.replaceChildren(el('p', null, steps.length ? 'There is one evaluation so far; the next one shows what has changed.' : 'This run has no stored evaluation.'));
      return;
    }
    const known = held.map(x => x.reward).filter(v => v !== null), low = known.reduce((a, b) => Math.min(a, b), 0), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    const bar = route().query.has('solved') ? +route().query.get('solved') : high;
    const scenarios = new Map();
    for (const x of held) {
      const key = x.split + '/' + x.scenario;
      if (!scenarios.has(key)) scenarios.set(key, {split: x.split, scenario: x.scenario, by: new Map()});
      const by = scenarios.get(key).by;
      by.set(x.step, [...(by.get(x.step) || []), x.reward]);
    }
    const all = [...scenarios.values()].map(s => {
      const values = steps.map(step => s.by.has(step) ? mean(s.by.get(step)) : null), had = values.filter(v => v !== null);
      return {...s, values, gap: had.length > 1 ? had[had.length - 1] - had[0] : 0, best: had.reduce((a, b) => Math.max(a, b), -Infinity)};
    });
    const never = all.filter(s => s.best < bar - 1e-9).sort((a, b) => a.best - b.best);
    const kinds = [['Got worse', all.filter(s => s.gap < -1e-9).sort((a, b) => a.gap - b.gap)], ['Got better', all.filter(s => s.gap > 1e-9).sort((a, b) => b.gap - a.gap)],
      ['Unchanged', all.filter(s => Math.abs(s.gap) <= 1e-9)]];
    body.replaceChildren(el('p', null, all.length + ' held-out scenarios, first at step ' + steps[0] + ', last at step ' + steps[steps.length - 1] + ': ' +
      kinds.map(([name, list]) => list.length + ' ' + name.toLowerCase()).join(', ') + '. Of all of them, ' + never.length + ' were never solved.'),
    el('div', {class: 'row'}, el('label', null, 'Solved from a reward of ', el('input', {type: 'number', step: 'any', value: bar, on: {change: e => { setQuery({solved: e.target.value}); update(); }}}))),
    ...[...kinds.slice(0, 2), ['Never solved', never], kinds[2]].map(([name, list], i) => kindList(name, list, i < 3, steps, r, low, high)));
  }
  await update();
  return update;
}

function kindList(name, list, open, steps, r, low, high) {
  const shown = list.slice(0, 200);
  return el('details', {open: open && list.length > 0}, el('summary', null, el('b', null, name), ' (' + list.length + ')'),
    table(['scenario', 'change', 'reward at steps ' + steps.join(', ')], shown.map(s => [
      el('td', null, el('a', {href: link('compare', r.run, [s.split, s.scenario])}, s.scenario)),
      el('td', {class: s.gap > 0 ? 'good' : s.gap < 0 ? 'bad' : ''}, (s.gap > 0 ? '+' : '') + num(s.gap, 2)),
      el('td', null, el('div', {class: 'cells'}, s.values.map(v => rewardCell(v, undefined, low, high))))])),
    list.length > shown.length && el('p', {class: 'small dim'}, 'and ' + (list.length - shown.length) + ' more'));
}

// The same scenario under the policy of several evaluations, side by side.
async function compareView(root, r) {
  const [split, scenario] = r.rest, {rows} = await rowsOf(r.run);
  const mine = groupsOf(rows.filter(x => x.split === split && x.scenario === scenario));
  const some = mine.length > 6 ? [0, 1, 2, 3, 4, 5].map(i => mine[Math.round(i * (mine.length - 1) / 5)]) : mine;
  root.append(el('div', {class: 'row'}, el('h1', null, scenario + ' at ' + some.length + (mine.length > some.length ? ' of ' + mine.length : '') + ' evaluations'),
    el('a', {href: link('before', r.run)}, 'All scenarios')));
  const items = [], lost = [];
  for (const g of some) {
    try {
      const d = await source.group(r.run, split, g.step, g.group);
      d.episodes.forEach((e, i) => items.push({label: 'step ' + g.step + (g.step === 0 ? ' (untrained)' : '') + (d.episodes.length > 1 ? ' #' + i : ''), episode: e,
        tokens: link('tokens', r.run, [split, g.step, g.group, i])}));
    } catch (e) { lost.push('Step ' + g.step + ': ' + e.message); }
  }
  for (const line of lost) root.append(el('div', {class: 'warning'}, line));
  if (items.length) root.append(...columns(items));
}
