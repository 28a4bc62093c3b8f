// One sample large, with its figures, its path and the marks.
const detail = byId("detail");
let shown = null; // { number, tiles, place }

const row = (label, value) => {
  const line = document.createElement("tr");
  const head = document.createElement("th");
  const data = document.createElement("td");
  head.scope = "row";
  for (const [element, text] of [[head, label], [data, value]]) {
    const isolated = document.createElement("bdi");
    isolated.className = "name";
    isolated.textContent = shortened(String(text), 200);
    isolated.title = String(text).length > 200 ? shortened(String(text), 1000) : "";
    element.append(isolated);
  }
  line.append(head, data);
  return line;
};
const facts = (sample) => {
  const rows = [["class", report.classes[sample.label]],
    ["rank", `${sample.rank} of 0–${report.sizes[sample.label] - 1}`]];
  if (sample.bucket !== null) rows.push(["bucket", sample.bucket]);
  if (sample.spuriosity !== null) rows.push(["spuriosity", sample.spuriosity.toFixed(3)]);
  sample.stages.forEach((value, k) => {
    if (value === null) return;
    rows.push([`pattern ${k + 1}`, `${value.toFixed(3)}, ${value > FOLLOWS ? "follows" : "breaks"} it`]);
  });
  if (sample.noise !== null) rows.push(["noise", sample.noise.toFixed(3)]);
  if (sample.suggested && sample.suggested !== report.classes[sample.label]) rows.push(["suggested label", sample.suggested]);
  if (sample.why) rows.push(["why", sample.why]);
  sample.attributes.forEach((value, k) => { if (value) rows.push([report.attributes[k], value]); });
  const marked = marks.get(sample.id);
  if (marked) rows.push(["mark", marked.label ? `${marked.mark} as ${marked.label}` : marked.mark]);
  return rows;
};
const drawPicture = (number) => {
  const sample = samples[number];
  const source = largePicture(number);
  const element = document.createElement(source ? "button" : "p");
  if (source) {
    const image = document.createElement("img");
    image.alt = altOf(sample);
    image.src = source;
    sharpen(image);
    element.type = "button";
    element.className = "zoom";
    element.title = "Whole window and back (F)";
    element.append(image);
  } else {
    element.dir = "auto";
    element.textContent = sample.text || "No picture of this sample is in this file.";
  }
  byId("d-picture").replaceChildren(element);
};
// The picture alone, as large as the window allows; again for the figures beside it.
const zoom = () => detail.classList.toggle("whole");
const drawMarks = (sample) => {
  const marked = marks.get(sample.id);
  for (const button of detail.querySelectorAll("[data-mark]")) {
    if (button.dataset.mark) button.setAttribute("aria-pressed", String(marked?.mark === button.dataset.mark));
  }
  const label = marked?.label === undefined ? otherLabel(sample) : report.classes.indexOf(marked.label);
  byId("d-label").value = String(label);
};
const drawDetail = () => {
  const sample = samples[shown.number];
  byId("d-title").textContent = `${shortened(report.classes[sample.label], 60)}, rank ${sample.rank}`;
  byId("d-id").textContent = sample.id;
  byId("d-table").replaceChildren(...facts(sample).map(([label, value]) => row(label, value)));
  byId("d-place").textContent = `${shown.place + 1} of ${shown.tiles.length}`;
  byId("d-previous").disabled = shown.place === 0;
  byId("d-next").disabled = shown.place === shown.tiles.length - 1;
  const original = byId("d-original"); // beside the page's own file, not where it is served
  original.hidden = !report.originals || location.protocol !== "file:";
  original.firstElementChild.href = report.originals + sample.id.split("/").map(encodeURIComponent).join("/");
  drawMarks(sample);
};
const openDetail = (tile) => {
  const tiles = tilesOf(tile.closest(".suspects") ?? tile.closest(".grid"));
  shown = { number: Number(tile.dataset.s), tiles, place: tiles.indexOf(tile) };
  drawPicture(shown.number);
  drawDetail();
  if (!detail.open) detail.showModal();
};
const turn = (step) => {
  const tile = shown.tiles[shown.place + step];
  if (tile) openDetail(tile);
};
const markShown = (mark, label) => {
  setMark(shown.number, mark, label);
  drawDetail();
};
const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    (detail.open ? detail : document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
};

detail.addEventListener("close", () => {
  detail.classList.remove("whole");
  const tile = shown.tiles[shown.place];
  for (const other of tilesOf(tile.closest(".grid") ?? tile)) other.tabIndex = -1;
  tile.tabIndex = 0;
  tile.focus();
});
detail.addEventListener("click", (event) => {
  if (event.target === detail) { detail.close(); return; }
  if (event.target.closest(".zoom")) { zoom(); return; }
  const button = event.target.closest("button[data-mark]");
  if (!button) return;
  const label = button.dataset.mark === "relabel" ? Number(byId("d-label").value) : undefined;
  markShown(button.dataset.mark, label);
});
byId("d-label").addEventListener("change", (event) => markShown("relabel", Number(event.target.value)));
byId("d-close").addEventListener("click", () => detail.close());
byId("d-previous").addEventListener("click", () => turn(-1));
byId("d-next").addEventListener("click", () => turn(1));
