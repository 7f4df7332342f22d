// Conversations side by side: what all share once, then each on its own, with the first divergence.

function sameMessage(a, b) {
  return a && b && a.role === b.role && a.content === b.content && JSON.stringify(a.tool_calls || 0) === JSON.stringify(b.tool_calls || 0);
}

function agreement(a, b) {
  let n = 0;
  while (n < Math.min(a.length, b.length) && sameMessage(a[n], b[n])) n++;
  return n;
}

function fold(summary, content, open) {
  return el('details', {open: !!open}, el('summary', null, summary), content);
}

// One message. `against`: the text of another at this place, whose common beginning is shown dim.
function messageOf(m, options) {
  const o = options || {}, message = m && typeof m === 'object' ? m : {role: '?', content: m};
  const role = ['assistant', 'tool', 'user', 'system'].includes(message.role) ? message.role : 'other';
  const made = el('div', {class: 'turn ' + role + (message.is_error ? ' error' : '') + (o.same ? ' same' : '')},
    el('div', {class: 'role'}, message.role, message.name && ' ' + message.name, message.is_error && ' (error)'));
  const content = typeof message.content === 'string' ? message.content : JSON.stringify(message.content ?? '');
  if (role === 'tool') {
    made.append(content.length < 160 ? el('pre', null, content || '(empty)') : fold(el('code', null, brief(content)), el('pre', null, content), message.is_error));
    return made;
  }
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
  const {thought, words} = withoutThinking(content);
  if (thought) made.append(fold('thinking, ' + thought.length.toLocaleString('en') + ' characters', el('pre', {class: 'dim'}, thought)));
  if (!calls.length) {
    made.append(diffed(words, o.against));
  } else {
    const before = words.split(/<tool_call>|\[TOOL_CALLS\]|<\|tool/)[0].trim();
    if (before && !before.startsWith('{')) made.append(el('pre', null, before));
    for (const call of calls) made.append(fold(el('code', null, callLine(call)), el('pre', null, JSON.stringify(call && call.arguments, null, 2))));
    made.append(fold('as sampled', el('pre', {class: 'dim'}, words)));
  }
  return made;
}

function withoutThinking(content) {
  const found = /^([\s\S]*?)<think>([\s\S]*?)(<\/think>|$)([\s\S]*)$/.exec(content);
  return found ? {thought: found[2].trim(), words: (found[1] + found[4]).trim()} : {thought: '', words: content};
}

function callLine(call) {
  const args = call && call.arguments && typeof call.arguments === 'object' ? Object.entries(call.arguments) : [];
  return (call && call.name || '?') + '(' + args.map(([k, v]) => k + '=' + brief(typeof v === 'string' ? v : JSON.stringify(v), 40)).join(', ') + ')';
}

function brief(text, most) {
  const line = String(text).replace(/\s+/g, ' ').trim();
  return line.length > (most || 90) ? line.slice(0, most || 90) + ' ...' : line || '(empty)';
}

function diffed(text, against) {
  if (against === undefined || against === text) return el('pre', null, text);
  let n = 0;
  while (n < Math.min(text.length, against.length) && text[n] === against[n]) n++;
  return el('pre', null, el('span', {class: 'agree'}, text.slice(0, n)), el('span', {class: 'differs'}, text.slice(n) || '(ends here)'));
}

// Columns of episodes: [{label, episode, tokens (a link)}], the first is what the others are held against.
function columns(items) {
  const talks = items.map(i => Array.isArray(i.episode.messages) ? i.episode.messages : []);
  const shared = talks.length > 1 ? Math.min(...talks.slice(1).map(t => agreement(talks[0], t))) : 0;
  const parts = [];
  if (shared) {
    parts.push(fold('What all ' + items.length + ' begin with: ' + shared + (shared > 1 ? ' messages' : ' message'), talks[0].slice(0, shared).map(m => messageOf(m)), true));
  }
  parts.push(el('div', {class: 'siblings', tabindex: '0', role: 'group', 'aria-label': 'Episodes side by side'}, items.map((item, n) => column(item, n, talks, shared, items[0].label))));
  return parts;
}

function column(item, n, talks, shared, firstLabel) {
  const e = item.episode, made = el('article', {class: 'sibling', 'aria-label': item.label});
  const tone = e.advantage > 0 ? 'good' : e.advantage < 0 ? 'bad' : '';
  made.append(el('h3', null, item.label));
  const metrics = e.metrics && typeof e.metrics === 'object' ? Object.entries(e.metrics) : [];
  const {explanation, is_gated: isGated, ...madeOf} = e.reward_parts || {};
  made.append(el('div', {class: 'facts num'}, el('b', {title: WORDS.facts.reward}, 'reward ' + num(e.reward)),
    Object.keys(madeOf).length > 1 && Object.entries(madeOf).map(([k, v]) => el('span', null, (k === 'cost' ? 'invalid actions -' : k + ' ') + num(v) + (k === 'judge' && isGated ? ' (gated)' : ''))),
    e.advantage !== null && e.advantage !== undefined && el('b', {class: tone, title: WORDS.facts.advantage}, 'advantage ' + (e.advantage > 0 ? '+' : '') + num(e.advantage)),
    el('span', null, 'ended by ' + (e.stop_reason ?? '?')), e.truncated && el('span', {class: 'bad'}, 'truncated'),
    el('span', null, num(e.num_sampled) + ' tokens, ' + num(e.num_turns) + ' turns'),
    metrics.map(([k, v]) => el('span', {class: 'dim'}, k + ' ' + num(v)))));
  if (item.tokens) made.append(el('p', {class: 'small'}, el('a', {href: item.tokens}, 'Tokens'), e.sequences.length > 1 && el('span', {class: 'dim'}, ' - trained on as ' + e.sequences.length + ' sequences, since its history forked')));
  const said = [['judge ', explanation], ...(e.logs || []).map(line => ['log ', line])];
  for (const [who, words] of said) if (words) made.append(el('div', {class: 'words'}, el('span', {class: 'role'}, who), words));
  for (const j of item.judgements || []) made.append(el('div', {class: 'words'}, el('span', {class: 'role'}, j.judge + ' ' + num(j.score) + ' '), j.words));
  if (e.crash) made.append(el('div', {class: 'words bad'}, brief(e.crash, 300), fold('all that it said', el('pre', null, e.crash))));
  if (e.error) made.append(el('div', {class: 'words bad'}, brief(e.error, 300), fold('whole error', el('pre', null, e.error + '\n' + (e.traceback || '')))));
  const same = n ? agreement(talks[0], talks[n]) : shared;
  talks[n].slice(shared).forEach((m, i) => {
    const at = shared + i, isFork = at === same && talks.length > 1;
    if (isFork) made.append(el('div', {class: 'fork'}, n ? 'first divergence from ' + firstLabel : 'here the first of the others diverges'));
    const other = isFork && n && talks[0][at] && talks[0][at].role === m.role ? String(talks[0][at].content) : undefined;
    made.append(messageOf(m, {same: n > 0 && at < same, against: other}));
  });
  if (n && same === talks[n].length) made.append(el('div', {class: 'fork'}, same === talks[0].length ? 'the same as ' + firstLabel : 'ends here, where ' + firstLabel + ' goes on'));
  (e.side_conversations || []).forEach((talk, i) => made.append(fold('side conversation or fork ' + (i + 1), (Array.isArray(talk) ? talk : []).map(m => messageOf(m)))));
  if (e.judge_context) made.append(fold('what the env knows', el('pre', null, e.judge_context)));
  return made;
}
