"use strict";
// Without this script the pages work, and show the state of the time at which they were loaded.

const root = document.documentElement;
const REFRESH_MS = 2000;
const MAX_OUTPUT = 65536;

// --- light and dark

function stored() {
  try { return localStorage.getItem("penstock-theme"); } catch { return null; }
}

if (stored() === "light" || stored() === "dark") root.dataset.theme = stored();

function toggleTheme() {
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("penstock-theme", root.dataset.theme); } catch { /* for this page only */ }
}

// --- live: the parts of the page that change are taken from the same page, requested again

let isStale = false;
let isRefreshing = false;

function tell(text, kind) {
  const connection = document.getElementById("connection");
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = kind;
}

async function refresh() {
  isStale = true;
  if (isRefreshing || document.hidden) return;
  isRefreshing = true;
  while (isStale && !document.hidden) {
    isStale = false;
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (response.ok) replaceParts(new DOMParser().parseFromString(await response.text(), "text/html"));
      else tell("not reachable", "lost");
    } catch {
      tell("connection lost", "lost");
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
  }
  isRefreshing = false;
}

// Where the focus is, from the part of the page: it is kept when the part is replaced.
function pathTo(element, part) {
  const path = [];
  for (let at = element; at !== part; at = at.parentElement) {
    path.unshift([...at.parentElement.children].indexOf(at));
  }
  return path;
}

function replaceParts(page) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.innerHTML === part.innerHTML) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const path = focused && pathTo(focused, part);
    const isOpen = [...part.querySelectorAll("details")].map((each) => each.open);
    part.replaceChildren(...fresh.childNodes);
    [...part.querySelectorAll("details")].forEach((each, place) => { each.open = isOpen[place] ?? false; });
    if (path) path.reduce((at, place) => at?.children[place], part)?.focus({ preventScroll: true });
  }
  map.show();
}

function follow() {
  const output = document.querySelector("#output[data-follow]");
  if (output) output.scrollTop = output.scrollHeight;
  const general = new EventSource("/events");
  general.addEventListener("open", () => tell("live", "live"));
  general.addEventListener("error", () => tell("connection lost", "lost"));
  general.addEventListener("changed", refresh);
  if (!output) return;
  const source = new EventSource(output.dataset.follow);
  source.addEventListener("changed", refresh);
  source.addEventListener("end", () => { source.close(); refresh(); });
  source.addEventListener("output", (event) => {
    const { text, replace } = JSON.parse(event.data);
    const isAtEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
    output.textContent = ((replace ? "" : output.textContent) + text).slice(-MAX_OUTPUT);
    document.getElementById("no-output")?.remove();
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  });
}

// --- the map of nodes

const map = {
  place: null,
  nodes: null,

  get drawing() { return document.querySelector(".map"); },

  async label() {
    const label = document.getElementById("map-label");
    if (!this.nodes) {
      this.nodes = fetch("/nodes/index.json").then((response) => (response.ok ? response.json() : []));
      setTimeout(() => { this.nodes = null; }, REFRESH_MS);
    }
    const node = (await this.nodes)[this.place];
    if (node) {
      const [rank, host, state, used, total] = node;
      label.textContent = `rank ${rank}: ${host}, ${state}, ${used} of ${total} cores allocated`;
      return rank;
    }
    return null;
  },

  show() {
    const { drawing, place } = this;
    if (!drawing || place === null) return;
    const pitch = Number(drawing.dataset.pitch), columns = Number(drawing.dataset.columns);
    const cursor = drawing.querySelector(".cursor");
    cursor.setAttribute("x", (place % columns) * pitch - 1);
    cursor.setAttribute("y", Math.floor(place / columns) * pitch - 1);
  },

  move(place) {
    const count = Number(this.drawing.dataset.count);
    if (place < 0 || place >= count || place === this.place) return;
    this.place = place;
    this.show();
    this.label();
  },

  at(event) {
    const box = this.drawing.getBoundingClientRect();
    const scale = this.drawing.viewBox.baseVal.width / box.width;
    const pitch = Number(this.drawing.dataset.pitch), columns = Number(this.drawing.dataset.columns);
    const column = Math.floor(((event.clientX - box.left) * scale) / pitch);
    if (column < 0 || column >= columns) return -1;
    return Math.floor(((event.clientY - box.top) * scale) / pitch) * columns + column;
  },

  async open() {
    const rank = await this.label();
    if (rank !== null) location.href = `/nodes/${rank}`;
  },

  key(event) {
    const columns = Number(this.drawing.dataset.columns);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key in steps) this.move(this.place === null ? 0 : this.place + steps[event.key]);
    else if (event.key === "Enter" && this.place !== null) this.open();
    else return;
    event.preventDefault();
  },
};

function onMap(kind, handle) {
  document.addEventListener(kind, (event) => {
    if (event.target.closest?.(".map")) handle(event);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", toggleTheme);
  for (const form of document.querySelectorAll("form[data-confirm]")) {
    form.addEventListener("submit", (event) => {
      if (!confirm(form.dataset.confirm)) event.preventDefault();
    });
  }
  onMap("pointermove", (event) => map.move(map.at(event)));
  onMap("click", (event) => { map.move(map.at(event)); map.open(); });
  onMap("keydown", (event) => map.key(event));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isStale) refresh(); });
  follow();
});
