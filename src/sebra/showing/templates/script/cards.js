// Samples as buttons in grids: one stop for the Tab key per grid, arrows inside.
const TINY = 64;
const sharpen = (image) => {
  const check = () => image.classList.toggle("tiny", image.naturalWidth > 0 && image.naturalWidth <= TINY);
  if (image.complete) check();
  image.addEventListener("load", check);
};
const altOf = (sample) =>
  `${shortened(report.classes[sample.label], 60)}, rank ${sample.rank}: ${shortened(sample.id, 120)}`;

const card = (number) => {
  const item = byId("card").content.firstElementChild.cloneNode(true);
  const tile = item.firstElementChild;
  const sample = samples[number];
  tile.dataset.s = number;
  const source = picture(number);
  if (source) {
    const image = document.createElement("img");
    image.alt = altOf(sample);
    image.decoding = "async";
    image.src = source;
    sharpen(image);
    tile.prepend(image);
  } else {
    const excerpt = document.createElement("span");
    excerpt.className = "excerpt";
    const text = document.createElement("bdi");
    text.textContent = shortened(sample.text || sample.id, 160);
    excerpt.append(text);
    tile.prepend(excerpt);
  }
  tile.querySelector(".rank").textContent = sample.rank;
  return item;
};

const dress = (tile) => {
  const sample = samples[Number(tile.dataset.s)];
  tile.title = shortened(sample.id, 1000);
  const marked = marks.get(sample.id);
  let flag = tile.querySelector(".mark");
  if (marked) {
    tile.dataset.mark = marked.mark;
    if (!flag) {
      flag = document.createElement("span");
      flag.className = "mark";
      tile.append(flag);
    }
    flag.textContent = marked.mark;
  } else {
    delete tile.dataset.mark;
    flag?.remove();
  }
};

const fillGrid = (grid, numbers) => {
  grid.replaceChildren(...numbers.map(card));
  readyGrid(grid);
};
const tilesOf = (grid) => [...grid.querySelectorAll(".tile")];
const readyGrid = (grid) => {
  const tiles = tilesOf(grid);
  tiles.forEach((tile, i) => { tile.tabIndex = i === 0 ? 0 : -1; dress(tile); });
};

// Tiles of the markup without a picture get theirs when they come near the screen.
const fillTiles = () => {
  const fill = (tile) => {
    const image = tile.querySelector("img:not([src])");
    if (image) image.src = picture(Number(tile.dataset.s)) ?? "";
  };
  const watch = new IntersectionObserver((seen) => {
    for (const entry of seen) {
      if (entry.isIntersecting) { fill(entry.target); watch.unobserve(entry.target); }
    }
  }, { rootMargin: "600px" });
  for (const image of document.querySelectorAll(".tile img")) {
    sharpen(image);
    if (!image.hasAttribute("src")) watch.observe(image.parentElement);
  }
  addEventListener("beforeprint", () => document.querySelectorAll(".tile").forEach(fill));
};

const moveFocus = (tile, key) => {
  const grid = tile.closest(".grid");
  const tiles = tilesOf(grid);
  const top = tiles[0].offsetTop;
  const across = tiles.findIndex((other) => other.offsetTop > top);
  const columns = across === -1 ? tiles.length : across;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  let place = key === "Home" ? 0 : key === "End" ? tiles.length - 1 : tiles.indexOf(tile) + step;
  if (place < 0 || place >= tiles.length) return;
  tile.tabIndex = -1;
  tiles[place].tabIndex = 0;
  tiles[place].focus();
};
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]);
