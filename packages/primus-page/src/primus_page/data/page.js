// Draws the charts of a report with ECharts, which stands before this in the page: in the reader's colours, as wide as
// the page is, and for print. All data are in the page: nothing is loaded.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = 640;
  const font = { fontFamily: "system-ui, sans-serif", fontSize: 12, lineHeight: 15 };
  const wrap = { lineHeight: font.lineHeight, overflow: "break" };
  // Okabe and Ito's colours, which people with any colour vision tell apart; lighter where the page is dark.
  const colours = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#6b4fbb", "#555555", "#b00020"],
    dark: ["#56b4e9", "#f0a25f", "#2fc79b", "#e39ac4", "#e0c341", "#8fd0ff", "#b39ddb", "#aaaaaa", "#ff8a80"],
  };
  const tones = {
    light: { front: "#1b1f24", soft: "#5c6570", line: "#d9dee4", back: "#ffffff", area: "rgba(0,114,178,.08)" },
    dark: { front: "#e6e9ed", soft: "#9aa4b0", line: "#333a43", back: "#1d2228", area: "rgba(86,180,233,.12)" },
  };

  function number(value, digits) {
    if (value === null || value === undefined || Number.isNaN(value)) return "not finite";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(Math.max(digits - 2, 1)).replace(/\.?0+e/, "e");
    return value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  }
  const percent = (value) => `${number(value * 100, 3)} %`;

  function axis(given, tone, isPercent, width) {
    const isNumber = given.type !== "category";
    return {
      nameLocation: isNumber ? "end" : "middle",
      nameTextStyle: { color: tone.soft, align: "left" },
      axisLine: { lineStyle: { color: tone.line } },
      splitLine: { show: isNumber, lineStyle: { color: tone.line } },
      axisLabel: {
        color: tone.soft, hideOverlap: true, ...(isNumber ? {} : { ...wrap, width }),
        ...(isNumber ? { formatter: isPercent ? percent : (value) => number(value, 5) } : {}),
      },
      ...given,
    };
  }

  // Labels are wrapped, never cut: the size of each text if none is wider than `most` pixels.
  function boxes(texts, most) {
    return texts.map((text) => {
      const box = (style) => new echarts.graphic.Text({ style: { ...font, text, ...style } }).getBoundingRect();
      const width = Math.ceil(Math.min(most, box({}).width * 1.1)); // wrapping adds up single letters, which are wider
      return { width, height: box({ ...wrap, width }).height };
    });
  }
  const largest = (found, side) => Math.max(...found.map((one) => one[side]));

  // How much room the labels of bars and the entries of the legend need; the chart becomes as tall as that takes.
  function fitted(place, given, whole) {
    const [isBars, texts] = [given.yAxis.type === "category", given.series.map((one) => one.name)];
    const labels = boxes(given.yAxis.data ?? given.xAxis.data ?? [""], isBars ? whole * 0.4 : 130);
    const entries = boxes(texts, whole - 150);
    const [label, entry, high] = [largest(labels, "width"), largest(entries, "width"), largest(entries, "height")];
    const gap = 10 + (high - font.lineHeight) / 2; // an entry of several lines begins above its mark
    const beside = Math.max(1, Math.floor((whole - 100) / (30 + entry + gap)));
    let more = -gap - font.lineHeight;
    for (let at = 0; at < entries.length; at += beside) more += largest(entries.slice(at, at + beside), "height") + gap;
    place.style.height = "";
    const tall = isBars ? labels.length * Math.max(34, largest(labels, "height") + 8) + 130 : place.clientHeight;
    if (!given.legend.show) more = 0;
    place.style.height = `${tall + more}px`;
    return { isBars, label, entry, gap, more };
  }

  function option(given, tone, palette, forPrint, { isBars, label, entry, gap, more }) {
    const beside = isBars ? 0 : label / 2; // so far the first and the last label of columns reach beyond them
    const value = given.percent ? percent : (one) => number(one, 6);
    const xPercent = given.percent && isBars;
    return {
      ...given,
      animation: false,
      color: palette,
      textStyle: { color: tone.front, ...font },
      aria: { enabled: true },
      grid: { left: Math.max(10, beside), right: Math.max(28, beside), top: given.legend.show ? 62 + more : 34, bottom: 26, containLabel: true },
      xAxis: { ...axis(given.xAxis, tone, xPercent, label), nameLocation: "middle", nameGap: 24, nameTextStyle: { color: tone.soft, align: "center" } },
      yAxis: axis(given.yAxis, tone, given.percent && !isBars, label),
      legend: { ...given.legend, top: 2, left: 0, right: 90, itemGap: gap, textStyle: { ...wrap, color: tone.front, width: entry } },
      tooltip: {
        ...given.tooltip, confine: true, valueFormatter: value, backgroundColor: tone.back, borderColor: tone.line,
        textStyle: { color: tone.front, fontSize: 12 },
      },
      toolbox: forPrint || isBars ? { show: false } : {
        right: 4, top: 0, itemSize: 13, iconStyle: { borderColor: tone.soft },
        feature: { dataZoom: { yAxisIndex: "none", title: { zoom: "zoom", back: "zoom back" } }, restore: { title: "reset" } },
      },
      series: given.series.map((one) => ({ ...one, ...(one.markArea ? { markArea: { ...one.markArea, itemStyle: { color: tone.area } } } : {}) })),
    };
  }

  const drawn = new Map();
  function draw(forPrint) {
    const theme = dark.matches && !forPrint ? "dark" : "light";
    for (const chart of charts) {
      const place = document.getElementById(`chart-${chart.name}`);
      const width = forPrint ? paper : place.clientWidth;
      const space = fitted(place, chart.option, width);
      if (!drawn.has(place)) drawn.set(place, echarts.init(place, null, { renderer: "svg" }));
      drawn.get(place).setOption(option(chart.option, tones[theme], colours[theme], forPrint, space));
      drawn.get(place).resize({ width });
    }
  }

  draw(false);
  let printing = false; // on paper the page is light, and the browser tells of that change, too
  const print = (begins) => () => draw((printing = begins));
  dark.addEventListener("change", () => draw(printing));
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  const watch = new ResizeObserver(() => {
    const isOther = [...drawn].some(([place, one]) => one.getWidth() !== place.clientWidth);
    if (isOther && !printing) requestAnimationFrame(() => draw(printing)); // as heights change with the width
  });
  document.querySelectorAll(".charts").forEach((one) => watch.observe(one));
  document.documentElement.dataset.drawn = String(charts.length);
})();
