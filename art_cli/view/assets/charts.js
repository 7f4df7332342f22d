// Charts, drawn by Plotly. It reads markup in names and labels, so these are escaped.

function plain(text) {
  const shown = clean(text);
  const cut = shown.length > 60 ? shown.slice(0, 57) + '...' : shown;
  return cut.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

function layout(extra) {
  const look = getComputedStyle(document.documentElement), of = name => look.getPropertyValue(name).trim();
  const axis = {gridcolor: of('--line'), zerolinecolor: of('--line'), linecolor: of('--line'), automargin: true};
  const more = extra || {};
  return {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', uirevision: 'kept',
    font: {color: of('--text'), size: 11, family: 'system-ui, sans-serif'},
    margin: {l: 40, r: 12, t: 6, b: 34}, showlegend: false, hovermode: 'x',
    hoverlabel: {bgcolor: of('--soft'), font: {color: of('--text')}},
    legend: {orientation: 'h', y: -0.2, font: {size: 10}},
    ...more, xaxis: {...axis, ...more.xaxis}, yaxis: {...axis, ...more.yaxis},
  };
}

// Plotly is large: it is loaded when the first view with charts is opened, and each chart is drawn when it is scrolled to.
const plotly = document.currentScript.dataset.plotly; // in a file, it is there
let drawable = plotly ? null : new Promise(done => window.addEventListener('load', done)), drawn;
const firstDrawn = new Promise(done => { drawn = done; });
const watcher = new IntersectionObserver(seen => seen.filter(s => s.isIntersecting).forEach(s => paint(s.target)), {rootMargin: '200px'});
const jobs = new WeakMap();

function draw(div, traces, extra) {
  jobs.set(div, Object.assign(jobs.get(div) || {painted: false, then: null}, {traces, extra}));
  watcher.observe(div);
}

function load() {
  return drawable ??= new Promise(done => document.head.append(el('script', {src: plotly, on: {load: done, error: done}})));
}

async function paint(div) {
  watcher.unobserve(div);
  await load();
  const job = jobs.get(div);
  if (!window.Plotly) { div.textContent = 'The chart could not be drawn: its script is missing.'; return; }
  await Plotly.react(div, job.traces, layout(job.extra), {displayModeBar: false, responsive: true});
  if (!job.painted && job.then) job.then();
  job.painted = true;
  drawn();
}

function onClick(div, run) {
  jobs.get(div).then = () => div.on('plotly_click', e => run(e.points[0]));
}

// A card with a title, what it means (on hover, and on a click or a key), and a place for the plot.
function card(title, meaning, options) {
  load();
  const o = options || {};
  const plot = el('div', {class: 'plot' + (o.tall ? ' tall' : o.named ? ' named' : ''), role: 'img', 'aria-label': o.label || title});
  const words = el('p', {class: 'meaning small dim', hidden: true}, meaning);
  const about = meaning && el('button', {class: 'about', type: 'button', title: meaning, 'aria-label': 'What is ' + title + '?',
    on: {click: () => { words.hidden = !words.hidden; }}}, 'i');
  const made = el('section', {class: 'chart' + (o.first ? ' first' : '')}, el('h3', {title: meaning}, title, about), words, plot);
  return {made, plot};
}

function shares(rows, label, most) {
  // Lines of the share of each label among those of a step. `label` gives the labels of a row.
  const steps = [...new Set(rows.map(r => r.step))].sort((a, b) => a - b), at = new Map(steps.map((s, i) => [s, i]));
  const counts = new Map(), totals = steps.map(() => 0);
  for (const row of rows) {
    for (const name of label(row)) {
      if (!counts.has(name)) counts.set(name, steps.map(() => 0));
      counts.get(name)[at.get(row.step)] += 1;
      totals[at.get(row.step)] += 1;
    }
  }
  const sum = values => values.reduce((a, b) => a + b, 0);
  return [...counts].sort((a, b) => sum(b[1]) - sum(a[1])).slice(0, most || 8).map(([name, n], i) => ({
    x: steps, y: n.map((v, j) => totals[j] ? v / totals[j] : null), name: plain(name), mode: steps.length < 60 ? 'lines+markers' : 'lines',
    marker: {size: 4}, line: {color: COLOURS[i % COLOURS.length]}, hovertemplate: '%{y:.1%} ' + plain(name) + '<extra></extra>',
  }));
}
