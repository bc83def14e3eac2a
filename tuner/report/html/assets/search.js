// Figures about a search.
// Each function takes the data and the width, and returns a height in pixels and the option of ECharts; `width` where
// the figure needs more than there is.

// A round time above which trials are drawn at the upper edge: ten times the best and no less than the default, unless
// that would be most of them. What counts is among the fast ones.
function edge(times, atLeast) {
  const least = Math.max(10 * Math.min(...times), 1.2 * (atLeast || 0));
  const power = 10 ** Math.floor(Math.log10(least));
  const round = [1, 2, 5, 10].map((step) => step * power).find((value) => value >= least);
  const beyond = times.filter((ns) => ns > round).length;
  return beyond && beyond < times.length / 2 ? round : Infinity;
}

function convergence(d, width) {
  const times = known(d.time_ns.filter((_, i) => d.ranked[d.status[i]]));
  const failures = d.statuses.map((_, i) => i).filter((i) => !d.ranked[i]);
  const strip = failures.length * 20;
  const xs = {
    min: 0,
    max: Math.max(
      d.number.reduce((a, b) => Math.max(a, b), 1),
      2,
    ),
  };
  const at = (i) => ({
    number: d.number[i],
    trial: d.trial[i],
    status: d.statuses[d.status[i]],
    time_ns: d.time_ns[i],
  });
  const point = (i, y) => ({ value: [d.number[i], y, d.time_ns[i]], at: i });
  const suspect = new Set(d.suspect);
  const series = [];
  const yAxis = [];
  const grid = [];
  let top = 8;
  if (times.length) {
    const reachable = known([d.default_ns, d.speed_of_light_ns]);
    const end = edge(times, d.default_ns);
    const within = times.filter((ns) => ns <= end);
    yAxis.push(logAxis([...within, ...reachable, ...(end < Infinity ? [end] : [])], "time", time, { nameGap: 54 }));
    grid.push({ left: 74, right: width < 700 ? 16 : 164, top: 38, height: 300 });
    d.statuses.forEach((status, k) => {
      if (!d.ranked[k]) return;
      const own = d.status.map((s, i) => i).filter((i) => d.status[i] === k && d.time_ns[i] && !suspect.has(i));
      const slow = status !== "ok";
      series.push({
        type: "scatter",
        name: status,
        symbol: slow ? "triangle" : "circle",
        symbolSize: own.length > 2000 ? 3 : 6,
        itemStyle: { color: slow ? c.dim : c.faint, opacity: 0.85 },
        data: own.filter((i) => d.time_ns[i] <= end).map((i) => point(i, Math.log10(d.time_ns[i]))),
      });
    });
    if (end < Infinity)
      series.push({
        type: "scatter",
        name: `> ${time(end)}`,
        symbol: "arrow",
        symbolSize: 7,
        itemStyle: { color: c.faint, opacity: 0.85 },
        data: d.number
          .map((_, i) => i)
          .filter((i) => d.ranked[d.status[i]] && d.time_ns[i] > end && !suspect.has(i))
          .map((i) => point(i, Math.log10(end))),
      });
    const steps = [];
    d.number.forEach((number, i) => {
      if (!d.ranked[d.status[i]] || !d.time_ns[i] || suspect.has(i)) return;
      if (!steps.length || d.time_ns[i] < steps[steps.length - 1][2])
        steps.push([number, Math.log10(d.time_ns[i]), d.time_ns[i]]);
    });
    const last = steps[steps.length - 1];
    const close = (Math.log10(d.default_ns / d.speed_of_light_ns) / (yAxis[0].max - yAxis[0].min)) * 300 < 16;
    const lines = [
      ["default", d.default_ns, c.second, -1],
      ["speed of light", d.speed_of_light_ns, c.third, 1],
    ];
    const place = (side) =>
      width < 700
        ? { position: side > 0 ? "insideEndBottom" : "insideEndTop" }
        : { position: "end", offset: [0, close ? 7 * side : 0] };
    series.push({
      type: "line",
      name: "best so far",
      step: "end",
      symbol: "none",
      z: 4,
      lineStyle: { color: c.accent, width: 2.2 },
      itemStyle: { color: c.accent },
      data: [...steps, [xs.max, last[1], last[2]]],
      tooltip: { show: false },
      markLine: reference(
        lines
          .filter(([, ns]) => ns)
          .map(([name, ns, colour, side]) => ({
            name: `${name} ${time(ns)}`,
            yAxis: Math.log10(ns),
            colour,
            label: place(side),
          })),
      ),
    });
    top = 346;
  }
  const xAxis = grid.map(() => axis(failures.length ? "" : "trial", { ...xs, axisLabel: { show: !failures.length } }));
  if (failures.length) {
    const i = grid.length;
    grid.push({
      left: margin(
        failures.map((k) => d.statuses[k]),
        140,
      ),
      right: width < 700 ? 16 : 164,
      top: top + 18,
      height: strip,
    });
    grid[0].left = Math.max(grid[0].left, grid[i].left);
    grid[i].left = grid[0].left;
    xAxis.push(axis("trial", { ...xs, gridIndex: i, splitLine: { show: false } }));
    yAxis.push(
      names(
        failures.map((k) => d.statuses[k]),
        16,
        { gridIndex: i, inverse: true, splitLine: { show: true, lineStyle: { color: c.grid } } },
      ),
    );
    failures.forEach((k, row) =>
      series.push({
        type: "scatter",
        name: d.statuses[k],
        xAxisIndex: i,
        yAxisIndex: i,
        symbol: "rect",
        symbolSize: [3, 11],
        itemStyle: { color: c.second },
        data: d.status
          .map((s, n) => n)
          .filter((n) => d.status[n] === k)
          .map((n) => point(n, row)),
      }),
    );
    top += 18 + strip;
  }
  return {
    height: top + 52,
    option: base({
      grid,
      xAxis,
      yAxis,
      series,
      legend: times.length ? legend({ data: series.filter((s) => !s.xAxisIndex).map((s) => s.name) }) : undefined,
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => {
          const one = at(p.data.at);
          return `trial ${one.trial}, number ${one.number}\n${one.status}${one.time_ns ? `, ${time(one.time_ns)}` : ""}`;
        },
      },
    }),
  };
}

