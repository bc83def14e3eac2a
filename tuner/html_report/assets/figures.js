// The figures, by their kind: each function takes its data and the width, and returns a height in pixels and ECharts'
// option; `width` where it needs more than there is.

function convergence(d, width) {
  const times = known(d.time_ns.filter((_, i) => d.ranked[d.status[i]]));
  const failures = d.statuses.map((_, i) => i).filter((i) => !d.ranked[i]);
  const strip = failures.length * 20;
  const xs = { min: 0, max: Math.max(d.number.reduce((a, b) => Math.max(a, b), 1), 2) };
  const at = (i) => ({ number: d.number[i], trial: d.trial[i], status: d.statuses[d.status[i]], time_ns: d.time_ns[i] });
  const point = (i, y) => ({ value: [d.number[i], y, d.time_ns[i]], at: i });
  const suspect = new Set(d.suspect);
  const series = [];
  const yAxis = [];
  const grid = [];
  let top = 8;
  if (times.length) {
    const reachable = known([d.default_ns, d.speed_of_light_ns]);
    yAxis.push(logAxis([...times, ...reachable], "time", time, { nameGap: 54 }));
    grid.push({ left: 74, right: width < 700 ? 16 : 164, top: 38, height: 300 });
    d.statuses.forEach((status, k) => {
      if (!d.ranked[k]) return;
      const own = d.status.map((s, i) => i).filter((i) => d.status[i] === k && d.time_ns[i] && !suspect.has(i));
      const slow = status !== "ok";
      series.push({
        type: "scatter", name: status, symbol: slow ? "triangle" : "circle", symbolSize: own.length > 2000 ? 3 : 6,
        itemStyle: { color: slow ? c.dim : c.faint, opacity: 0.85 }, data: own.map((i) => point(i, Math.log10(d.time_ns[i]))),
      });
    });
    const steps = [];
    d.number.forEach((number, i) => {
      if (!d.ranked[d.status[i]] || !d.time_ns[i] || suspect.has(i)) return;
      if (!steps.length || d.time_ns[i] < steps[steps.length - 1][2]) steps.push([number, Math.log10(d.time_ns[i]), d.time_ns[i]]);
    });
    const last = steps[steps.length - 1];
    const close = (Math.log10(d.default_ns / d.speed_of_light_ns) / (yAxis[0].max - yAxis[0].min)) * 300 < 16;
    const lines = [["default", d.default_ns, c.second, -1], ["speed of light", d.speed_of_light_ns, c.third, 1]];
    const place = (side) => (width < 700 ? { position: side > 0 ? "insideEndBottom" : "insideEndTop" } : { position: "end", offset: [0, close ? 7 * side : 0] });
    series.push({
      type: "line", name: "best so far", step: "end", symbol: "none", z: 4, lineStyle: { color: c.accent, width: 2.2 },
      itemStyle: { color: c.accent }, data: [...steps, [xs.max, last[1], last[2]]], tooltip: { show: false },
      markLine: reference(lines.filter(([, ns]) => ns).map(([name, ns, colour, side]) => ({ name: `${name} ${time(ns)}`, yAxis: Math.log10(ns), colour, label: place(side) }))),
    });
    top = 346;
  }
  const xAxis = grid.map(() => axis(failures.length ? "" : "trial", { ...xs, axisLabel: { show: !failures.length } }));
  if (failures.length) {
    const i = grid.length;
    grid.push({ left: margin(failures.map((k) => d.statuses[k]), 140), right: width < 700 ? 16 : 164, top: top + 18, height: strip });
    grid[0].left = Math.max(grid[0].left, grid[i].left);
    grid[i].left = grid[0].left;
    xAxis.push(axis("trial", { ...xs, gridIndex: i, splitLine: { show: false } }));
    yAxis.push(names(failures.map((k) => d.statuses[k]), 16, { gridIndex: i, inverse: true, splitLine: { show: true, lineStyle: { color: c.grid } } }));
    failures.forEach((k, row) => series.push({
      type: "scatter", name: d.statuses[k], xAxisIndex: i, yAxisIndex: i, symbol: "rect", symbolSize: [3, 11], itemStyle: { color: c.second },
      data: d.status.map((s, n) => n).filter((n) => d.status[n] === k).map((n) => point(n, row)),
    }));
    top += 18 + strip;
  }
  return {
    height: top + 52,
    option: base({
      grid, xAxis, yAxis, series,
      legend: times.length ? legend({ data: series.filter((s) => !s.xAxisIndex).map((s) => s.name) }) : undefined,
      tooltip: { ...base({}).tooltip, formatter: (p) => {
        const one = at(p.data.at);
        return `trial ${one.trial}, number ${one.number}\n${one.status}${one.time_ns ? `, ${time(one.time_ns)}` : ""}`;
      } },
    }),
  };
}

