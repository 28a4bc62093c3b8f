// What a person says of patterns and suspects. Under `sebra review` each verdict is saved at once;
// a page opened as a file keeps them in the browser and exports the same file.
const token = new URLSearchParams(location.search).get("token");
const served = location.protocol === "http:" && token !== null;
const verdictsKey = `sebra-verdicts-${report.verdicts.ranking ?? marksKey}`;
const said = { patterns: new Map(), suspects: new Map() }; // by key: { verdict, note }
const base = JSON.stringify(report.verdicts); // what was said when the file was written
let unsaved = "";
let underWay = 0; // verdicts on their way
const takeIn = (found) => {
  for (const kind of Object.keys(said)) said[kind] = new Map(Object.entries(found[kind] ?? {}));
};
takeIn(report.verdicts);
if (!served) try {
  const before = JSON.parse(kept(verdictsKey));
  if (before?.base === base) takeIn(before); // else the file has newer ones
} catch { /* written by something else */ }

const plain = () =>
  Object.fromEntries(Object.entries(said).map(([kind, map]) => [kind, Object.fromEntries(map)]));
const markEntry = (entry) =>
  (entry.label ? { verdict: entry.mark, label: entry.label } : { verdict: entry.mark });
const verdictsFile = () => {
  const theirs = Object.fromEntries([...marks].map(([id, entry]) => [id, markEntry(entry)]));
  return JSON.stringify({ ...report.verdicts, ...plain(), marks: theirs }, null, 1);
};
const ask = async (change) => {
  const options = change === undefined ? {} : { method: "POST", body: JSON.stringify(change),
    headers: { "Content-Type": "application/json" } };
  const answer = await fetch(`/verdicts?token=${encodeURIComponent(token)}`, options);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};
let queue = Promise.resolve();
const save = (kind, key, entry) => {
  if (!served) {
    keep(verdictsKey, JSON.stringify({ base, ...plain() }));
    return;
  }
  underWay += 1;
  queue = queue.then(() => ask({ kind, key, entry })).then(
    () => { unsaved = ""; },
    (error) => { unsaved = `Not saved: ${error.message}. Is sebra review still running?`; },
  ).then(() => { underWay -= 1; marksChanged(); });
};
const saveMark = (id) => {
  if (served) save("marks", id, marks.has(id) ? markEntry(marks.get(id)) : null);
};

const groups = () => document.querySelectorAll("[data-kind]");
const drawVerdicts = () => {
  for (const group of groups()) {
    const entry = said[group.dataset.kind].get(group.dataset.key);
    for (const button of group.querySelectorAll("[data-verdict]")) {
      button.setAttribute("aria-pressed", String(entry?.verdict === button.dataset.verdict));
    }
    const note = group.querySelector("input");
    if (note && document.activeElement !== note) note.value = entry?.note ?? "";
  }
};
const showTray = (marked) => {
  const judged = said.patterns.size;
  const suspects = said.suspects.size;
  const parts = [marked];
  if (judged) parts.push(`${judged} of ${report.stages.length} patterns judged`);
  if (suspects) parts.push(`${suspects} suspects judged`);
  if (served) parts.push(unsaved || (underWay ? "saving …" : "saved in verdicts.json"));
  const any = marks.size || judged || suspects || unsaved;
  byId("tray").hidden = !any;
  byId("tray-text").textContent = parts.filter(Boolean).join("; ");
  byId("tray").classList.toggle("unsaved", Boolean(unsaved));
  byId("export-verdicts").hidden = !report.verdicts.ranking;
  byId("export").hidden = byId("clear").hidden = !marks.size;
};
const judge = (group, verdict, note) => {
  const { kind, key } = group.dataset;
  if (verdict) said[kind].set(key, note ? { verdict, note } : { verdict });
  else said[kind].delete(key);
  save(kind, key, said[kind].get(key) ?? null);
  say(verdict ? `Called ${verdict}` : "Verdict taken back");
  drawVerdicts();
  marksChanged();
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-verdict]");
  if (!button) return;
  const group = button.closest("[data-kind]");
  const again = button.getAttribute("aria-pressed") === "true";
  judge(group, again ? "" : button.dataset.verdict, group.querySelector("input")?.value.trim());
});
document.addEventListener("change", (event) => {
  const group = event.target.closest("[data-kind]");
  if (!group) return;
  const entry = said[group.dataset.kind].get(group.dataset.key);
  judge(group, entry?.verdict ?? "unsure", event.target.value.trim());
});
byId("export-verdicts").addEventListener("click", () => {
  download("verdicts.json", verdictsFile(), "application/json");
  say("Verdicts exported");
});
const readyVerdicts = async () => {
  if (served) try {
    const found = await ask();
    takeIn(found);
    marks.clear();
    for (const [id, entry] of Object.entries(found.marks)) {
      marks.set(id, { mark: entry.verdict, label: entry.label });
    }
  } catch (error) { unsaved = `Not connected: ${error.message}`; }
  drawVerdicts();
};
