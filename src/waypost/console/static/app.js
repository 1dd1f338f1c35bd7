// Times in the reader's zone, keyboard, theme, copying, and live updates. No page needs this script to be read.
"use strict";

const base = document.body.dataset.base;
const root = document.documentElement;

// Times

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const units = [["second", 60], ["minute", 60], ["hour", 24], ["day", Infinity]];

// In the greatest unit; what rounds to all of one is one of the next: never "60 seconds ago".
function toRelative(seconds) {
  let count = Math.round(seconds);
  for (const [unit, most] of units) {
    if (Math.abs(count) < most) return relative.format(count, unit);
    count = Math.round(count / most);
  }
}

function showTimes(within) {
  for (const element of within.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    const seconds = (at - Date.now()) / 1000;
    element.title = exact.format(at) + " · " + at.toISOString();
    element.textContent = Math.abs(seconds) > 30 * 86400
      ? at.toLocaleDateString(undefined, { dateStyle: "medium" })
      : toRelative(seconds);
  }
}
showTimes(document);
setInterval(() => showTimes(document), 30000);
document.addEventListener("htmx:after:swap", (event) => {
  showTimes(document);
  follow();
  if (event.detail.ctx.request.method.toUpperCase() === "POST") focusOutcome();
});

// The button of an action is gone with the page it was on: what came of the action gets the focus, so that it is in sight
// where the page was scrolled down, is read out, and the next key goes on from there.
function focusOutcome() {
  const outcome = document.querySelector("[data-outcome]") || document.querySelector("#messages [role]");
  if (!outcome) return;
  outcome.tabIndex = -1;
  outcome.focus();
}

// A field with a time shows the reader's zone; the address has UTC, so that a shared view is the same everywhere.
for (const field of document.querySelectorAll("[data-utc]")) {
  const at = new Date(`${field.value}Z`);
  if (field.value) field.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  field.labels[0].querySelector(".dim").remove();
  field.form.addEventListener("formdata", (event) => {
    if (field.value) event.formData.set(field.name, new Date(field.value).toISOString().slice(0, 16));
  });
}

// Theme

function switchTheme() {
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("waypost-theme", root.dataset.theme); } catch { /* storage may be switched off */ }
  document.dispatchEvent(new CustomEvent("waypost:theme"));
}

// Clicks

document.addEventListener("click", async (event) => {
  const target = event.target.closest("[data-theme-toggle], [data-help], [data-menu], [data-copy]");
  if (!target) return;
  if ("themeToggle" in target.dataset) switchTheme();
  else if ("help" in target.dataset) document.getElementById("help").showModal();
  else if ("menu" in target.dataset) {
    const isOpen = target.getAttribute("aria-expanded") === "true";
    target.setAttribute("aria-expanded", String(!isOpen));
    document.getElementById("pages").classList.toggle("open", !isOpen);
  } else {
    await navigator.clipboard.writeText(document.querySelector(target.dataset.copy).textContent);
    target.textContent = "Copied";
  }
});

document.addEventListener("change", (event) => {
  if (!("selectAll" in event.target.dataset)) return;
  for (const box of event.target.closest("table").querySelectorAll("td.box input")) box.checked = event.target.checked;
});

// Keyboard

let wentAt = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const goes = Date.now() - wentAt < 1500;
  wentAt = 0;
  if (goes) {
    const link = document.querySelector(`a[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "g") wentAt = Date.now();
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "t") switchTheme();
  else if (event.key === "/") {
    const search = document.querySelector("[data-search]") || document.querySelector("main input:not([type=hidden])");
    if (search) { event.preventDefault(); search.focus(); }
  } else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
});

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement.closest("[data-row]"));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step))];
  const inside = row.querySelector("a, button, input:not([type=hidden])");
  if (inside) inside.focus();
  else { row.tabIndex = -1; row.focus(); }
  row.scrollIntoView({ block: "nearest" });
}

// Live updates: one stream per page; the page is loaded again, at most every two seconds, and merged into what is there.

let source = null;
let followed = "";
let waiting = null;
let refreshedAt = 0;

function refresh() {
  waiting = null;
  if (document.hidden) return;  // it is done when the page is looked at again
  refreshedAt = Date.now();
  const main = document.getElementById("main");
  main.dispatchEvent(new CustomEvent("waypost:refresh"));
}

function onChange() {
  if (waiting === null) waiting = setTimeout(refresh, Math.max(150, refreshedAt + 2000 - Date.now()));
}

function showConnection(state) {
  for (const element of document.querySelectorAll("[data-connection]")) element.dataset.connection = state;
}

function follow() {
  const kinds = document.getElementById("main").dataset.live || "";
  if (source && kinds === followed) { showConnection(source.readyState === 1 ? "open" : "lost"); return; }
  if (source) source.close();
  source = null;
  followed = kinds;
  if (!kinds) return;
  let wasLost = false;
  source = new EventSource(`${base}/events?kinds=${encodeURIComponent(kinds)}`);
  source.onopen = () => { showConnection("open"); if (wasLost) onChange(); wasLost = false; };
  source.onerror = () => { showConnection("lost"); wasLost = true; };
  source.addEventListener("change", onChange);
}
const loadedAt = Date.now();
setInterval(() => {
  const every = Number(document.getElementById("main").dataset.every || 0);
  if (every && Date.now() - Math.max(refreshedAt, loadedAt) >= every * 1000 && waiting === null) refresh();
}, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { showTimes(document); onChange(); } });
addEventListener("pagehide", () => { if (source) source.close(); });
follow();
