"use strict"; // Everything that a run's files say is shown as text: only textContent is set.

const PERIOD = 2000; // milliseconds between questions for news
const MAX_POINTS = 1000; // that are kept of a run
const MAX_METRICS = 300; // to choose from
const SIZES = { large: [648, 310], small: [331, 144] };
const runs = []; // in the server's order
let about = null; // the first answer: titles, colors, units
let unit = "step";
let chosen = (new URLSearchParams(location.hash.slice(1)).get("metrics") ?? "").split(",").filter(Boolean);

const byId = (id) => document.getElementById(id);

function add(parent, tag, text = "", attributes = {}) {
  const isDrawn = ["svg", "path", "text", "circle"].includes(tag);
  const made = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return parent.appendChild(made);
}

function short(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit && size < 1e15) return `${+(value / unit).toPrecision(4)}${letter}`;
  return `${+value.toPrecision(4)}`;
}

function last(run, name) {
  const column = run.names.indexOf(name);
  const row = run.rows.findLast((row) => row[column] != null);
  return row?.[column];
}

function number(value) {
  if (value === undefined) return "-";
  return Math.abs(value) < 1000 ? `${+value.toPrecision(4)}` : Math.round(value).toLocaleString("en");
}

function duration(seconds) {
  const [hours, minutes, rest] = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return [hours, ...[minutes, rest].map((x) => `${x}`.padStart(2, "0"))].join(":");
}

// Of two rows the later one, with what only the other has, as the mean of a rare evaluation.
function halve(rows) {
  const merge = (row, before) => row.map((value, i) => value ?? before?.[i]);
  return rows.flatMap((row, i) => ((rows.length - i) % 2 ? [merge(row, rows[i - 1])] : []));
}

// The curve of a metric: pairs [x, y].
function points(run, name) {
  const [x, y] = [run.names.indexOf(unit), run.names.indexOf(name)];
  const low = name === "explained_variance" ? -1 : -Infinity; // far below 0 it means nothing
  return run.rows.filter((row) => row[x] != null && row[y] != null).map((row) => [row[x], Math.max(row[y], low)]);
}

