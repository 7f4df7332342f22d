// The overview: what each run came to, and its curves over each other.

const DASHES = ['solid', 'dash', 'dot', 'dashdot'];
const AXES = {step: 'step', seconds: 'seconds of steps and evaluations', tokens: 'tokens sampled', dollars: 'dollars'};

async function overviewView(root) {
  const axis = route().query.get('x') || 'step';
  const head = el('div'), list = el('div', {class: 'charts'}), more = el('div', {class: 'charts'});
  const chooser = el('div');
  root.append(head, el('div', {class: 'row'}, select('Over', Object.entries(AXES), AXES[axis] ? axis : 'step', v => { setQuery({x: v}); update(); })),
    list, el('h2', null, 'All other metrics'), chooser, more);
  const cards = new Map();
  let chosen = (route().query.get('metric') || '').split(',').filter(Boolean);

  function update() {
    head.replaceChildren(...overviewHead(update));
    const names = new Set(state.runs.flatMap(r => Object.keys(r.curves)));
    const first = Object.keys(WORDS.curves).filter(n => names.has(n) && worth(n));
    const others = [...names].filter(n => !(n in WORDS.curves)).sort();
    chooser.replaceChildren(el('div', {class: 'row'}, select('Add a curve', [['', 'choose ...'], ...others.map(n => [n, n])], '', n => {
      if (n && !chosen.includes(n)) chosen = [...chosen, n];
      setQuery({metric: chosen.join(',')});
      update();
    })));
    for (const name of [...first, ...chosen.filter(n => names.has(n))]) {
      if (!cards.has(name)) {
        const [title, meaning] = WORDS.curves[name] || [name, ''];
        const made = card(title, meaning, {first: name === 'val/reward'});
        cards.set(name, made);
        (name in WORDS.curves ? list : more).append(made.made);
      }
      drawCurve(cards.get(name).plot, name, route().query.get('x') || 'step');
    }
  }
  update();
  // Read once behind the page, after its first chart: damage of trajectories is said here, and the other views open at once.
  const damaged = () => (state.index.get(route().run) || {damage: []}).damage.length;
  Promise.race([firstDrawn, new Promise(done => setTimeout(done, 3000))]).then(() => rowsOf(route().run)).then(() => { if (damaged() && root.isConnected) update(); }).catch(() => {});
  return ofRows => { if (!ofRows || damaged()) update(); };
}

// A curve that is 0 throughout is worth no place among the first.
function worth(name) {
  const always = ['val/reward', 'train/reward', 'signal', 'train/tokens', 'loss/entropy', 'loss/ratio_max', 'time/step_s'];
  return always.includes(name) || state.runs.some(r => r.curves[name] && r.curves[name].y.some(v => v !== 0));
}

function overviewHead(update) {
  const parts = [el('h1', null, state.runs.length > 1 ? state.runs.length + ' runs' : state.runs[0].name)];
  if (state.runs.length > 1) parts.push(runTable(update));
  for (const run of state.runs.filter(r => !state.off.has(r.key)).slice(0, 8)) {
    parts.push(el('p', {class: 'verdict'}, state.runs.length > 1 && el('b', null, run.name + ': '), run.verdict,
      run.message && el('span', {class: 'bad'}, ' ' + run.message)));
    parts.push(...findings(run));
    const damage = [...run.damaged, ...((state.index.get(run.key) || {}).damage || [])];
    if (damage.length) parts.push(el('div', {class: 'warning'}, el('b', null, 'What cannot be shown: '), damage.slice(0, 8).map(d => el('div', null, d)),
      damage.length > 8 && el('div', null, 'and ' + (damage.length - 8) + ' more')));
    const leftOut = source.leftOut(run.key);
    if (leftOut) parts.push(el('p', {class: 'small dim'}, leftOut));
  }
  return parts;
}

function findings(run) {
  return (run.findings || []).map(f => el('section', {class: 'finding'}, el('h3', null, f.title, el('span', {class: 'small dim'}, ' ' + f.weight)), el('p', null, f.reason),
    f.evidence && el('p', {class: 'small'}, 'Evidence: ', f.evidence), f.change && el('p', {class: 'small'}, 'Change: ', el('code', null, f.change)),
    f.example && el('p', {class: 'small dim'}, 'Look at: ', f.example)));
}

function runTable(update) {
  const last = (run, name) => { const c = run.curves[name]; return c ? c.y[c.y.length - 1] : null; };
  const rows = state.runs.map(run => [
    el('td', null, el('label', null, el('input', {type: 'checkbox', checked: !state.off.has(run.key), on: {change: e => {
      if (e.target.checked) state.off.delete(run.key); else state.off.add(run.key);
      update();
    }}}), ' ', swatch(run.key), run.name)),
    run.state, run.step + '/' + run.steps, run.curves['val/reward'] ? num(run.curves['val/reward'].y[0], 2) : '-', num(last(run, 'val/reward'), 2),
    num(last(run, 'train/reward'), 2), num(run.x.seconds[run.x.seconds.length - 1]), num(last(run, 'dollars'), 2)]);
  return table(['run', 'state', 'step', 'held-out first', 'last', 'training', 'seconds of steps', 'dollars'], rows);
}

function swatch(key) {
  const made = el('span', {class: 'swatch'});
  made.style.background = colourOf(key);
  return made;
}

function drawCurve(div, name, axis) {
  const traces = [];
  for (const run of state.runs) {
    const c = run.curves[name];
    if (!c || state.off.has(run.key)) continue;
    const dash = DASHES[traces.length % DASHES.length]; // so that curves that coincide are both seen
    const colour = colourOf(run.key), x = c.row.map(n => (run.x[axis] || run.x.step)[n]);
    const trace = {x, y: c.y, name: plain(run.name), mode: c.y.length < 60 ? 'lines+markers' : 'lines', line: {color: colour, width: 2, dash},
      marker: {size: 5}, hovertemplate: '%{y:.4~g}' + (state.runs.length > 1 ? ' ' + plain(run.name) : '') + '<extra></extra>'};
    if (c.ci) trace.error_y = {type: 'data', array: c.ci.map(v => v === null ? 0 : v), color: colour, thickness: 1, width: 3};
    if (c.y.length > 60) trace.opacity = 0.45;
    traces.push(trace);
    if (c.y.length > 60) traces.push({x, y: smooth(c.y), mode: 'lines', line: {color: colour, width: 2.5, dash}, hoverinfo: 'skip'});
  }
  const shown = traces.flatMap(t => t.y), extra = {};
  if (name === 'signal') Object.assign(extra, {range: [0, 1.05], tickformat: '.0%'});
  else if (shown.length && !traces.some(t => t.error_y)) Object.assign(extra, wideEnough(shown));
  draw(div, traces, {xaxis: {title: {text: AXES[axis], font: {size: 10}}, rangemode: 'tozero'}, yaxis: extra});
}

// What moves by less than a thousandth is shown as flat, not as a storm.
function wideEnough(values) {
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  return high - low < 1e-3 * Math.abs(high) || high === low ? {range: [low - 0.1 * (Math.abs(low) || 1), high + 0.1 * (Math.abs(high) || 1)]} : {};
}

function smooth(values) {
  const width = Math.max(3, Math.round(values.length / 30));
  return values.map((_, i) => mean(values.slice(Math.max(0, i - width), i + width + 1)));
}