// Of figures that stand beside a taller one: a few bars share some of its height.
const barsHeight = (each, count) => 56 + Math.max(each * count, Math.min(200, 66 * count));

function outcomes(d) {
  const total = d.trials.reduce((a, b) => a + b, 0);
  return {
    height: barsHeight(34, d.outcome.length),
    option: base({
      grid: { left: margin(d.outcome, 140), right: 90, top: 6, bottom: 46 },
      xAxis: axis("trials", { minInterval: 1 }),
      yAxis: names(d.outcome, 18, { inverse: true }),
      series: [
        {
          ...bars(d.trials.map((value, i) => ({ value, itemStyle: { color: d.ranked[i] ? c.accent : c.second } }))),
          label: outside((p) => `${p.value} (${percent(p.value / total)})`),
        },
      ],
      tooltip: { show: false },
    }),
  };
}

function importance(d, width) {
  return {
    height: barsHeight(30, d.parameter.length),
    option: base({
      grid: { left: margin(d.parameter, 140), right: 64, top: 6, bottom: 46 },
      xAxis: axis("share of the differences in time", {
        min: 0,
        splitNumber: width < 380 ? 3 : 5,
        axisLabel: { formatter: (value) => percent(value, 0) },
      }),
      yAxis: names(d.parameter, 18, { inverse: true }),
      series: [{ ...bars(d.share, c.accent), label: outside((p) => percent(p.value)) }],
      tooltip: { show: false },
    }),
  };
}

const FACTORS = [
  0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000,
];

const change = (factor, digits = 3) =>
  factor >= 2 ? `${round(factor, digits)}x` : `${factor > 1 ? "+" : ""}${round(100 * (factor - 1), digits)} %`;

