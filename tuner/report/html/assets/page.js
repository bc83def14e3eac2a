// Draws each figure when it comes near the window, and anew with another theme or width. common.js, search.js,
// timing.js and this file are one script on the page.

const DRAW = {
  convergence,
  outcomes,
  comparison,
  importance,
  effects,
  parallel,
  roofline,
  samples,
  clocks,
  history,
  overview,
};
const figures = JSON.parse(document.getElementById("data").textContent);
const drawn = new Map();
function draw(element) {
  const figure = figures[element.id];
  const width = element.clientWidth || element.parentElement.clientWidth - 36;
  const { height, option, width: least } = DRAW[figure.kind](figure, width);
  const canvas = element.firstElementChild || element.appendChild(document.createElement("div"));
  element.style.minHeight = "";
  canvas.style.height = `${height}px`;
  canvas.style.width = `${Math.max(width, least || 0)}px`;
  element.toggleAttribute("tabindex", false);
  if (canvas.clientWidth > width) element.tabIndex = 0; // so that the arrow keys scroll it
  const chart = echarts.getInstanceByDom(canvas) || echarts.init(canvas);
  chart.resize();
  chart.setOption(option, true);
  drawn.set(element, width);
}
const charts = [...document.querySelectorAll(".chart")];
const redraw = () => {
  readColours();
  drawn.forEach((_, element) => draw(element));
};
document.documentElement.classList.add("scripted");
readColours();
for (const element of charts) element.style.minHeight = "200px"; // so that not all are near at first
const near = new IntersectionObserver(
  (entries) =>
    entries
      .filter((e) => e.isIntersecting)
      .forEach(({ target }) => {
        near.unobserve(target);
        draw(target);
      }),
  { rootMargin: "400px" },
);
charts.forEach((element) => near.observe(element));
const sized = new ResizeObserver((entries) =>
  entries.forEach(({ target }) => {
    if (drawn.has(target) && Math.abs(drawn.get(target) - target.clientWidth) > 2) draw(target);
  }),
);
charts.forEach((element) => sized.observe(element));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.querySelectorAll("input[name=theme]").forEach((input) => input.addEventListener("change", redraw));
addEventListener("beforeprint", () => charts.filter((element) => !drawn.has(element)).forEach(draw));