function outcomes(d) {
  const total = d.trials.reduce((a, b) => a + b, 0);
  return {
    height: 34 * d.outcome.length + 56,
    option: base({
      grid: { left: margin(d.outcome, 140), right: 90, top: 6, bottom: 46 },
      xAxis: axis("trials", { minInterval: 1 }),
      yAxis: names(d.outcome, 18, { inverse: true }),
      series: [{ ...bars(d.trials.map((value, i) => ({ value, itemStyle: { color: d.ranked[i] ? c.accent : c.second } }))),
        label: outside((p) => `${p.value} (${percent(p.value / total)})`) }],
      tooltip: { show: false },
    }),
  };
}

function comparison(d, width) {
  const left = margin(d.entries.map((e) => e.name), width < 560 ? 124 : 220);
  const light = d.speed_of_light_ns ? d.speed_of_light_ns / d.entries[0].time_ns : null;
  const rows = d.entries.map((e, i) => [e.low, e.high, i]).filter(([low, high]) => low !== null && high !== null);
  const most = Math.max(...d.entries.map((e) => e.high || e.ratio));
  const ratio = (e, i) => (i && e.ratio !== 1 ? `  ${e.ratio.toFixed(3)}x` : "");
  return {
    height: 32 * d.entries.length + 70,
    option: base({
      grid: { left, right: width < 560 ? 20 : 130, top: 20, bottom: 48 },
      xAxis: axis("time over the winner's; longer is slower", { min: 0, max: width < 560 ? 1.6 * most : undefined }),
      yAxis: names(d.entries.map((e) => e.name), width < 560 ? 18 : 30, { inverse: true }),
      series: [
        { ...bars(d.entries.map((e, i) => ({ value: e.ratio, itemStyle: { color: e.verdict || e.low !== null ? c.second : i ? c.dim : c.accent } }))),
          label: { ...outside((p) => time(d.entries[p.dataIndex].time_ns) + ratio(d.entries[p.dataIndex], p.dataIndex)), distance: 12 },
          markLine: reference(light ? [{ name: "speed of light", xAxis: light, colour: c.third }] : []) },
        intervals(rows, "x", c.ink),
      ],
      tooltip: { ...base({}).tooltip, formatter: (p) => {
        const e = d.entries[p.dataIndex];
        const ends = e.low === null ? "" : ` (${e.low.toFixed(3)} .. ${e.high.toFixed(3)})`;
        return `${e.name}: ${time(e.time_ns)}\n${e.ratio.toFixed(3)}x the winner's time${ends}${e.verdict ? `\n${e.verdict}` : ""}${e.configuration ? `\n${short(e.configuration, 80)}` : ""}`;
      } },
    }),
  };
}

function importance(d) {
  return {
    height: 30 * d.parameter.length + 56,
    option: base({
      grid: { left: margin(d.parameter, 140), right: 64, top: 6, bottom: 46 },
      xAxis: axis("share of the differences in time", { min: 0, axisLabel: { formatter: (value) => percent(value, 0) } }),
      yAxis: names(d.parameter, 18, { inverse: true }),
      series: [{ ...bars(d.share, c.accent), label: outside((p) => percent(p.value)) }],
      tooltip: { show: false },
    }),
  };
}