// Small panels with one scale: a parameter each.
function effects(d, width) {
  const columns = Math.max(1, Math.min(4, Math.floor(width / (width < 560 ? 150 : 250)), d.parameters.length));
  const [left, gap, panel, top, below] = [62, 22, 130, 16, 62];
  const each = (width - left - 8 - gap * (columns - 1)) / columns;
  const all = d.parameters.flatMap((p) => [...p.low, ...p.high]).map((f) => Math.min(Math.max(f, 0.05), 1000));
  const [lowest, highest] = [Math.min(...all, 0.98), Math.max(...all, 1.02)].map(Math.log10);
  const [low, high] = [lowest, highest].map((end) => end + Math.sign(end) * 0.08 * (highest - lowest));
  let ticks = FACTORS.map(Math.log10).filter((t) => t >= low && t <= high);
  let last = -Infinity;
  ticks = ticks.filter(
    (t) =>
      t === 0 ||
      ((t - last) * panel > 22 * (high - low) && Math.abs(t) * panel > 22 * (high - low) && ((last = t), true)),
  );
  const option = base({ grid: [], xAxis: [], yAxis: [], series: [], title: [] });
  d.parameters.forEach((p, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    option.grid.push({
      left: left + column * (each + gap),
      width: each,
      top: top + row * (panel + below),
      height: panel,
    });
    option.xAxis.push(
      names(p.values, Math.max(3, Math.floor(each / p.values.length / (width < 560 ? 5.5 : 8))), {
        gridIndex: i,
        axisLabel: { fontSize: width < 560 ? 10 : 12 },
        name: p.name,
        nameLocation: "middle",
        nameGap: 26,
        nameTextStyle: { ...text(), color: c.ink, fontWeight: 600, fontSize: 12.5 },
        axisLine: { onZero: false, lineStyle: { color: c.line } },
      }),
    );
    option.yAxis.push(
      axis("", {
        gridIndex: i,
        min: low,
        max: high,
        axisTick: { customValues: ticks },
        axisLine: { show: false },
        axisLabel: { show: !column, customValues: ticks, formatter: (value) => change(10 ** value) },
      }),
    );
    const colour = (k) => (p.best[k] ? c.accent : p.low[k] > 1 ? c.second : p.high[k] < 1 ? c.third : c.dim);
    option.series.push(
      {
        type: "scatter",
        xAxisIndex: i,
        yAxisIndex: i,
        z: 6,
        clip: false,
        data: p.factor.map((factor, k) => ({
          value: [k, Math.log10(factor), factor],
          symbol: p.best[k] ? "diamond" : "circle",
          symbolSize: p.best[k] ? 13 : 9,
          itemStyle: { color: colour(k) },
        })),
        markLine: { ...reference([{ name: "", yAxis: 0 }]) },
      },
      intervals(
        p.low.map((f, k) => [Math.log10(f), Math.log10(p.high[k]), k]).filter((_, k) => !p.best[k]),
        "y",
        c.quiet,
        { xAxisIndex: i, yAxisIndex: i, clip: true },
      ),
    );
  });
  option.tooltip.formatter = (item) => {
    const p = d.parameters[item.seriesIndex / 2];
    const k = item.dataIndex;
    const said = p.best[k]
      ? "the winner's value"
      : `${change(p.factor[k])} (${change(p.low[k])} .. ${change(p.high[k])})`;
    return `${p.name} = ${p.values[k]}: ${said}\n${p.trials[k]} trials`;
  };
  return { height: top + Math.ceil(d.parameters.length / columns) * (panel + below), option };
}

function mixed(from, to, share) {
  const [a, b] = [from, to].map((colour) => colour.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)).join(", ")})`;
}

function parallel(d, width) {
  const [low, high] = [Math.min(...d.time_ns), Math.max(...d.time_ns)].map(Math.log10);
  const [, name, size] = unit(10 ** low);
  const scale = logAxis(d.time_ns, "", (ns) => round(ns / size, 3));
  const each = Math.max(width, 104 * (d.axes.length + 1)) / (d.axes.length + 1);
  const line = (i, style) => ({ value: [...d.lines[i], Math.log10(d.time_ns[i])], lineStyle: style });
  const shade = (i) => Math.sqrt((Math.log10(d.time_ns[i]) - low) / (high - low || 1));
  const order = d.lines.map((_, i) => i).reverse();
  const series = {
    type: "parallel",
    silent: true,
    progressive: 0,
    data: order.map((i) =>
      line(i, { color: mixed(c.accent, c.line, shade(i)), width: 1.1, opacity: 0.75 - 0.3 * shade(i) }),
    ),
  };
  const label = { ...text(), color: c.ink, backgroundColor: c.panel, padding: [1, 3], borderRadius: 3 };
  const common = {
    z: 20,
    nameLocation: "end",
    nameGap: 14,
    nameTextStyle: { color: c.ink, fontFamily: FONT, fontSize: 12, width: each - 8, overflow: "truncate" },
    axisLine: { lineStyle: { color: c.dim } },
    axisTick: { show: false },
  };
  return {
    height: 360,
    width: 104 * (d.axes.length + 1),
    option: base({
      parallel: { left: each / 2, right: each / 2 + 8, top: 40, bottom: 16 },
      parallelAxis: [
        ...d.axes.map((one, dim) => ({
          ...common,
          dim,
          name: one.name,
          type: "category",
          data: one.values,
          axisLabel: { ...label, formatter: (value) => short(value, Math.max(12, Math.floor(each / 9))) },
        })),
        {
          ...common,
          dim: d.axes.length,
          name: `time (${name})`,
          type: "value",
          min: scale.min,
          max: scale.max,
          axisLabel: { ...scale.axisLabel, ...label },
          axisTick: { show: false, customValues: scale.axisTick.customValues },
        },
      ],
      series: [
        series,
        ...(d.winner === null
          ? []
          : [{ ...series, z: 5, data: [line(d.winner, { color: c.second, width: 3, opacity: 1 })] }]),
      ],
      tooltip: { show: false },
    }),
  };
}
