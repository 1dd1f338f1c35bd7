// The plots of the overview: the last hour of calls, loaded once and then continued every five seconds.
"use strict";

const plots = document.querySelector("[data-plots]");
const columns = { at: [], calls: [], errors: [], p50: [], p99: [] };
const HOUR = 3600;
const LEAST = 120;
const RECENT = 60;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
let step = 5;
let drawn = [];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shown = (value) => (value === null || value === undefined ? "–" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

const kinds = {
  rate: () => [columns.calls.map((n) => n / step)],
  errors: () => [columns.calls.map((n, i) => (n ? (100 * columns.errors[i]) / n : null))],
  time: () => [columns.p50.map((s) => (s === null ? null : s * 1000)), columns.p99.map((s) => (s === null ? null : s * 1000))],
};
const series = {
  rate: [["--accent", "Calls/s"]],
  errors: [["--bad", "Errors %"]],
  time: [["--accent", "p50 ms"], ["--violet", "p99 ms"]],
};

// The width of the widest label; uPlot asks again while it lays out the axes.
function fitLabels(plot, labels) {
  const context = plot.ctx;
  context.save();
  context.font = `${11 * devicePixelRatio}px system-ui`;
  const widest = Math.max(0, ...(labels || []).map((label) => context.measureText(label).width / devicePixelRatio));
  context.restore();
  return Math.max(36, Math.ceil(widest) + 12);
}

// The samples without a neighbour, which no line reaches: on a quiet hub these are all that there are.
function findLone(plot, place) {
  const values = plot.data[place];
  const has = (index) => values[index] !== null && values[index] !== undefined;
  return values.flatMap((_value, index) => (has(index) && !has(index - 1) && !has(index + 1) ? [index] : []));
}

function draw() {
  drawn.forEach((plot) => plot.destroy());
  drawn = [];
  const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  for (const element of plots.querySelectorAll("[data-plot]")) {
    const name = element.dataset.plot;
    const body = element.querySelector("[data-body]");
    drawn.push(new uPlot({
      width: body.clientWidth,
      height: 132,
      // Half of the last time stands to the right of its tick.
      padding: [8, 30, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      scales: {
        x: { range: () => { const end = columns.at.at(-1) || Date.now() / 1000; return [Math.max(end - HOUR, Math.min(columns.at[0] || end, end - LEAST)), end]; } },
        y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] },
      },
      axes: [{ ...axis, space: 70, size: 26, values: (_plot, times) => times.map((at) => clock.format(at * 1000)) }, { ...axis, size: fitLabels, space: 30 }],
      series: [{}, ...series[name].map(([variable, label]) => ({
        label, stroke: color(variable), width: 1.5, points: { size: 4, width: 1, fill: color(variable), filter: findLone },
        fill: series[name].length === 1 ? color(variable + "-soft") : undefined,
      }))],
    }, [columns.at, ...kinds[name]()], body));
  }
  figures();
}

function figures() {
  for (const element of plots.querySelectorAll("[data-plot]")) {
    // What is older than a minute is not how the hub is doing.
    const values = kinds[element.dataset.plot]().map((one) => one.slice(-RECENT / step).findLast((value) => value !== null));
    element.querySelector("[data-figure]").textContent = values.map(shown).join(" · ");
  }
}

async function load() {
  if (document.hidden) return;
  const answer = await fetch(`${plots.dataset.plots}?after=${columns.at.at(-1) || 0}`);
  if (!answer.ok) return;
  const more = await answer.json();
  step = more.step;
  for (const name of Object.keys(columns)) columns[name].push(...more[name]);
  const surplus = columns.at.length - HOUR / step;
  if (surplus > 0) for (const name of Object.keys(columns)) columns[name].splice(0, surplus);
  if (!drawn.length) { draw(); return; }
  plots.querySelectorAll("[data-plot]").forEach((element, place) => drawn[place].setData([columns.at, ...kinds[element.dataset.plot]()]));
  figures();
}

load();
setInterval(load, 5000);
document.addEventListener("visibilitychange", load);
document.addEventListener("waypost:theme", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => drawn.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: 132 }))).observe(plots);
