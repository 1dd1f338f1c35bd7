// Before the page is painted, so that it does not flash in the other theme.
"use strict";
try {
  const chosen = localStorage.getItem("waypost-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be switched off; the system's theme applies.
}
