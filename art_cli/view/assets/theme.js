// Light or dark: as it was chosen last, or as the system is.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem('art-theme', theme); } catch { /* a file may not keep anything */ }
}

function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem('art-theme'); } catch { /* a file may not keep anything */ }
  document.documentElement.dataset.theme = kept || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
}

function switchTheme() { setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); }
