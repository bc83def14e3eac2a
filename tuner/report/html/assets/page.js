"use strict";
// Inflates the library and the data, draws each figure when it comes near the window and anew in another theme, and sorts,
// filters and plots the trials. Texts of the data become text: in tables by textContent, in figures by inert().
(async () => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const inflate = async (id) => {
    const { textContent } = find(`#${id}`);
    const bytes = Uint8Array.fromBase64?.(textContent) ?? Uint8Array.from(atob(textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const inert = (text) => String(text).replace(/[&<>]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[letter]);
  const written = (value) => (typeof value === "number" && !Number.isInteger(value) ? +value.toPrecision(4) : (value ?? ""));
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const { figures, tables, templates } = JSON.parse(await inflate("data"));
  const drawn = new Set();
  const CONFIG = {
    displaylogo: false,
    displayModeBar: "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    responsive: true,
  };

  const draw = (place) => {
    const scheme = find("input[name=theme]:checked").id.slice(6);
    const dark = scheme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : scheme === "dark";
    const { data, layout } = figures[place.id];
    const template = templates[dark ? "dark" : "light"];
    Plotly.react(place, data, { ...layout, template }, CONFIG);
    drawn.add(place);
  };

  // Orders values: numbers before texts, and what is missing last.
  const compare = (a, b) =>
    (a == null) - (b == null) || (typeof a === "string") - (typeof b === "string") || (a > b) - (a < b);
  const TESTS = {
    "=": (order) => order === 0,
    "!=": (order) => order !== 0,
    "<": (order) => order < 0,
    ">": (order) => order > 0,
    "<=": (order) => order <= 0,
    ">=": (order) => order >= 0,
  };

  // Returns whether a row fits a word of the filter: name=value, or a text that one of its cells contains.
  const test = (columns, word) => {
    const [, name, sign, text] = word.match(/^(.+?)(<=|>=|!=|=|<|>)(.*)$/) || [];
    const column = sign && (columns.find((one) => one.name === name) || columns.find((one) => one.name.startsWith(name)));
    if (!column) return (row) => columns.some(({ values }) => `${written(values[row])}`.toLowerCase().includes(word.toLowerCase()));
    return (row) => {
      const value = column.values[row];
      const wanted = typeof value === "number" ? Number(text) : text;
      return value == null ? sign === "!=" : TESTS[sign](compare(value, wanted));
    };
  };

  // A column as an axis: a scale for times and other quantities, else each value in its order.
  const axis = ({ name, values }, rows) => {
    const kept = rows.map((row) => values[row]);
    const distinct = [...new Set(kept.filter((value) => value != null))].sort(compare);
    if (distinct.length > 24 && distinct.every((value) => typeof value === "number")) {
      const wide = distinct[0] > 0 && distinct.at(-1) > 10 * distinct[0];
      const range = wide && [Math.log10(distinct[0]) - 0.03, Math.log10(Math.min(distinct.at(-1), 10 * distinct[0])) + 0.03];
      return [kept, { title: { text: inert(name) }, ...(wide ? { type: "log", range } : {}) }];
    }
    const texts = kept.map((value) => (value == null ? "none" : inert(written(value))));
    return [texts, { title: { text: inert(name) }, type: "category", categoryarray: distinct.map((v) => inert(written(v))) }];
  };

  for (const card of all(".trials")) {
    const columns = tables[card.id];
    const [body, more, count] = ["tbody", ".more", ".count"].map((selector) => find(selector, card));
    const total = columns[0].values.length;
    const order = { by: 1, sign: 1 };
    let [rows, shown] = [[], 50];
    const fill = () => {
      const cells = (row) => columns.map(({ values }) => element("td", written(values[row])));
      body.replaceChildren(
        ...rows.slice(0, shown).map((row) => {
          const line = document.createElement("tr");
          line.append(...cells(row));
          return line;
        }),
      );
      more.hidden = rows.length <= shown;
      count.textContent = rows.length < total ? `${rows.length} of ${total}` : `${total}`;
    };
    const [x, y] = [".x", ".y"].map((selector) => find(selector, card));
    const place = find(".scatter", card);
    const plot = () => {
      const fastFirst = rows.filter((row) => columns[1].values[row] != null);
      const times = columns[1].values;
      fastFirst.sort((a, b) => times[b] - times[a]);
      const [[xs, xaxis], [ys, yaxis]] = [x, y].map((select) => axis(columns[select.value], fastFirst));
      const colour = fastFirst.map((row) => times[row]);
      const [best, middle] = [colour.at(-1), colour[Math.floor(colour.length / 2)]];
      const marker = { color: colour, cmin: best, cmax: middle, colorscale: "Viridis", showscale: true, size: 8, colorbar: { title: { text: columns[1].name } } };
      const text = fastFirst.map((row) => `trial #${columns[0].values[row]}: ${written(times[row])}`);
      const trace = { type: "scatter", mode: "markers", x: xs, y: ys, text, marker, hovertemplate: "%{text}<extra></extra>" };
      figures[place.id] = { data: [trace], layout: { xaxis, yaxis, height: 400 } };
      if (drawn.has(place)) draw(place);
    };
    const words = find("input", card);
    const choose = () => {
      const tests = words.value.trim().split(/\s+/).filter(Boolean).map((word) => test(columns, word));
      const { values } = columns[order.by];
      rows = columns[0].values.map((_, row) => row).filter((row) => tests.every((one) => one(row)));
      rows.sort((a, b) => (values[a] == null) - (values[b] == null) || order.sign * compare(values[a], values[b]));
      fill();
      plot();
    };
    [...card.querySelectorAll("th")].forEach((head, by) => {
      const button = element("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        Object.assign(order, { by, sign: order.by === by ? -order.sign : 1 });
        card.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
        choose();
      });
    });
    for (const [select, first] of [[x, Math.min(4, columns.length - 1)], [y, 1]]) {
      select.append(...columns.map(({ name }, i) => Object.assign(element("option", name), { value: i })));
      select.value = first;
      select.addEventListener("change", plot);
    }
    more.addEventListener("click", () => ((shown *= 4), fill()));
    words.addEventListener("input", choose);
    choose();
  }
  all(".command button").forEach((button) =>
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(button.previousElementSibling);
      await navigator.clipboard?.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
    }),
  );
  document.documentElement.classList.add("scripted");
  document.head.append(element("script", await inflate("library")));

  const places = all(".chart");
  const near = new IntersectionObserver(
    (entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        near.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "400px" },
  );
  places.forEach((place) => near.observe(place));
  const redraw = () => drawn.forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  all("input[name=theme]").forEach((input) => input.addEventListener("change", redraw));
  addEventListener("beforeprint", () => places.filter((place) => !drawn.has(place)).forEach(draw));
})().catch(() => (document.getElementById("undrawn").hidden = false));