const FACTORS = [0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000];
const change = (factor, digits = 3) => (factor >= 2 ? `${round(factor, digits)}x` : `${factor > 1 ? "+" : ""}${round(100 * (factor - 1), digits)} %`);

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
  ticks = ticks.filter((t) => t === 0 || ((t - last) * panel > 22 * (high - low) && Math.abs(t) * panel > 22 * (high - low) && (last = t, true)));
  const option = base({ grid: [], xAxis: [], yAxis: [], series: [], title: [] });
  d.parameters.forEach((p, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    option.grid.push({ left: left + column * (each + gap), width: each, top: top + row * (panel + below), height: panel });
    option.xAxis.push(names(p.values, Math.max(3, Math.floor(each / p.values.length / 8)), {
      gridIndex: i, name: p.name, nameLocation: "middle", nameGap: 26, nameTextStyle: { ...text(), color: c.ink, fontWeight: 600, fontSize: 12.5 },
      axisLine: { onZero: false, lineStyle: { color: c.line } },
    }));
    option.yAxis.push(axis("", {
      gridIndex: i, min: low, max: high, axisTick: { customValues: ticks }, axisLine: { show: false },
      axisLabel: { show: !column, customValues: ticks, formatter: (value) => change(10 ** value) },
    }));
    const colour = (k) => (p.best[k] ? c.accent : p.low[k] > 1 ? c.second : p.high[k] < 1 ? c.third : c.dim);
    option.series.push({
      type: "scatter", xAxisIndex: i, yAxisIndex: i, z: 6, clip: false,
      data: p.factor.map((factor, k) => ({ value: [k, Math.log10(factor), factor], symbol: p.best[k] ? "diamond" : "circle", symbolSize: p.best[k] ? 13 : 9, itemStyle: { color: colour(k) } })),
      markLine: { ...reference([{ name: "", yAxis: 0 }]) },
    }, intervals(p.low.map((f, k) => [Math.log10(f), Math.log10(p.high[k]), k]).filter((_, k) => !p.best[k]), "y", c.quiet, { xAxisIndex: i, yAxisIndex: i, clip: true }));
  });
  option.tooltip.formatter = (item) => {
    const p = d.parameters[item.seriesIndex / 2];
    const k = item.dataIndex;
    const said = p.best[k] ? "the winner's value" : `${change(p.factor[k])} (${change(p.low[k])} .. ${change(p.high[k])})`;
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
  const series = { type: "parallel", silent: true, progressive: 0, data: order.map((i) => line(i, { color: mixed(c.accent, c.line, shade(i)), width: 1.1, opacity: 0.75 - 0.3 * shade(i) })) };
  const label = { ...text(), color: c.ink, backgroundColor: c.panel, padding: [1, 3], borderRadius: 3 };
  const common = { z: 20, nameLocation: "end", nameGap: 14, nameTextStyle: { color: c.ink, fontFamily: FONT, fontSize: 12, width: each - 8, overflow: "truncate" }, axisLine: { lineStyle: { color: c.dim } }, axisTick: { show: false } };
  return {
    height: 360,
    width: 104 * (d.axes.length + 1),
    option: base({
      parallel: { left: each / 2, right: each / 2 + 8, top: 40, bottom: 16 },
      parallelAxis: [
        ...d.axes.map((one, dim) => ({ ...common, dim, name: one.name, type: "category", data: one.values, axisLabel: { ...label, formatter: (value) => short(value, 12) } })),
        { ...common, dim: d.axes.length, name: `time (${name})`, type: "value", min: scale.min, max: scale.max, axisLabel: { ...scale.axisLabel, ...label }, axisTick: { show: false, customValues: scale.axisTick.customValues } },
      ],
      series: [series, ...(d.winner === null ? [] : [{ ...series, z: 5, data: [line(d.winner, { color: c.second, width: 3, opacity: 1 })] }])],
      tooltip: { show: false },
    }),
  };
}

