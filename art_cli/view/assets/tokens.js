// Each token of an episode: what was sampled in colour, what was read in grey.

async function tokensView(root, r) {
  if (r.rest.length < 4) return pickTokens(root, r);
  const [split, step, group, number] = [r.rest[0], +r.rest[1], +r.rest[2], +r.rest[3]];
  const d = await source.group(r.run, split, step, group), e = d.episodes[number];
  if (!e) throw new Error('this group has no episode ' + number);
  const by = r.query.get('by') === 'advantage' ? 'advantage' : 'logprob', all = d.episodes.flatMap(x => [x.advantage, ...x.sequences.flatMap(s => s.turns.map(t => t[1]))]);
  const scale = Math.max(...all.map(v => Math.abs(v || 0)), 1e-9), turns = e.sequences.flatMap(s => s.turns.map(t => t[1]));
  root.append(el('div', {class: 'row'}, el('h1', null, 'Tokens of ' + split + ' step ' + step + ', ' + e.scenario_id + ' #' + e.index),
    el('a', {href: link('group', r.run, [split, step, group])}, 'The whole group'),
    select('Episode', d.episodes.map((x, i) => [String(i), '#' + x.index + ', reward ' + num(x.reward)]), String(number), v => go(link('tokens', r.run, [split, step, group, v], r.query))),
    select('Colour', [['logprob', 'log-probability'], ['advantage', 'advantage']], by, v => { setQuery({by: v}); render(); })));
  root.append(el('p', {class: 'small dim'}, 'Grey: ' + WORDS.facts.masked + ' ' + ratios(split, step, e.policy_versions)));
  if (by === 'advantage' && e.advantage === null) root.append(el('p', {class: 'small'}, 'Nothing is learned from this episode, so its tokens have no advantage.'));
  if (turns.length) root.append(el('p', {class: 'small'}, 'Its turns have advantages of their own: ' + turns.map(v => num(v)).join(', ') + '.'));
  if (!Object.keys(d.pieces).length) root.append(el('div', {class: 'warning'}, 'The tokenizer of this run is not on this machine, so tokens are shown as their ids.'));
  if (!e.sequences.length) root.append(el('div', {class: 'warning'}, 'No tokens are stored of this episode.'));
  e.sequences.forEach((s, n) => {
    const sampled = s.mask.filter(Boolean).length;
    root.append(el('h2', null, 'Sequence ' + (n + 1) + ' of ' + e.sequences.length), el('p', {class: 'small dim'}, num(s.ids.length) + ' tokens, ' + num(sampled) + (d.split === 'train' ? ' of them trained on' : ' of them sampled') +
      (s.logprobs.length === s.ids.length ? '; mean log-probability ' + num(mean(s.logprobs.filter((_, i) => s.mask[i]))) : '; its log-probabilities are damaged')),
    legend(by), tokenText(s, d.pieces, by, e.advantage, scale));
  });
}

// Ratios of single tokens are not stored: of fresh episodes there is nothing to store.
function ratios(split, step, versions) {
  if (split !== 'train') return '';
  const age = step - 1 - Math.min(...(Array.isArray(versions) && versions.length ? versions : [step - 1]));
  return age > 0 ? 'It was sampled up to ' + age + (age > 1 ? ' updates' : ' update') + ' before the one that it taught, so ratios were not 1; those of single tokens are not stored, the overview has their mean and largest.'
    : 'Its update began with the weights that sampled it, so ratios begin as 1 but for rounding: there is nothing to colour.';
}

function advantagesOf(s, advantage) {
  const each = Array(s.ids.length).fill(advantage);
  s.turns.forEach(([begin, value], n) => each.fill(value, begin, n + 1 < s.turns.length ? s.turns[n + 1][0] : s.ids.length));
  return each;
}

function legend(by) {
  const ends = by === 'logprob' ? ['unlikely (≤ -3)', 'certain (0)'] : ['made less likely', 'made more likely'];
  return el('p', {class: 'small scale'}, ends[0], [0, 0.25, 0.5, 0.75, 1].map(v => {
    const made = el('i');
    made.style.setProperty('--heat', heat(v));
    return made;
  }), ends[1]);
}

function tokenText(s, pieces, by, advantage, scale) {
  const made = el('div', {class: 'tokens', role: 'text'}), most = 20000, advantages = advantagesOf(s, advantage);
  for (let i = 0; i < Math.min(s.ids.length, most); i++) {
    const id = s.ids[i], text = pieces[id] ?? '[' + id + '] ', shown = text.replace(/\n/g, '↵\n'), lp = s.logprobs[i], adv = advantages[i];
    const token = el('span', {class: s.mask[i] ? 'sampled' : 'prompt', title: 'token ' + id + (s.mask[i] ? ', log-probability ' + num(lp) + (adv === null ? '' : ', advantage ' + num(adv)) : ', not trained on')}, shown);
    if (s.mask[i]) token.style.setProperty('--heat', heat(by === 'logprob' ? 1 + Math.max(-3, lp ?? -3) / 3 : 0.5 + (adv || 0) / scale / 2));
    made.append(token);
  }
  if (s.ids.length > most) made.append(el('p', null, 'and ' + num(s.ids.length - most) + ' more tokens'));
  return made;
}

async function pickTokens(root, r) {
  const {rows} = await rowsOf(r.run);
  const last = groupsOf(rows.filter(x => x.split === 'train')).sort((a, b) => b.step - a.step || (spread(b) ?? -1) - (spread(a) ?? -1))[0] || groupsOf(rows)[0];
  if (!last) { root.append(el('p', null, 'There are no trajectories of this run yet.')); return; }
  history.replaceState(null, '', link('tokens', r.run, [last.split, last.step, last.group, 0]));
  return tokensView(root, route());
}
