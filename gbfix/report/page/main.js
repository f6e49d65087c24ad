// Draws the page; what is long is drawn when it is opened.

readAddress();
drawTop(document.getElementById('top'));
drawTotals(document.getElementById('totals'));
drawMap(document.getElementById('map'));
drawFilters(document.getElementById('filters'));
drawEntries(document.getElementById('entries'));
drawFiles(document.getElementById('files'));
drawDeclined(document.getElementById('declined'));
fill(document.getElementById('bottom'),
  `Made by gbfix ${DATA.gbfix}, migration ${DATA.id}. Break sites are found by reading the code; graph breaks, fragments and verdicts by running it.`);
for (const listener of LISTENERS) listener();
addEventListener('hashchange', () => {
  if (!location.hash.includes('=')) return;
  readAddress();
  for (const listener of LISTENERS) listener();
});
document.documentElement.dataset.ready = 'true';
