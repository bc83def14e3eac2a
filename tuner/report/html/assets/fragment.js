(async () => {
  const inflate = async (text) => {
    const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const { figures, template } = JSON.parse(await inflate("DATA"));
  if (!window.Plotly) {
    const script = document.createElement("script");
    script.textContent = await inflate("LIBRARY");
    document.head.append(script);
  }
  for (const [key, { data, layout }] of Object.entries(figures))
    Plotly.newPlot(key, data, { ...layout, template }, { displayModeBar: false, responsive: true });
})();