function roofline(d, width) {
  const xs = d.points.map((p) => p.intensity);
  const memory = d.ceilings.filter((l) => l.kind === "bytes");
  const flops = d.ceilings.filter((l) => l.kind === "flops");
  const highest = Math.max(...flops.map((l) => l.rate));
  const ridges = memory.flatMap((m) => flops.map((f) => f.rate / m.rate));
  const [from, to] = [Math.min(...xs, ...ridges) / 4, Math.max(...xs, ...ridges) * 4];
  const lowest = Math.min(...d.points.map((p) => p.flops), ...memory.map((m) => m.rate * from * 4)) / 2;
  const log = (pair) => pair.map(Math.log10);
  const lines = [
    ...memory.map((m) => ({ ...m, ends: [[from, m.rate * from], [highest / m.rate, highest]], label: `${m.name} ${round(m.rate / 1e9)} GB/s` })),
    ...flops.map((f) => ({ ...f, ends: [[memory.length ? f.rate / Math.max(...memory.map((m) => m.rate)) : from, f.rate], [to, f.rate]], label: `${f.name} ${rate(f.rate)}` })),
  ];
  const size = highest >= 1e12 ? 1e12 : 1e9;
  const [narrow, tall] = [width < 560, width > 700 ? 400 : 340];
  // Names of points, as far as these are not too close to another one.
  const at = (p) => [Math.log(p.intensity / from) / Math.log(to / from) * width, Math.log(p.flops / lowest) / Math.log(highest / lowest) * tall];
  const named = new Set();
  d.points.forEach((p, i) => {
    const near = (k) => Math.abs(at(p)[0] - at(d.points[k])[0]) < 190 && Math.abs(at(p)[1] - at(d.points[k])[1]) < 15;
    if (!(narrow && d.points.length > 2) && ![...named].some(near)) named.add(i);
  });
  const side = (p) => (narrow ? "bottom" : p.intensity < Math.sqrt(from * to) ? "right" : p.name.length < 14 ? "left" : "bottom");
  return {
    height: tall,
    option: base({
      grid: { left: 62, right: 18, top: 14, bottom: 48 },
      xAxis: logAxis([from, to], "arithmetic intensity (FLOP per byte)", (value) => round(value, 2)),
      yAxis: logAxis([lowest, 1.6 * highest], size === 1e12 ? "TFLOP/s" : "GFLOP/s", (value) => round(value / size, 2), { nameGap: 42 }),
      series: [
        ...lines.map((l) => {
          const colour = l.kind === "bytes" ? c.third : c.quiet;
          return {
            type: "line", symbol: "none", silent: true, clip: true, lineStyle: { color: colour, width: 2, type: l.measured ? "dashed" : "solid" },
            data: l.ends.map(log),
            tooltip: { show: false },
          };
        }),
        // Their names: of slopes below the ridge, of flat ones above the right end.
        ...lines.map((l) => ({
          type: "scatter", symbolSize: 0, silent: true, data: [log(l.kind === "bytes" ? [Math.max(from, lowest / l.rate) * 1.1, Math.max(from, lowest / l.rate) * 1.1 * l.rate] : l.ends[1])],
          label: { show: true, backgroundColor: c.panel, padding: [0, 3], formatter: () => (narrow ? l.name : l.label), color: l.kind === "bytes" ? c.third : c.quiet, fontFamily: FONT, fontSize: 11.5, ...(l.kind === "bytes" ? { position: "right", distance: 12 } : { position: "left", offset: [0, -10] }) },
        })),
        {
          type: "scatter", z: 6, data: d.points.map((p, i) => ({
            label: { show: named.has(i), position: side(p) },
            value: [...log([p.intensity, p.flops]), p.flops], symbol: p.kind === "winner" ? "circle" : "diamond", symbolSize: 12, itemStyle: { color: p.kind === "winner" ? c.accent : c.second, opacity: 1, borderColor: c.panel, borderWidth: 1.5 } })),
          label: { distance: 7, formatter: (p) => short(d.points[p.dataIndex].name, 28), color: c.ink, fontFamily: FONT, fontSize: 12 },
        },
      ],
      tooltip: { ...base({}).tooltip, formatter: (p) => {
        const one = d.points[p.dataIndex];
        return `${short(one.name, 70)}\n${time(one.time_ns)}, ${rate(one.flops)}\n${round(one.intensity)} FLOP per byte`;
      } },
    }),
  };
}

