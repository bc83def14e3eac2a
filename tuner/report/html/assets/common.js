// What all figures have in common: colours, numbers, axes, lines. Texts of the data only ever become text on a canvas:
// formatters are functions, tooltips are drawn, not HTML.

const COLOURS = ["page", "panel", "line", "grid", "ink", "quiet", "accent", "second", "third", "faint", "dim"];
const FONT = getComputedStyle(document.documentElement).fontFamily;
const UNITS = [
  [1e3, "ns", 1],
  [1e6, "us", 1e3],
  [1e9, "ms", 1e6],
  [Infinity, "s", 1e9],
];
let c = {};

function readColours() {
  const probe = document.body.appendChild(document.createElement("span"));
  c = Object.fromEntries(
    COLOURS.map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  );
  probe.remove();
}

// -- numbers as people read them

const round = (value, digits = 4) => String(Number(Number(value).toPrecision(digits)));
const unit = (ns) => UNITS.find(([limit]) => ns < limit);
const time = (ns) => (ns === null ? "" : `${round(ns / unit(ns)[2])} ${unit(ns)[1]}`);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const rate = (flops) => (flops >= 1e12 ? `${round(flops / 1e12)} TFLOP/s` : `${round(flops / 1e9)} GFLOP/s`);
const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}\u2026` : text);
const known = (values) => values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));

// -- what all figures have in common

const text = () => ({ color: c.quiet, fontFamily: FONT, fontSize: 12 });
const legend = (more) => ({
  top: 0,
  left: 0,
  itemWidth: 14,
  itemHeight: 9,
  itemGap: 16,
  textStyle: { ...text(), color: c.ink },
  ...more,
});
// Width of a margin that holds names.
const margin = (shown, most) => Math.min(most, 16 + 7 * Math.max(...shown.map((one) => one.length)));
const base = (option) => ({
  animation: false,
  progressive: 0, // at once, so that what is printed is whole
  textStyle: { fontFamily: FONT },
  tooltip: {
    renderMode: "richText",
    confine: true,
    backgroundColor: c.panel,
    borderColor: c.line,
    borderWidth: 1,
    textStyle: { color: c.ink, fontFamily: FONT, fontSize: 12 },
  },
  ...option,
});
const axis = (name, more = {}) => ({
  type: "value",
  name,
  nameLocation: "middle",
  nameGap: 30,
  nameTextStyle: { ...text(), fontSize: 12 },
  axisLabel: { ...text(), hideOverlap: true, ...more.axisLabel },
  axisLine: { show: true, lineStyle: { color: c.line } },
  axisTick: { show: false, ...more.axisTick },
  splitLine: { lineStyle: { color: c.grid } },
  ...Object.fromEntries(Object.entries(more).filter(([key]) => !["axisLabel", "axisTick"].includes(key))),
});
const names = (values, length, more = {}) =>
  axis("", {
    type: "category",
    data: values,
    splitLine: { show: false },
    ...more,
    axisLabel: { formatter: (value) => short(value, length), interval: 0, ...more.axisLabel },
  });

// An axis for logarithms of values, with round values as ticks. ECharts' own has powers of ten alone.
function logAxis(values, name, label, more = {}, most = 6) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(0.04 * Math.log10(high / low), 0.01);
  const [from, to] = [Math.log10(low) - room, Math.log10(high) + room];
  const decades = to - from;
  const steps = decades > 4 ? [1] : decades > 1.6 ? [1, 2, 5] : decades > 0.6 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : null;
  let ticks = [];
  if (steps) {
    for (let power = Math.floor(from); power <= to; power += 1) ticks.push(...steps.map((step) => step * 10 ** power));
  } else {
    const step =
      [1, 2, 5]
        .map((s) => s * 10 ** Math.floor(Math.log10((10 ** to - 10 ** from) / 2.5)))
        .flatMap((s) => [s, 10 * s])
        .sort((a, b) => a - b)
        .find((s) => (10 ** to - 10 ** from) / s <= most) || 10 ** to - 10 ** from;
    for (let value = Math.ceil(10 ** from / step) * step; value <= 10 ** to; value += step) ticks.push(value);
  }
  ticks = ticks.map(Math.log10).filter((tick) => tick >= from && tick <= to);
  return axis(name, {
    min: from,
    max: to,
    ...more,
    axisTick: { customValues: ticks },
    axisLabel: { customValues: ticks, formatter: (value) => label(10 ** value), ...more.axisLabel },
  });
}

const reference = (data) => ({
  silent: true,
  symbol: "none",
  animation: false,
  data: data.map(({ name, colour, label, ...at }) => ({
    ...at,
    lineStyle: { color: colour || c.quiet, type: "dashed", width: 1.2 },
    label: {
      show: name !== "",
      formatter: () => name,
      color: colour || c.quiet,
      fontFamily: FONT,
      fontSize: 11,
      position: "xAxis" in at ? "start" : "insideEndTop",
      ...label,
      backgroundColor: c.panel,
      padding: [1, 4],
    },
  })),
});

// Intervals as lines with ends: rows of [low, high, position], along x or along y.
const intervals = (rows, along, colour, more = {}) => ({
  type: "custom",
  silent: true,
  z: 5,
  data: rows,
  encode: along === "x" ? { x: [0, 1], y: 2 } : { x: 2, y: [0, 1] },
  renderItem: (_, api) => {
    const ends = [0, 1].map((i) =>
      api.coord(along === "x" ? [api.value(i), api.value(2)] : [api.value(2), api.value(i)]),
    );
    const style = { stroke: colour, lineWidth: 1.5, fill: "none" };
    const [dx, dy] = along === "x" ? [0, 4] : [4, 0];
    const line = (a, b) => ({ type: "line", shape: { x1: a[0], y1: a[1], x2: b[0], y2: b[1] }, style });
    return {
      type: "group",
      children: [line(ends[0], ends[1]), ...ends.map(([x, y]) => line([x - dx, y - dy], [x + dx, y + dy]))],
    };
  },
  ...more,
});
const bars = (data, colour) => ({
  type: "bar",
  barMaxWidth: 18,
  barCategoryGap: "35%",
  data,
  itemStyle: { color: colour, borderRadius: 2 },
});
const outside = (formatter) => ({
  show: true,
  position: "right",
  color: c.ink,
  fontFamily: FONT,
  fontSize: 12,
  formatter,
});
