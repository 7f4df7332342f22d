// Which view is shown, the keys, and following a run that goes on.

const VIEWS = {overview: ['Overview', overviewView], groups: ['Groups', groupsView], tokens: ['Tokens', tokensView], before: ['Before and after', beforeView],
  behaviour: ['Behaviour', behaviourView], episodes: ['Episodes', episodesView]};
const INNER = {group: ['groups', groupView], compare: ['before', compareView]};
const KEYS = {'1 to 6': 'the views', 'j, k': 'next group, group before', '/': 'search', 't': 'light or dark', '?': 'this list', 'Esc': 'close it'};
const main = document.getElementById('main'), PAUSE = 1000; // milliseconds between looks at a run
let update = null, turn = 0;

async function render() {
  const mine = ++turn, r = route(), root = el('div');
  update = null;
  const [current, view] = INNER[r.view] || [r.view, (VIEWS[r.view] || VIEWS.overview)[1]];
  showNav(current, r);
  document.title = (VIEWS[current] || VIEWS.overview)[0] + ' - ' + clean(r.run);
  main.replaceChildren(root);
  try {
    if (!runOf(r.run)) throw new Error('there is no run ' + r.run + ' on this page');
    const found = await view(root, r);
    if (mine === turn) update = found || null;
  } catch (e) {
    if (mine === turn) root.append(el('div', {class: 'warning', role: 'alert'}, e.message));
  }
  if (mine === turn) main.dataset.ready = r.view;
}

function showNav(current, r) {
  delete main.dataset.ready;
  document.getElementById('nav').replaceChildren(...Object.entries(VIEWS).map(([name, [title]]) =>
    el('a', {href: link(name, r.run), 'aria-current': name === current && 'page'}, title)));
  const chooser = document.getElementById('run');
  chooser.replaceChildren(...state.runs.map(run => el('option', {value: run.key}, run.name)));
  chooser.value = r.run;
  chooser.parentElement.hidden = state.runs.length < 2;
}

async function look() {
  try {
    const runs = document.hidden && state.runs.length ? null : await source.data();
    if (runs) {
      const isFirst = !state.runs.length;
      state.runs = runs.map(run => grown(runOf(run.key), run));
      for (const known of state.index.values()) known.stale = true;
      if (isFirst) await render(); else if (update) await update();
    }
    const going = state.runs.filter(run => run.state === 'running');
    say(!source.live ? 'a file, as of its writing' : going.length ? 'live, step ' + going.map(run => run.step + waiting(run.key)).join(', ') : 'up to date');
  } catch (e) {
    say(e instanceof TypeError ? 'art view has ended: start it again' : e.message);
  }
  if (source.live) setTimeout(look, PAUSE);
}

function waiting(key) { // files of a run that goes on, whose reading would disturb it
  const later = (state.index.get(key) || {}).later;
  return later ? ' (episodes of ' + later + ' more to be read)' : '';
}

function say(text) {
  const live = document.getElementById('live');
  if (live.textContent !== text) live.textContent = text;
}

function redrawn() { // charts have their colours from the theme
  switchTheme();
  render();
}

function help() {
  const box = document.getElementById('help');
  box.replaceChildren(el('h2', null, 'Keys'), el('dl', null, Object.entries(KEYS).map(([k, v]) => [el('dt', null, k), el('dd', null, v)])),
    el('button', {type: 'button', on: {click: () => box.close()}}, 'Close'));
  box.showModal();
}

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const views = Object.keys(VIEWS), r = route();
  if (/^[1-6]$/.test(e.key)) go(link(views[e.key - 1], r.run));
  else if (e.key === 'j' || e.key === 'k') { const to = main.querySelector('[data-key="' + e.key + '"]'); if (to) to.click(); }
  else if (e.key === '/') {
    e.preventDefault();
    const box = document.getElementById('search');
    if (box) box.focus(); else { go(link('episodes', r.run)); setTimeout(() => document.getElementById('search')?.focus(), 300); }
  } else if (e.key === 't') redrawn();
  else if (e.key === '?') help();
});
document.getElementById('theme').addEventListener('click', redrawn);
document.getElementById('keys').addEventListener('click', help);
document.getElementById('run').addEventListener('change', e => { const r = route(); go(link(INNER[r.view] ? INNER[r.view][0] : r.view, e.target.value)); });
document.querySelector('.skip').addEventListener('click', e => { e.preventDefault(); main.focus(); });
window.addEventListener('hashchange', () => { scrollTo(0, 0); render(); });
startTheme();
look();