function samples(d) {
  const off = (one) => one.samples_ns.map((ns, i) => [i + 1, 100 * (ns / one.median_ns - 1), ns]);
  const floor = d.noise_floor ? 100 * d.noise_floor : null;
  const most = Math.max(...d.series.flatMap((one) => off(one).map(([, y]) => Math.abs(y))), floor || 0) * 1.15;
  return {
    height: 300,
    option: base({
      grid: { left: 62, right: 18, top: 36, bottom: 48 },
      legend: legend(),
      xAxis: axis("sample", { min: 0, minInterval: 1 }),
      yAxis: axis("off the median (%)", { min: -most, max: most, nameGap: 44, axisLabel: { formatter: (value) => round(value, 2), showMinLabel: false, showMaxLabel: false } }),
      series: d.series.map((one, i) => ({
        type: "scatter", name: one.name, symbol: i ? "diamond" : "circle", symbolSize: i ? 9 : 8, itemStyle: { color: i ? c.second : c.accent, opacity: 0.85 }, data: off(one),
        ...(i || !floor ? {} : { markLine: reference([{ name: "noise floor", yAxis: floor }, { name: "", yAxis: -floor }]) }),
      })),
      tooltip: { ...base({}).tooltip, formatter: (p) => `${p.seriesName}, sample ${p.value[0]}\n${time(p.value[2])} (${round(p.value[1], 2)} %)` },
    }),
  };
}

function clocks(d) {
  const ghz = d.clock_hz.map((hz) => hz / 1e9);
  const limited = new Set(d.capped);
  const highest = d.highest_hz ? d.highest_hz / 1e9 : null;
  const [low, high] = [Math.min(...ghz), Math.max(...ghz, highest || 0)];
  const room = Math.max(0.08 * (high - low), 0.01);
  return {
    height: 300,
    option: base({
      grid: { left: 62, right: 18, top: 36, bottom: 48 },
      legend: legend(),
      xAxis: axis("trial", { min: 0 }),
      yAxis: axis("SM clock (GHz)", { min: low - room, max: high + 2 * room, nameGap: 44, axisLabel: { formatter: (value) => value.toFixed(2), showMinLabel: false, showMaxLabel: false } }),
      series: [[false, "below the power limit", "circle", c.faint], [true, "at the power limit", "triangle", c.second]].map(([capped, name, symbol, colour]) => ({
        type: "scatter", name, symbol, symbolSize: ghz.length > 2000 ? 3 : 6, itemStyle: { color: colour }, data: ghz.map((y, i) => [d.number[i], y, i]).filter(([, , i]) => limited.has(i) === capped),
      })).filter((one) => one.data.length).map((one, i) => (
        i || !highest ? one : { ...one, markLine: reference([{ name: `highest ${round(highest)} GHz`, yAxis: highest }]) }
      )),
      tooltip: { ...base({}).tooltip, formatter: (p) => `trial number ${p.value[0]}: ${round(p.value[1])} GHz` },
    }),
  };
}

