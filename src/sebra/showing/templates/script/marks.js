// Marks by id: { mark, label }, kept between visits and exported as CSV that `sebra` reads back.
const KEYS = { k: "keep", r: "relabel", d: "drop", s: "spurious", u: "" };
const marksKey = `sebra-marks-${document.title}-${report.sizes.join("-")}`;
const marks = new Map();
try {
  for (const [id, entry] of JSON.parse(kept(marksKey)) ?? []) marks.set(id, entry);
} catch { /* written by something else */ }

const otherLabel = (sample) => {
  const suggested = report.classes.indexOf(sample.suggested);
  if (suggested >= 0 && suggested !== sample.label) return suggested;
  return report.classes.length > 1 ? (sample.label + 1) % report.classes.length : sample.label;
};
// `R` again goes on to the next class, so that nobody has to leave the keys for the list.
const nextLabel = (sample) => {
  const now = report.classes.indexOf(marks.get(sample.id)?.label);
  if (now < 0) return otherLabel(sample);
  const next = (now + 1) % report.classes.length;
  return next === sample.label ? (next + 1) % report.classes.length : next;
};
const setMark = (number, mark, label) => {
  const sample = samples[number];
  if (mark) {
    const entry = { mark };
    if (mark === "relabel") entry.label = report.classes[label ?? otherLabel(sample)];
    marks.set(sample.id, entry);
  } else {
    marks.delete(sample.id);
  }
  say(mark ? `Marked ${mark}` : "Unmarked");
  saveMark(sample.id);
  marksChanged();
};
const marksChanged = () => {
  if (!served) keep(marksKey, JSON.stringify([...marks]));
  document.querySelectorAll(".tile").forEach(dress);
  const counts = {};
  for (const { mark } of marks.values()) counts[mark] = (counts[mark] ?? 0) + 1;
  const parts = Object.entries(counts).map(([mark, n]) => `${n} ${mark}`);
  showTray(marks.size ? `${marks.size} marked: ${parts.join(", ")}` : "");
};

// A leading apostrophe keeps a spreadsheet from running a name as a formula; one that is there
// already gets another, so that reading back can always take one away.
const cell = (text) => {
  const guarded = /^[=+\-@\t\r']/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
};
const marksCsv = () => {
  const rows = [...marks].map(([id, entry]) => [id, entry.mark, entry.label ?? ""].map(cell).join(","));
  return ["id,mark,label", ...rows, ""].join("\r\n");
};
const download = (name, text, type) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const exportMarks = () => {
  download("marks.csv", marksCsv(), "text/csv");
  say(`${marks.size} marks exported`);
};
const clearMarks = () => {
  if (!confirm(`Forget all ${marks.size} marks?`)) return;
  const ids = [...marks.keys()];
  marks.clear();
  ids.forEach(saveMark);
  marksChanged();
};
