// Figures about times, and what they are compared with.
// Each function takes the data and the width, and returns a height in pixels and the option of ECharts.

function comparison(d, width) {
  const left = margin(
    d.entries.map((e) => e.name),
    width < 560 ? 124 : 220,
  );
  const light = d.speed_of_light_ns ? d.speed_of_light_ns / d.entries[0].time_ns : null;
  const rows = d.entries.map((e, i) => [e.low, e.high, i]).filter(([low, high]) => low !== null && high !== null);
  const most = Math.max(...d.entries.map((e) => e.high || e.ratio));
  // On a narrow page the label of the longest bar has its 90 pixels within the axis.
  const room = Math.max(0.3, 1 - 90 / (width - left - 20));
  const ratio = (e, i) => (i && e.ratio !== 1 ? `  ${e.ratio.toFixed(3)}x` : "");
  return {
    height: 32 * d.entries.length + 70,
    option: base({
      grid: { left, right: width < 560 ? 20 : 130, top: 20, bottom: 48 },
      xAxis: axis("time over the winner's; longer is slower", { min: 0, max: width < 560 ? most / room : undefined }),
      yAxis: names(
        d.entries.map((e) => e.name),
        width < 560 ? 18 : 30,
        { inverse: true },
      ),
      series: [
        {
          ...bars(
            d.entries.map((e, i) => ({
              value: e.ratio,
              itemStyle: { color: e.verdict || e.low !== null ? c.second : i ? c.dim : c.accent },
            })),
          ),
          label: {
            ...outside((p) => time(d.entries[p.dataIndex].time_ns) + ratio(d.entries[p.dataIndex], p.dataIndex)),
            distance: 12,
          },
          markLine: reference(light ? [{ name: "speed of light", xAxis: light, colour: c.third }] : []),
        },
        intervals(rows, "x", c.ink),
      ],
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => {
          const e = d.entries[p.dataIndex];
          const ends = e.low === null ? "" : ` (${e.low.toFixed(3)} .. ${e.high.toFixed(3)})`;
          return `${e.name}: ${time(e.time_ns)}\n${e.ratio.toFixed(3)}x the winner's time${ends}${e.verdict ? `\n${e.verdict}` : ""}${e.configuration ? `\n${short(e.configuration, 80)}` : ""}`;
        },
      },
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
    ...memory.map((m) => ({
      ...m,
      ends: [
        [from, m.rate * from],
        [highest / m.rate, highest],
      ],
      label: `${m.name} ${round(m.rate / 1e9)} GB/s`,
    })),
    ...flops.map((f) => ({
      ...f,
      ends: [
        [memory.length ? f.rate / Math.max(...memory.map((m) => m.rate)) : from, f.rate],
        [to, f.rate],
      ],
      label: `${f.name} ${rate(f.rate)}`,
    })),
  ];
  const size = highest >= 1e12 ? 1e12 : 1e9;
  const [narrow, tall] = [width < 560, width > 700 ? 400 : 340];
  // Names of points, as far as these are not too close to another one.
  const at = (p) => [
    (Math.log(p.intensity / from) / Math.log(to / from)) * width,
    (Math.log(p.flops / lowest) / Math.log(highest / lowest)) * tall,
  ];
  const named = new Set();
  d.points.forEach((p, i) => {
    const near = (k) => Math.abs(at(p)[0] - at(d.points[k])[0]) < 190 && Math.abs(at(p)[1] - at(d.points[k])[1]) < 15;
    if (!(narrow && d.points.length > 2) && ![...named].some(near)) named.add(i);
  });
  const side = (p) =>
    p.intensity < Math.sqrt(from * to) ? "right" : !narrow && p.name.length < 14 ? "left" : "bottom";
  return {
    height: tall,
    option: base({
      grid: { left: 62, right: 18, top: 14, bottom: 48 },
      xAxis: logAxis([from, to], "arithmetic intensity (FLOP per byte)", (value) => round(value, 2)),
      yAxis: logAxis(
        [lowest, 1.6 * highest],
        size === 1e12 ? "TFLOP/s" : "GFLOP/s",
        (value) => round(value / size, 2),
        { nameGap: 42 },
      ),
      series: [
        ...lines.map((l) => {
          const colour = l.kind === "bytes" ? c.third : c.quiet;
          return {
            type: "line",
            symbol: "none",
            silent: true,
            clip: true,
            lineStyle: { color: colour, width: 2, type: l.measured ? "dashed" : "solid" },
            data: l.ends.map(log),
            tooltip: { show: false },
          };
        }),
        // Their names: of slopes below the ridge, of flat ones above the right end.
        ...lines.map((l) => ({
          type: "scatter",
          symbolSize: 0,
          silent: true,
          data: [
            log(
              l.kind === "bytes"
                ? [Math.max(from, lowest / l.rate) * 1.1, Math.max(from, lowest / l.rate) * 1.1 * l.rate]
                : l.ends[1],
            ),
          ],
          label: {
            show: true,
            backgroundColor: c.panel,
            padding: [0, 3],
            formatter: () => (narrow ? l.name : l.label),
            color: l.kind === "bytes" ? c.third : c.quiet,
            fontFamily: FONT,
            fontSize: 11.5,
            ...(l.kind === "bytes" ? { position: "right", distance: 12 } : { position: "left", offset: [0, -10] }),
          },
        })),
        {
          type: "scatter",
          z: 6,
          data: d.points.map((p, i) => ({
            label: { show: named.has(i), position: side(p) },
            value: [...log([p.intensity, p.flops]), p.flops],
            symbol: p.kind === "winner" ? "circle" : "diamond",
            symbolSize: 12,
            itemStyle: {
              color: p.kind === "winner" ? c.accent : c.second,
              opacity: 1,
              borderColor: c.panel,
              borderWidth: 1.5,
            },
          })),
          label: {
            distance: 7,
            formatter: (p) => short(d.points[p.dataIndex].name, 28),
            color: c.ink,
            fontFamily: FONT,
            fontSize: 12,
          },
        },
      ],
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => {
          const one = d.points[p.dataIndex];
          return `${short(one.name, 70)}\n${time(one.time_ns)}, ${rate(one.flops)}\n${round(one.intensity)} FLOP per byte`;
        },
      },
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
      yAxis: axis("off the median (%)", {
        min: -most,
        max: most,
        nameGap: 44,
        axisLabel: { formatter: (value) => round(value, 2), showMinLabel: false, showMaxLabel: false },
      }),
      series: d.series.map((one, i) => ({
        type: "scatter",
        name: one.name,
        symbol: i ? "diamond" : "circle",
        symbolSize: i ? 9 : 8,
        itemStyle: { color: i ? c.second : c.accent, opacity: 0.85 },
        data: off(one),
        ...(i || !floor
          ? {}
          : {
              markLine: reference([
                { name: "noise floor", yAxis: floor },
                { name: "", yAxis: -floor },
              ]),
            }),
      })),
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => `${p.seriesName}, sample ${p.value[0]}\n${time(p.value[2])} (${round(p.value[1], 2)} %)`,
      },
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
      yAxis: axis("SM clock (GHz)", {
        min: low - room,
        max: high + 2 * room,
        nameGap: 44,
        axisLabel: { formatter: (value) => value.toFixed(2), showMinLabel: false, showMaxLabel: false },
      }),
      series: [
        [false, "below the power limit", "circle", c.faint],
        [true, "at the power limit", "triangle", c.second],
      ]
        .map(([capped, name, symbol, colour]) => ({
          type: "scatter",
          name,
          symbol,
          symbolSize: ghz.length > 2000 ? 3 : 6,
          itemStyle: { color: colour },
          data: ghz.map((y, i) => [d.number[i], y, i]).filter(([, , i]) => limited.has(i) === capped),
        }))
        .filter((one) => one.data.length)
        .map((one, i) =>
          i || !highest
            ? one
            : { ...one, markLine: reference([{ name: `highest ${round(highest)} GHz`, yAxis: highest }]) },
        ),
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
  const room = Math.max(0.15 * (high - low), 0.02 * high); // noise is not to look like progress
  return {
    height: 320,
    option: base({
      grid: { left: 70, right: 24, top: 36, bottom: 34 },
      legend: legend(),
      xAxis: axis("", { type: "time", splitLine: { show: false }, boundaryGap: ["4%", "4%"] }),
      yAxis: axis(`time (${name})`, {
        min: low - room,
        max: high + room,
        nameGap: 50,
        axisLabel: { formatter: (v) => round(v), showMinLabel: false, showMaxLabel: false },
      }),
      series: [
        {
          type: "line",
          name: "best so far",
          step: "end",
          symbol: "none",
          lineStyle: { color: c.accent, width: 2 },
          itemStyle: { color: c.accent },
          data: d.winners.filter((w) => w.best_ns).map((w) => [moment(w.at), w.best_ns / size, w.best_ns]),
          tooltip: { show: false },
        },
        {
          type: "scatter",
          name: "winner of a run",
          symbolSize: 10,
          data: d.winners.map((w) => ({ value: value(w), symbol: w.exportable ? "circle" : "emptyCircle" })),
          itemStyle: { color: c.accent },
        },
        ...(d.benches.length
          ? [
              {
                type: "scatter",
                name: "bench of the best",
                symbol: "diamond",
                symbolSize: 11,
                itemStyle: { color: c.second },
                data: d.benches.map(value),
              },
              intervals(
                d.benches.map((b) => [b.low_ns / size, b.high_ns / size, moment(b.at)]),
                "y",
                c.second,
              ),
            ]
          : []),
      ],
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => {
          const run = p.seriesName === "winner of a run" ? `, run ${d.winners[p.dataIndex].run}` : "";
          return `${new Date(p.value[0]).toISOString().slice(0, 16).replace("T", " ")} UTC${run}\n${time(p.value[2])}`;
        },
      },
    }),
  };
}

function overview(d, width) {
  const narrow = width < 560;
  const of = (e) => `${e.kernel} ${e.problem}${e.gpu ? `, ${e.gpu}` : ""}`;
  const ends = known(d.entries.flatMap((e) => [e.low, e.high, e.ratio]));
  const xAxis = logAxis(
    [...ends, 0.97, 1.05],
    "times as fast as the default",
    (value) => `${round(value, 3)}x`,
    {},
    narrow ? 2 : 6,
  );
  return {
    height: (d.entries.length > 12 ? 24 : 32) * d.entries.length + 70,
    option: base({
      grid: { left: narrow ? 130 : Math.min(360, 0.38 * width), right: 84, top: 10, bottom: 48 },
      xAxis,
      yAxis: names(d.entries.map(of), narrow ? 19 : Math.min(56, Math.floor(0.055 * width)), {
        inverse: true,
        splitLine: { show: true, lineStyle: { color: c.grid } },
      }),
      series: [
        {
          type: "scatter",
          z: 6,
          symbolSize: 10,
          data: d.entries.map((e, i) => ({
            value: [Math.log10(e.ratio), i, e.ratio],
            itemStyle: { color: e.verdict === "faster" ? c.accent : c.dim },
            symbol: e.verdict === "faster" ? "circle" : "emptyCircle",
          })),
          markLine: reference([{ name: "", xAxis: 0 }]),
        },
        {
          // the ratios, in a column
          type: "scatter",
          symbolSize: 0,
          silent: true,
          data: d.entries.map((_, i) => [xAxis.max, i]),
          label: outside((p) => `${d.entries[p.dataIndex].ratio.toFixed(3)}x`),
        },
        intervals(
          d.entries
            .map((e, i) => [e.low, e.high, i])
            .filter(([low]) => low)
            .map(([low, high, i]) => [Math.log10(low), Math.log10(high), i]),
          "x",
          c.ink,
        ),
      ],
      tooltip: {
        ...base({}).tooltip,
        formatter: (p) => {
          const e = d.entries[p.dataIndex];
          return `${short(of(e), 80)}\n${time(e.time_ns)}, ${e.ratio.toFixed(3)}x as fast as the default: ${e.verdict}`;
        },
      },
    }),
  };
}
