// What the policy does, over steps: tools, first actions, endings, lengths; which first moves pay.

async function behaviourView(root, r) {
  const head = el('div', {class: 'row'}), list = el('div', {class: 'charts'}), moves = el('div');
  root.append(el('h1', null, 'Behaviour'), head, list, moves);
  const cards = {
    tools: card('Tools: share of all calls', 'Which tools the policy calls. One that is never called, or alone, is worth a look.', {named: true}),
    first: card('First actions', 'What an episode begins with.', {named: true}),
    endings: card('Endings', 'env: the env ended it; max_turns, timeout, context: it was cut off; error: it failed and teaches nothing.', {named: true}),
    length: card('Tokens: a tenth, half, nine tenths', 'A tenth of the episodes is shorter than the lowest line, a tenth longer than the highest.', {named: true}),
    turns: card('Turns and tool errors an episode', 'Errors are calls that the env refused or that could not be read.', {named: true}),
    kinds: card('Scenarios played, by seat, level and kind', 'What the data of the scenarios says. With train.curriculum: signal it changes as the policy learns.', {named: true}),
    words: card('Last words', 'The last words of an episode, such as the answer or a refusal.', {named: true}),
  };
  list.append(...Object.values(cards).map(c => c.made));
  async function update() {
    const {rows} = await rowsOf(r.run), splits = [...new Set(rows.map(x => x.split))].sort().reverse();
    if (!rows.length) return head.replaceChildren('There are no trajectories of this run yet.');
    const wanted = route().query.get('split'), split = splits.includes(wanted) ? wanted : splits.includes('train') ? 'train' : splits[0];
    head.replaceChildren(select('Of', splits.map(s => [s, s]), split, v => { setQuery({split: v}); update(); }));
    const mine = rows.filter(x => x.split === split), share = {showlegend: true, yaxis: {tickformat: '.0%', range: [0, 1.02]}};
    draw(cards.tools.plot, shares(mine, x => x.tools), share);
    draw(cards.first.plot, shares(mine, x => [x.first]), share);
    draw(cards.endings.plot, shares(mine, x => [x.truncated && x.stop === 'env' ? 'env, truncated' : x.stop]), share);
    const kinds = mine.filter(x => x.kind);
    cards.kinds.made.hidden = !kinds.length;
    if (kinds.length) draw(cards.kinds.plot, shares(kinds, x => [x.kind]), share);
    draw(cards.words.plot, shares(mine.filter(x => x.last), x => [x.last.slice(0, 30)], 6), share);
    const steps = [...new Set(mine.map(x => x.step))], by = new Map(steps.map(s => [s, []]));
    for (const x of mine) by.get(x.step).push(x);
    const quantile = (name, q) => steps.map(s => { const v = by.get(s).map(x => x[name]).sort((a, b) => a - b); return v[Math.min(v.length - 1, Math.floor(q * v.length))]; });
    const line = (y, name, i) => ({x: steps, y, name, mode: 'lines', line: {color: COLOURS[i], width: i ? 1.5 : 2.5}});
    draw(cards.length.plot, [line(quantile('tokens', 0.5), 'half', 0), line(quantile('tokens', 0.1), 'a tenth', 1), line(quantile('tokens', 0.9), 'nine tenths', 2)], {showlegend: true});
    draw(cards.turns.plot, [line(steps.map(s => mean(by.get(s).map(x => x.turns))), 'turns', 0), line(steps.map(s => mean(by.get(s).map(x => x.errors))), 'tool errors', 1)], {showlegend: true});
    moves.replaceChildren(el('h2', null, 'First moves and what they earn'), firstMoves(mine, steps, r, split));
  }
  await update();
  return update;
}

function firstMoves(rows, steps, r, split) {
  const early = steps[Math.floor(steps.length / 3)], late = steps[Math.floor(steps.length * 2 / 3)], by = new Map();
  for (const x of rows) by.set(x.first, [...(by.get(x.first) || []), x]);
  const share = (some, all) => all.length ? num(100 * some.length / all.length, 0) + '%' : '-';
  const isEarly = x => x.step < early || steps.length < 3, isLate = x => x.step >= late;
  const found = [...by].map(([name, mine]) => ({name, mine, reward: mean(mine.map(x => x.reward))})).sort((a, b) => (b.reward ?? -9) - (a.reward ?? -9));
  const shown = found.length > 24 ? [...found.slice(0, 12), ...found.slice(-12)] : found;
  return table(['first move', 'episodes', 'mean reward', 'share early', 'share late'], shown.map(f => [
    el('td', {class: 'text'}, el('a', {href: link('episodes', r.run, [], {first: f.name, split})}, f.name)), num(f.mine.length), num(f.reward, 2),
    share(f.mine.filter(isEarly), rows.filter(isEarly)), share(f.mine.filter(isLate), rows.filter(isLate))]));
}
