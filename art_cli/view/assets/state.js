// What is known so far, and what is shown: the address after # says it all, so each view has a link.

const state = {runs: [], index: new Map(), off: new Set()};
const COLOURS = ['#3f7fd0', '#d9772b', '#3a9d6a', '#b05cc6', '#c9a227', '#d1495b', '#4fb3bf', '#8d6e63'];

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/').map(part => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return {view: view || 'overview', run: rest[0] || (state.runs[0] || {}).key || '', rest: rest.slice(1),
    query: new URLSearchParams(query || '')};
}

function link(view, run, rest, query) {
  const path = [view, run, ...(rest || [])].map(encodeURIComponent).join('/');
  const words = new URLSearchParams(query || {}).toString();
  return '#/' + path + (words ? '?' + words : '');
}

function go(to) { location.hash = to; }

function setQuery(changes) {
  const r = route();
  for (const [k, v] of Object.entries(changes)) {
    if (v === '' || v === null || v === undefined || v === false) r.query.delete(k); else r.query.set(k, v);
  }
  history.replaceState(null, '', link(r.view, r.run, r.rest, r.query));
}

function runOf(key) { return state.runs.find(r => r.key === key); }
function colourOf(key) { return COLOURS[Math.max(0, state.runs.findIndex(r => r.key === key)) % COLOURS.length]; }

// A run as it was, and what has come since: new points are added to its curves.
function grown(old, run) {
  if (!old || !run.begin) return {...old, ...run};
  const longer = (a, b) => Object.fromEntries(Object.entries(b).map(([name, values]) => [name, [...(a[name] || []), ...values]]));
  const curves = {...old.curves};
  for (const [name, curve] of Object.entries(run.curves)) curves[name] = longer(curves[name] || {}, curve);
  return {...old, ...run, x: longer(old.x, run.x), curves};
}

// The short rows of a run, as objects; only files that changed are asked for again. Where there are many, the newest
// are given first, and the view is updated as others come; soon, or so late that a run which goes on is not disturbed.
const LATER = 5000;  // milliseconds
async function rowsOf(key) {
  let known = state.index.get(key);
  if (!known) state.index.set(key, known = {revision: 0, parts: new Map(), rows: [], damage: []});
  if (!known.loading && (known.stale === false || (!source.live && known.revision))) return known;
  if (!known.loading) {
    known.stale = false;
    known.loading = source.index(key, known.revision).then(found => {
      for (const part of found.parts) known.parts.set(part.split + '-' + part.step, {step: part.step, damage: part.damage, rows: flatten(part)});
      for (const name of known.parts.keys()) if (!found.files.includes(name)) known.parts.delete(name);
      const parts = [...known.parts.values()].sort((a, b) => a.step - b.step);
      known.rows = parts.flatMap(p => p.rows);
      known.damage = parts.map(p => p.damage).filter(Boolean);
      known.revision = found.revision;
      known.later = found.later;
      clearTimeout(known.again);
      if (found.more || found.later) {
        known.stale = true;
        known.again = setTimeout(() => rowsOf(key).then(() => update && update(true)).catch(() => {}), found.more ? 0 : LATER);
      }
    }).catch(e => { known.stale = true; throw e; }).finally(() => { known.loading = null; });
  }
  await known.loading;
  return known;
}

function flatten(part) {
  const rows = [], columns = part.columns, n = columns.group.length;
  for (let i = 0; i < n; i++) {
    const row = {split: part.split, step: part.step};
    for (const name of WORDS.columns) row[name] = columns[name][i];
    rows.push(row);
  }
  return rows;
}

function groupsOf(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = row.split + '/' + row.step + '/' + row.group;
    let g = groups.get(key);
    if (!g) groups.set(key, g = {split: row.split, step: row.step, group: row.group, scenario: row.scenario, rows: []});
    g.rows.push(row);
  }
  return [...groups.values()];
}

function tally(values) {
  const found = new Map();
  for (const v of values) found.set(v, (found.get(v) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}
