// The frame: which view is shown, and when it is told of news. A view is a module in the
// list below: { path, title, nav, open(root, argument, again, parts) }. open builds the view and
// returns what refreshes it, given the latest status; again has it do so now, for what a person
// chose. argument is what stands behind the path, parts the same at its slashes. A new view is
// one line here.
import { el, put } from "./dom.js";
import { coalesce, daemonNow, Live } from "./live.js";
import { span } from "./words.js";
import * as node from "./node.js";
import * as job from "./job.js";
import * as history from "./history.js";
import * as devices from "./devices.js";
import * as report from "./report.js";

const views = [
  { path: "", title: "Node", nav: true, open: node.open },
  { path: "history", title: "History", nav: true, open: history.open },
  { path: "report", title: "Report", nav: true, open: report.open },
  { path: "devices", title: "Devices", nav: true, open: devices.open },
  { path: "job", title: "Job", open: job.open },
];

const main = document.getElementById("main");
const links = new Map();
let status, current, refresh, later, paused = false, shown = 0;

for (const v of views.filter((v) => v.nav)) {
  const a = el("a", { href: "#/" + v.path }, v.title);
  links.set(v, a);
  document.getElementById("nav").append(el("li", {}, a));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const view = views.find((v) => v.path === path) ?? views[0];
  for (const [v, a] of links) {
    if (v === view) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = view.title + " · trimtab";
  const root = el("div", { class: "view" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const waits = el("p", { class: "count", role: "status" });
  const mine = ++shown;
  const update = view.open(root, decoded(rest.join("/")), () => show(), rest.map(decoded));
  async function show() {
    const slow = setTimeout(() => put(waits, "Waiting for the daemon."), 1000);
    try {
      await update(status);
      problem.hidden = true;
    } catch (error) {
      put(problem, error.message);
      problem.hidden = false;
    }
    clearTimeout(slow);
    put(waits, "");
    if (mine === shown) main.dataset.ready = String(mine); // for whoever waits until something is to be seen
  }
  refresh = coalesce(async () => {
    if (mine !== shown || paused && main.dataset.ready === String(mine)) return; // what stood already for news
    await show();
  });
  refresh(); // before the browser lays out: what is asked is on its way meanwhile
  main.replaceChildren(problem, waits, root);
  if (current !== undefined) main.focus(); // another view: a reader begins at its top
  if (current !== undefined) scrollTo(0, 0);
  current = view;
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);

// A link to a view is followed within its click: the browser would draw a frame before it tells of the new address.
addEventListener("click", (event) => {
  const to = event.target.closest?.("a[href^='#/']")?.hash;
  if (to === undefined || to === location.hash || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  window.history.pushState(null, "", to);
  route();
});

const state = document.getElementById("live");
const old = document.getElementById("old");
const oldFrom = 5000; // ms: a few ticks
function age() {
  const ms = status ? daemonNow() - status.time / 1e6 : 0;
  put(old, ms > oldFrom ? `${span(ms / 1000)} old` : "");
}
setInterval(age, 1000);
const live = new Live((s) => {
  status = s;
  age();
  refresh();
  clearTimeout(later); // an answer that is dear to make may be of the snapshot before: once more, where ticks are slow
  later = setTimeout(() => refresh(), 3000);
}, (s) => put(state, s));
const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  live.pause(paused);
});
route();
