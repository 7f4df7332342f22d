// Where the numbers come from: the server of the live page, or the file that this page is.

const block = document.getElementById('data');

async function ask(path, query) {
  const answer = await fetch(path + '?' + new URLSearchParams(query));
  if (answer.status === 204) return null;
  const found = await answer.json().catch(() => ({error: 'the answer was cut short'}));
  if (found.error) throw new Error(found.error);
  return found;
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).json();
}

function liveSource() {
  let seen = '';
  return {
    live: true,
    async data() {
      const found = await ask('data', {seen});
      if (found) seen = found.stamp;
      return found && found.runs;
    },
    index: (run, since) => ask('index', {run, since}),
    group: (run, split, step, group) => ask('group', {run, split, step, group}),
    search: (run, text) => ask('search', {run, text}),
    leftOut: () => '',
  };
}

function textsOf(e) {
  const talks = [e.messages || [], ...(e.side_conversations || [])].flat();
  return [e.scenario_id, ...(e.logs || []), (e.reward_parts || {}).explanation || '', e.error || '', e.traceback || '', e.crash || '', ...talks.map(m => m && m.content)].join('\n').toLowerCase();
}

function fileSource() {
  const all = JSON.parse(block.textContent);
  const steps = new Map(); // the last few that were unpacked
  async function step(run, name) {
    const packed = (all.details[run] || {})[name];
    if (!packed) return null;
    const key = run + '\n' + name;
    if (!steps.has(key)) {
      if (steps.size > 8) steps.delete(steps.keys().next().value);
      steps.set(key, unpack(packed));
    }
    return steps.get(key);
  }
  return {
    live: false,
    data: async () => all.runs,
    index: run => unpack(all.index[run]),
    async group(run, split, n, group) {
      const found = await step(run, split + '-' + n);
      if (!found) throw new Error(all.left_out[run] || 'this step has no conversations');
      const one = found.find(g => g.group === group);
      if (!one) throw new Error('this step has no group ' + group);
      return one;
    },
    async search(run, text) {
      const hits = [];
      for (const name of Object.keys(all.details[run] || {})) {
        for (const g of await step(run, name)) {
          for (const e of g.episodes) {
            if (textsOf(e).includes(text.toLowerCase())) hits.push([g.split, g.step, g.group, e.index]);
          }
        }
      }
      return {hits, note: all.left_out[run] ? 'Only what this file holds was searched. ' + all.left_out[run] : ''};
    },
    leftOut: run => all.left_out[run] || '',
  };
}

const source = block ? fileSource() : liveSource();
