// What the page knows of its samples. A name from the data only ever becomes text, never markup.
const byId = (id) => document.getElementById(id);
const parsed = (id) => JSON.parse(byId(id).textContent);
const report = parsed("data");
const FOLLOWS = 0.5;

const samples = report.columns.id.map((id, i) => ({
  id,
  label: report.columns.label[i],
  rank: report.columns.rank[i],
  bucket: report.columns.bucket[i],
  spuriosity: report.columns.spuriosity[i],
  stages: report.columns.stages.map((column) => column[i]),
  noise: report.columns.noise && report.columns.noise[i],
  suggested: report.columns.suggested && report.columns.suggested[i],
  why: report.columns.why && report.columns.why[i],
  attributes: report.columns.attributes.map((column) => column[i]),
  text: report.columns.text[i],
}));
const shownCount = samples.length;
const numberOf = new Map(samples.map((sample, i) => [sample.id, i]));

// Pictures of the galleries stand in the markup; the large rest is parsed when first needed.
const inMarkup = new Map();
let later = null;
const picture = (number) => {
  if (!inMarkup.size) {
    for (const image of document.querySelectorAll(".tile img[src]")) {
      inMarkup.set(Number(image.parentElement.dataset.s), image.src);
    }
  }
  if (inMarkup.has(number)) return inMarkup.get(number);
  later ??= parsed("pictures");
  return later[number];
};

// Some are also there larger, for the dialog.
let larger = null;
const largePicture = (number) => (larger ??= parsed("large"))[number] ?? picture(number);

// The ids of all samples, known or not by picture; null where they were too many for the file.
let index;
const everyId = () => (index === undefined ? (index = parsed("index")) : index);

// A sample that is not in the file with its picture becomes one with what the index knows.
const numberFor = (id, label, rank) => {
  if (!numberOf.has(id)) {
    numberOf.set(id, samples.length);
    samples.push({ id, label, rank, bucket: null, spuriosity: null, stages: [], noise: null,
      suggested: null, why: null, attributes: [], text: "" });
  }
  return numberOf.get(id);
};

const shortened = (text, most) => {
  if (text.length <= most) return text;
  const tail = Math.floor(most / 3);
  return `${text.slice(0, most - tail - 1)}…${text.slice(-tail)}`;
};
const say = (text) => { byId("said").textContent = text; };

// Kept between visits where the browser allows it to a file.
const keep = (key, value) => { try { localStorage.setItem(key, value); } catch { /* not allowed */ } };
const kept = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
