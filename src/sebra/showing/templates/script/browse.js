// Filters over the samples in the file, and a search over all ids.
const PAGE = 48;
const MOST_FOUND = 500; // by the search among samples without a picture
let found = [];
let visibleCount = PAGE;

const field = (id) => byId(id)?.value ?? "";
const matches = (sample, wanted) => {
  if (wanted.label !== "" && sample.label !== Number(wanted.label)) return false;
  if (wanted.search && !sample.id.toLowerCase().includes(wanted.search)) return false;
  const mark = marks.get(sample.id)?.mark;
  if (wanted.mark === "marked" ? !mark : wanted.mark && mark !== wanted.mark) return false;
  if (wanted.bias) {
    const value = sample.stages[parseInt(wanted.bias, 10)];
    if (value === undefined || value === null || (value > FOLLOWS) !== wanted.bias.endsWith("+")) return false;
  }
  if (sample.spuriosity !== null && (sample.spuriosity < wanted.low || sample.spuriosity > wanted.high)) return false;
  return !wanted.noise || (sample.noise !== null && sample.noise >= wanted.noise);
};
const searchIndex = (wanted) => {
  const plain = !wanted.bias && !wanted.mark && !wanted.noise && wanted.low === 0 && wanted.high === 1;
  if (!wanted.search || !plain || !everyId()) return [];
  const more = [];
  everyId().forEach((part, label) => {
    if (wanted.label !== "" && label !== Number(wanted.label)) return;
    for (let rank = 0; rank < part.ids.length && more.length < MOST_FOUND; rank += 1) {
      const id = part.prefix + part.ids[rank];
      if (!id.toLowerCase().includes(wanted.search)) continue;
      if ((numberOf.get(id) ?? shownCount) >= shownCount) more.push(numberFor(id, label, rank));
    }
  });
  return more;
};
const search = () => {
  const wanted = {
    search: field("f-search").trim().toLowerCase(), label: field("f-class"), bias: field("f-bias"),
    mark: field("f-mark"), low: Number(field("f-low")), high: Number(field("f-high")), noise: Number(field("f-noise")),
  };
  for (const output of byId("filters").querySelectorAll("output")) {
    output.textContent = Number(byId(output.htmlFor.value).value).toFixed(2);
  }
  found = [];
  const last = wanted.mark ? samples.length : shownCount;
  for (let i = 0; i < last; i += 1) if (matches(samples[i], wanted)) found.push(i);
  found.sort((a, b) => samples[a].label - samples[b].label || samples[a].rank - samples[b].rank);
  const more = searchIndex(wanted);
  found.push(...more);
  visibleCount = PAGE;
  const note = more.length ? `, ${more.length === MOST_FOUND ? "the first " : ""}${more.length} of them without a picture` : "";
  byId("f-count").textContent = `${found.length} samples${note}`;
  drawFound();
};
const drawFound = () => {
  fillGrid(byId("f-grid"), found.slice(0, visibleCount));
  byId("f-more").hidden = found.length <= visibleCount;
};
let waiting = 0;
const searchSoon = () => {
  clearTimeout(waiting);
  waiting = setTimeout(search, 120);
};
const readyBrowse = () => {
  const form = byId("filters");
  form.addEventListener("input", searchSoon);
  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  form.addEventListener("reset", () => setTimeout(search));
  byId("f-more").addEventListener("click", () => {
    const next = visibleCount;
    visibleCount += PAGE;
    drawFound();
    tilesOf(byId("f-grid"))[next]?.focus();
  });
  search();
};
