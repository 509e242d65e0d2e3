// The node at a glance, and its containers.
import { el, facts, name, section, swap } from "./dom.js";
import { Listing } from "./list.js";
import { get } from "./live.js";
import { bytes, causeWord, clock, cpuColumn, cpus, gain, percent, rateShown, reason, span, stalled } from "./words.js";

// down: the largest come first.
const columns = [
  { title: "Name", key: (c) => c.name },
  { title: "Team", wide: true, text: (c) => c.enrolment?.team || "-", key: (c) => c.enrolment?.team ?? "" },
  { title: "Mode", wide: true, text: (c) => (!c.watched && c.enrolment?.mode === "observe" ? "-" : c.enrolment?.mode), key: (c) => c.enrolment?.mode ?? "" },
  { title: "Rate", wide: true, down: true, text: rateShown, key: (c) => -(c.rateWhy ? 0 : c.rate?.perSecond ?? 0) },
  { title: "Stalled", down: true, text: (c) => (stalled(c.breakdown) === undefined ? "-" : percent(stalled(c.breakdown))), key: (c) => -(stalled(c.breakdown) ?? -1) },
  { title: "Bound by", text: (c) => causeWord(c.verdict), key: (c) => causeWord(c.verdict) },
  { title: "CPU now ← original", down: true, text: cpuColumn, key: (c) => -c.usedCPUs },
  { title: "Speedup", wide: true, down: true, text: gain, key: (c) => -(c.gain ?? (c.work?.ratio ?? 1) - 1) },
  { title: "Reason", wide: true, text: reason, key: reason },
];

// notable puts first what a person should look at, then what trimtab works on.
function notable(c) {
  if (c.owed || c.gpuLost) return 0;
  if (c.trial) return 1;
  if (c.changed?.length) return 2;
  return c.enrolment?.mode === "tune" ? 3 : c.watched ? 4 : 5;
}

export function open(root) {
  let all = [];
  const glance = el("div", {}), news = el("div", {});
  const list = new Listing({ caption: "Containers", columns, kind: "jobs", id: (c) => c.key, label: (c) => c.name, href: (c) => "#/job/" + encodeURIComponent(c.key), order: notable });
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", oninput: () => { list.first(); show(); } });
  const unwatched = el("input", { type: "checkbox", id: "unwatched", onchange: show });
  root.append(el("h1", {}, "This node"), glance, news, el("section", {}, el("h2", {}, "Containers"),
    el("div", { class: "tools" }, el("label", { for: "filter" }, "Filter by name, team or cause"), filter,
      el("span", {}, unwatched, el("label", { for: "unwatched" }, "also those that are not watched"))), list.nodes));

  function show() {
    const wanted = filter.value.toLowerCase();
    list.show(all, all.filter((c) => (unwatched.checked || c.watched || c.enrolment?.mode === "tune" || c.owed)
      && (!wanted || [c.name, c.enrolment?.team, causeWord(c.verdict)].some((t) => t?.toLowerCase().includes(wanted)))), `, ${all.length} run`);
  }

  return async (status) => {
    const asked = get("/v1/list"); // which live.js began to ask for, behind the status: that waits for no list
    asked.catch(() => {}); // told below
    status ??= await get("/v1/status");
    const answer = await asked;
    swap(glance, atAGlance(status));
    swap(news, section("What needs a look", wrong(status, answer.containers)));
    if (answer.containers === all) return;
    all = answer.containers;
    show();
  };
}

function atAGlance(s) {
  const d = s.daemon, n = s.node, c = s.containers;
  const life = (s.time - d.started) / 1e9;
  const mode = d.mode + (d.paused ? ", paused" : "") + (d.disabled ? ", disabled" : "");
  return facts([
    ["mode", mode],
    ["containers", `${c.running} run, ${c.watched} watched, ${c.tuned} may be tuned, ${c.changed} changed`],
    ["CPUs", `${cpus(n.cpus)}, ${cpus(n.idle ?? 0)} idle, ${cpus(n.reserve)} kept idle when CPU is lent`],
    ["memory", n.memory ? `${bytes(n.memory)}, ${bytes(Math.max(0, n.memoryFree ?? 0))} free to lend` : ""],
    ["trimtab itself", `${d.recentCPUs > 0 ? `${percent(d.recentCPUs)} of a CPU in the last 10 s${d.budgetShare > 0 ? `, ${percent(d.budgetShare)} of the budget` : ""}` : "CPU not measured yet"}, ${bytes(d.rss)}`],
    ["running since", `${clock(d.started)} (${span(life)}), ${d.version}`],
  ]);
}

function wrong(s, all) {
  const d = s.daemon, out = [];
  if (d.paused) out.push("Paused: values stay as they are until `trimtab resume`.");
  if (d.disabled) out.push("Nothing is written while /etc/trimtab/disabled is there.");
  if (d.configError) out.push("The newer config was refused: " + d.configError);
  if (d.virtual) out.push("A virtual GPU is in use.");
  for (const p of [...d.engines, ...d.probes]) if (!p.ok) out.push(`${p.name} is lost since ${clock(p.since)}: ${p.lost ?? ""}`);
  for (const r of d.receivers ?? []) if (!r.ok) out.push(`${r.name} cannot be told since ${clock(r.since)}: ${r.lost ?? ""}`);
  for (const c of all.filter((c) => c.owed || c.gpuLost).slice(0, 20)) {
    out.push([name(c.name), c.owed ? ": restore pending: " + c.owed : ": GPU access is lost: " + c.gpuLost]);
  }
  return out.length ? el("ul", { class: "wrong" }, out.map((t) => el("li", {}, t))) : null;
}
