"use strict";

// Charts: [{title, target, series: [{label, number, steps: TABLE, seconds: TABLE}]}], where a TABLE
// is [x, value] or [x, value, low, high] in columns, and the number is that of a color.
const charts = JSON.parse(document.getElementById("charts").textContent);
const COLORS = ["#3b78c3", "#d9722e", "#3b9a57", "#a456b3", "#c43d4b", "#8a6d3b", "#2a9aa0", "#7a7f8a"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const short = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 4});
const long = new Intl.NumberFormat("en", {maximumSignificantDigits: 6});
let plots = [];

function zoomAll(plot) {
  const {min, max} = plot.scales.x;
  for (const other of plots) {
    if (other.scales.x.min !== min || other.scales.x.max !== max) {
      other.setScale("x", {min, max});
    }
  }
}

function addChart(chart, place, unit, height) {
  const box = place.appendChild(document.createElement("div"));
  box.className = "chart";
  box.appendChild(document.createElement("h3")).textContent = chart.title;
  const axis = {
    stroke: () => color("--faint"),
    grid: {stroke: () => color("--line"), width: 1},
    ticks: {show: false},
    values: (plot, values) => values.map((value) => short.format(value)),
  };
  const shown = (plot, value) => (value === null ? "" : long.format(value));
  const options = {
    width: box.clientWidth,
    height,
    cursor: {sync: {key: "all"}, drag: {x: true, y: false}},
    scales: {x: {time: false}},
    axes: [{...axis, size: 32}, {...axis, size: 56}],
    series: [{label: unit, value: shown}],
    bands: [],
    hooks: {setScale: [(plot, key) => key === "x" && zoomAll(plot)]},
  };
  const tables = chart.series.map((series) => series[unit]);
  chart.series.forEach((series, index) => {
    const stroke = COLORS[series.number % COLORS.length];
    const first = options.series.length;
    options.series.push({label: series.label, stroke, width: 1.5, spanGaps: true, value: shown});
    if (tables[index].length > 2) {
      const edge = {width: 0, stroke: "transparent", spanGaps: true, points: {show: false}, value: shown};
      options.series.push({...edge, label: "from"}, {...edge, label: "to"});
      options.bands.push({series: [first + 2, first + 1], fill: stroke + "40"});
    }
  });
  const data = uPlot.join(tables);
  if (chart.target !== null) {
    options.series.push({label: "target", stroke: () => color("--faint"), dash: [6, 4], points: {show: false}, value: shown});
    data.push(data[0].map(() => chart.target));
  }
  plots.push(new uPlot(options, data, box));
}

function draw(unit) {
  plots.forEach((plot) => plot.destroy());
  plots = [];
  const places = [document.getElementById("large"), document.getElementById("small")];
  places.forEach((place) => place.replaceChildren());
  charts.forEach((chart, number) =>
    addChart(chart, places[Math.min(number, 1)], unit, number ? 180 : 320));
  for (const button of document.querySelectorAll("[data-unit]")) {
    button.setAttribute("aria-pressed", button.dataset.unit === unit);
  }
}

for (const button of document.querySelectorAll("[data-unit]")) {
  button.onclick = () => draw(button.dataset.unit);
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.onclick = () => {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    document.execCommand("copy");  // works in a file, too, where navigator.clipboard may not
    button.textContent = "copied";
  };
}
dark.onchange = () => plots.forEach((plot) => plot.redraw());
addEventListener("resize", () => plots.forEach((plot) =>
  plot.setSize({width: plot.root.parentNode.clientWidth, height: plot.height})));
draw("steps");