function history(d) {
  const times = known([...d.winners.map((w) => w.time_ns), ...d.benches.flatMap((b) => [b.low_ns, b.high_ns])]);
  const [, name, size] = unit(Math.max(...times));
  const moment = (at) => Date.parse(at);
  const value = (one) => [moment(one.at), one.time_ns / size, one.time_ns];
  const [low, high] = [Math.min(...times) / size, Math.max(...times) / size];
  const room = Math.max(0.15 * (high - low), 0.002 * high);
  return {
    height: 320,
    option: base({
      grid: { left: 70, right: 24, top: 36, bottom: 34 },
      legend: legend(),
      xAxis: axis("", { type: "time", splitLine: { show: false }, boundaryGap: ["4%", "4%"] }),
      yAxis: axis(`time (${name})`, { min: low - room, max: high + room, nameGap: 50, axisLabel: { formatter: (v) => round(v), showMinLabel: false, showMaxLabel: false } }),
      series: [
        { type: "line", name: "best so far", step: "end", symbol: "none", lineStyle: { color: c.accent, width: 2 }, itemStyle: { color: c.accent }, data: d.winners.filter((w) => w.best_ns).map((w) => [moment(w.at), w.best_ns / size, w.best_ns]), tooltip: { show: false } },
        { type: "scatter", name: "winner of a run", symbolSize: 10, data: d.winners.map((w) => ({ value: value(w), symbol: w.exportable ? "circle" : "emptyCircle" })), itemStyle: { color: c.accent } },
        ...(d.benches.length ? [
          { type: "scatter", name: "bench of the best", symbol: "diamond", symbolSize: 11, itemStyle: { color: c.second }, data: d.benches.map(value) },
          intervals(d.benches.map((b) => [b.low_ns / size, b.high_ns / size, moment(b.at)]), "y", c.second),
        ] : []),
      ],
      tooltip: { ...base({}).tooltip, formatter: (p) => {
        const run = p.seriesName === "winner of a run" ? `, run ${d.winners[p.dataIndex].run}` : "";
        return `${new Date(p.value[0]).toISOString().slice(0, 16).replace("T", " ")} UTC${run}\n${time(p.value[2])}`;
      } },
    }),
  };
}

function overview(d, width) {
  const narrow = width < 560;
  const of = (e) => `${e.kernel} ${e.problem}${e.gpu ? `, ${e.gpu}` : ""}`;
  const ends = known(d.entries.flatMap((e) => [e.low, e.high, e.ratio]));
  const xAxis = logAxis([...ends, 0.97, 1.05], "times as fast as the default", (value) => `${round(value, 3)}x`, {}, narrow ? 2 : 6);
  return {
    height: (d.entries.length > 12 ? 24 : 32) * d.entries.length + 70,
    option: base({
      grid: { left: narrow ? 130 : Math.min(360, 0.38 * width), right: 84, top: 10, bottom: 48 },
      xAxis,
      yAxis: names(d.entries.map(of), narrow ? 19 : Math.min(56, Math.floor(0.055 * width)), { inverse: true, splitLine: { show: true, lineStyle: { color: c.grid } } }),
      series: [
        {
          type: "scatter", z: 6, symbolSize: 10, data: d.entries.map((e, i) => ({ value: [Math.log10(e.ratio), i, e.ratio], itemStyle: { color: e.verdict === "faster" ? c.accent : c.dim }, symbol: e.verdict === "faster" ? "circle" : "emptyCircle" })),
          markLine: reference([{ name: "", xAxis: 0 }]),
        },
        { // the ratios, in a column
          type: "scatter", symbolSize: 0, silent: true, data: d.entries.map((_, i) => [xAxis.max, i]),
          label: outside((p) => `${d.entries[p.dataIndex].ratio.toFixed(3)}x`),
        },
        intervals(d.entries.map((e, i) => [e.low, e.high, i]).filter(([low]) => low).map(([low, high, i]) => [Math.log10(low), Math.log10(high), i]), "x", c.ink),
      ],
      tooltip: { ...base({}).tooltip, formatter: (p) => {
        const e = d.entries[p.dataIndex];
        return `${short(of(e), 80)}\n${time(e.time_ns)}, ${e.ratio.toFixed(3)}x as fast as the default: ${e.verdict}`;
      } },
    }),
  };
}

const DRAW = { convergence, outcomes, comparison, importance, effects, parallel, roofline, samples, clocks, history, overview };
