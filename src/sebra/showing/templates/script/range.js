// The whole range of a class behind a slider: a window over samples spread evenly along the rank.
const WINDOW = 8;
const readyRange = (range) => {
  const numbers = range.dataset.spread.split(" ").map(Number);
  const slider = range.querySelector("input");
  const grid = range.querySelector(".grid");
  slider.max = String(Math.max(0, numbers.length - WINDOW));
  slider.disabled = numbers.length <= WINDOW;
  const draw = () => {
    const start = Math.min(Number(slider.value), Number(slider.max));
    const window = numbers.slice(start, start + WINDOW);
    const first = samples[window[0]];
    const last = samples[window[window.length - 1]];
    const where = `ranks ${first.rank}–${last.rank} of 0–${report.sizes[first.label] - 1}`;
    range.querySelector(".where").textContent = where;
    slider.setAttribute("aria-valuetext", where);
    fillGrid(grid, window);
  };
  slider.addEventListener("input", draw);
  draw();
};
const readyRanges = () => {
  const watch = new IntersectionObserver((seen) => {
    for (const entry of seen) {
      if (entry.isIntersecting) { readyRange(entry.target); watch.unobserve(entry.target); }
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll(".range").forEach((range) => watch.observe(range));
};
