// The page as a whole: colours, keys, and what waits until the first screen is painted.
const THEMES = { auto: ["Auto", "as the system has them"], light: ["Light", "light"], dark: ["Dark", "dark"] };
const setTheme = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const [text, spoken] = THEMES[theme];
  byId("theme").textContent = text;
  byId("theme").setAttribute("aria-label", `Colours: ${spoken}`);
  byId("theme").dataset.now = theme;
};
setTheme(kept("sebra-theme") in THEMES ? kept("sebra-theme") : "auto");
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(byId("theme").dataset.now) + 1) % names.length];
  setTheme(next);
  keep("sebra-theme", next);
});

document.addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) openDetail(tile);
  const copy = event.target.closest(".copy");
  if (copy) {
    copyText(copy.previousElementSibling.textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const choosing = event.target.closest("#d-label");
  if (!choosing && event.target.closest("input, select, textarea")) return;
  const tile = event.target.closest(".tile");
  const key = event.key.toLowerCase();
  if (detail.open) {
    if (choosing && !(key in KEYS)) return;
    if (event.key === "ArrowLeft") turn(-1);
    else if (event.key === "ArrowRight") turn(1);
    else if (key === "f" && !choosing) zoom();
    else if (key in KEYS) {
      event.preventDefault();
      markShown(KEYS[key], key === "r" ? nextLabel(samples[shown.number]) : undefined);
    }
  } else if (tile && MOVES.has(event.key)) {
    event.preventDefault();
    moveFocus(tile, event.key);
  } else if (tile && key in KEYS) {
    event.preventDefault();
    setMark(Number(tile.dataset.s), KEYS[key]);
    if (key === "r") openDetail(tile);
  }
});
byId("export").addEventListener("click", exportMarks);
byId("clear").addEventListener("click", clearMarks);

byId("class-choice")?.addEventListener("change", (event) => {
  for (const panel of document.querySelectorAll("#classes details.class")) {
    panel.hidden = event.target.value !== "" && panel.dataset.class !== event.target.value;
    if (event.target.value !== "" && !panel.hidden) panel.open = true;
  }
});
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((panel) => { panel.open = true; });
});

requestAnimationFrame(() => setTimeout(async () => {
  await readyVerdicts();
  document.querySelectorAll(".grid").forEach((grid) => { if (grid.children.length) readyGrid(grid); });
  fillTiles();
  readyRanges();
  if (byId("filters")) readyBrowse();
  marksChanged();
  document.documentElement.dataset.ready = "yes";
}));