function ticks(low, high) {
  const power = 10 ** Math.floor(Math.log10((high - low) / 3));
  const step = power * [5, 2, 1].find((x) => 2 * x * power <= high - low || x === 1);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

function limits(values) {
  const [low, high] = values.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
  const margin = (high - low) * 0.03 || Math.abs(low) * 0.1 || 1;
  return [low - margin, high + margin];
}

function drawChart(name) {
  const curves = runs.map((run) => points(run, name));
  const all = curves.flat();
  if (!all.length) return;
  const size = name.endsWith("return_mean") ? "large" : "small";
  const [width, height] = SIZES[size];
  const figure = add(byId("charts"), "figure", "", { class: size });
  const title = about.titles[name] ?? name;
  add(figure, "figcaption", title);
  const svg = add(figure, "svg", "", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const [[left, right], [bottom, top]] = [0, 1].map((i) => limits(all.map((point) => point[i])));
  const edge = size === "large" ? 56 : 44;
  const x = (value) => edge + ((value - left) / (right - left)) * (width - edge - 6);
  const y = (value) => height - 22 - ((value - bottom) / (top - bottom)) * (height - 28);
  for (const value of ticks(left, right)) {
    add(svg, "path", "", { d: `M${x(value)} 6V${height - 22}`, class: "grid" });
    add(svg, "text", short(value), { x: x(value), y: height - 4, "text-anchor": "middle" });
  }
  for (const value of ticks(bottom, top)) {
    add(svg, "path", "", { d: `M${edge} ${y(value)}H${width - 6}`, class: "grid" });
    add(svg, "text", short(value), { x: edge - 6, y: y(value) + 4, "text-anchor": "end" });
  }
  curves.forEach((curve, i) => {
    const places = curve.map((point) => `${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`);
    if (places.length > 1) add(svg, "path", "", { d: `M${places.join("L")}`, stroke: runs[i].color, class: "curve" });
    else if (places.length) {
      const [cx, cy] = places[0].split(" ");
      add(svg, "circle", "", { cx, cy, r: 3, fill: runs[i].color, class: "curve" });
    }
  });
}

function draw() {
  byId("charts").replaceChildren();
  chosen.forEach(drawChart);
  if (!byId("charts").firstChild) add(byId("charts"), "p", "There are no values yet.");
}

// The metrics to choose from, if there are others than before.
function offer() {
  const names = [...new Set([...chosen, ...runs.flatMap((run) => run.names)])].slice(0, MAX_METRICS);
  if (names.length === byId("metrics").childElementCount) return;
  byId("metrics").replaceChildren();
  for (const name of names) {
    const label = add(byId("metrics"), "label");
    const box = add(label, "input", "", { type: "checkbox" });
    box.checked = chosen.includes(name);
    add(label, "span", ` ${name}`);
    box.onchange = () => {
      chosen = names.filter((other) => (other === name ? box.checked : chosen.includes(other)));
      history.replaceState(null, "", `#metrics=${encodeURIComponent(chosen.join(","))}`);
      draw();
    };
  }
}

function begin(answer) {
  about = answer;
  if (!chosen.length) chosen = Object.keys(about.titles);
  for (const [name, title] of Object.entries(about.units)) {
    const label = add(byId("units"), "label");
    const button = add(label, "input", "", { type: "radio", name: "x" });
    button.checked = name === unit;
    add(label, "span", ` ${title}`);
    button.onchange = () => {
      unit = name;
      draw();
    };
  }
}

// Places for a run's facts, video and events.
function open(news) {
  const run = { ...news, names: [], rows: [], color: about.colors[runs.length % about.colors.length] };
  const card = add(byId("runs"), "section");
  card.style.color = run.color;
  add(card, "h2", run.name);
  run.facts = add(card, "p");
  run.warning = add(card, "p", "", { class: "warning" });
  const more = add(byId("more"), "section");
  add(more, "h2", run.name);
  run.film = add(more, "div");
  run.list = add(more, "ol", "No events.");
  runs.push(run);
}

async function show(run, index, news) {
  run.place = { table: news.table, offset: news.offset, size: news.size };
  run.more = news.more;
  if (news.names) [run.names, run.rows] = [news.names, []];
  run.rows = run.rows.concat(news.rows ?? []);
  while (run.rows.length > MAX_POINTS) run.rows = halve(run.rows);
  const [steps, mean, speed] = ["step", "episode_return_mean", "steps_per_second"].map((name) => number(last(run, name)));
  const progress = `step ${steps}, return ${mean}, ${speed} steps/s, ${duration(last(run, "seconds"))}`;
  const state = `${run.environment}, ${news.training ? "training" : "not training"}`;
  run.facts.textContent = `${state}: ${run.rows.length ? progress : "no iteration has ended yet"}`;
  if (news.names || news.problem) run.warning.textContent = news.problem ?? "";
  if (news.events) {
    run.list.replaceChildren();
    for (const event of news.events) {
      const line = add(run.list, "li");
      add(line, "time", event.time.slice(0, 19).replace("T", " "));
      add(line, "span", ` ${event.kind} ${event.message}`);
    }
  }
  const isPlaying = run.film.firstChild?.paused === false; // by the user, who sees it to its end
  if (news.video != null && news.video !== run.shown && !isPlaying) {
    run.shown = news.video;
    const film = await fetch(`video?run=${index}`);
    URL.revokeObjectURL(run.film.firstChild?.src);
    run.film.replaceChildren();
    if (film.ok) add(run.film, "video", "", { controls: "", src: URL.createObjectURL(await film.blob()) });
    const step = news.video.toLocaleString("en");
    add(run.film, "p", film.ok ? `After step ${step}` : `The video after step ${step} is too large, or gone.`);
  }
}

async function ask() {
  let pause = PERIOD;
  try {
    const places = JSON.stringify(runs.map((run) => run.place));
    const answer = await (await fetch(`news?places=${encodeURIComponent(places)}`)).json();
    if (!about) begin(answer);
    if (about.session !== answer.session) return location.reload(); // the command was started anew, or shows other runs
    answer.runs.slice(runs.length).forEach(open);
    answer.runs.forEach((news, i) => show(runs[i], i, news));
    const left = answer.left_out && `${answer.left_out} more runs are not shown: name fewer.`;
    byId("notice").textContent = left || "";
    document.title = `${runs.map((run) => run.name).join(", ")} - ppo watch`;
    offer();
    if (answer.runs.some((news) => news.names || news.rows?.length)) draw();
    if (runs.some((run) => run.more)) pause = 0;
  } catch (error) {
    byId("notice").textContent = `No news: the command that serves this page may have ended (${error.message}).`;
  }
  setTimeout(ask, pause);
}

ask();
