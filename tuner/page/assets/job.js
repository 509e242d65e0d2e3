// One container: what stands now and why, its hour, its verdict, what was tried.
import { el, facts, name, section, swap, table } from "./dom.js";
import { Chart } from "./chart.js";
import { get, lately, throttle } from "./live.js";
import { record } from "./records.js";
import { bytes, causeWord, causeWords, change, clock, cpus, expected, gain, knob, measured, number, outcome, partNames, parts, percent, quantity, ratesOf, rateShown, shares, signed, value, would } from "./words.js";

const marked = ["change", "loan", "would", "trial", "rollback", "restore", "yield", "owed", "gpu-view", "heal", "gpu-lost", "gpu-error", "slower"];

export function open(root, key) {
  const chart = new Chart();
  const head = el("div"), standing = el("div"), rest = el("div"), list = el("div");
  // Points come each ten seconds, and records seldom: they are not asked for with each snapshot.
  const points = throttle(5000, (c) => get("/v1/series?name=" + encodeURIComponent(c)));
  const records = throttle(5000, (c) => get(`/v1/history?limit=200&name=${encodeURIComponent(c)}`).catch((error) => ({ records: [], error })));
  let said;
  root.append(head, standing, el("section", {}, el("h2", {}, "Where the time went"), chart.node), list, rest);

  const listed = lately("/v1/list")?.containers.find((c) => c.key === key);
  if (listed) swap(head, title(listed)); // at once; the rest when it is answered

  return async (status) => {
    const c = await get("/v1/containers/" + encodeURIComponent(key));
    swap(head, title(c, elsewhere(c)));
    swap(standing, section("What stands now", el("p", { class: "headline" }, headline(c)), values(c), gate(c)));
    const [series, past] = await Promise.all([points(c.key), records(c.name)]);
    const own = past.records.filter((r) => r.key === c.key);
    const marks = own.filter((r) => marked.includes(r.kind)).map((r, i) => ({ record: r, number: i + 1 }));
    chart.show(series.points, marks, [...(c.trials ?? []), ...(c.trial ? [c.trial] : [])], own.filter((r) => r.kind === "verdict"), status?.time ?? Date.now() * 1e6);
    const stamp = marks.length + "/" + marks.at(-1)?.record.time;
    if (stamp !== said) {
      said = stamp;
      list.replaceChildren(...[section("What was done", marks.length ? el("ol", { class: "records", reversed: true }, marks.toReversed().map((m) => el("li", {}, record(m.record, past.records, m.number)))) :
        el("p", {}, past.error ? past.error.message : "Nothing was changed, lent or tried."))].filter(Boolean));
    }
    swap(rest, verdict(c), latest(c), prediction(c), bursts(c), loan(c), allocation(c), lastRuns(c), trials(c), plain("What is not counted", c.thinned), plain("What you could do", c.advice), enrolment(c));
  };
}

// title says who it is, of a container or of its line in the list.
const title = (c, links = []) => [el("h1", {}, name(c.name, 200)), facts([["image", c.image ? name(c.image, 120) : ""], ["team", c.enrolment.team], ["job", c.enrolment.job], ["GPUs", c.gpus?.join(", ")],
  ["mode", c.enrolment.mode + (c.enrolment.door ? ", by " + c.enrolment.door : "")], ["rate", rateShown(c)], ["no rate", c.rateWhy],
  ["bound by", causeWord(c.verdict)], ["speedup", gain(c)], ...links])];

const elsewhere = (c) => [["history", el("a", { href: "#/history/" + encodeURIComponent(c.name) }, "all that was done, and what stood at any moment")],
  ["report", el("a", { href: "#/report/7d/container/" + encodeURIComponent(c.name) }, "what it was worth")]];

const plain = (title, lines) => (lines?.length ? section(title, el("ul", {}, lines.map((l) => el("li", {}, l)))) : null);

// headline is the one sentence for somebody who reads no further.
function headline(c) {
  if (c.owed) return `Restore pending: ${c.owed}.`;
  if (c.held) return "The owner's values are back, and stay until `trimtab resume`.";
  if (c.trial) return `Since ${clock(c.trial.started)} ${c.trial.changes.map(change).join(", ")} is on trial, ${signed(expected(c.trial))} expected; it is reverted unless that is measured.`;
  if (c.changed?.length) {
    const what = c.changed.filter((k) => !c.loan || !["cpu.quota", "cpu.weight"].includes(k)).map((k) => change({ knob: k, from: c.original?.[k], to: c.now?.[k] }));
    if (c.loan) what.unshift(`Lent ${cpus(c.loan.cpus)} CPUs that nobody used, ${cpus(c.loan.own)} are its own${c.loan.trial ? `, ${cpus(c.loan.trial)} a trial gave` : ""}`);
    return `${what.join("; ")}. Speedup: ${gain(c)}. Reverts on exit.`;
  }
  const t = would(c);
  if (t) return `Nothing was changed (${c.whyNot || "observe mode"}). At ${clock(t.started)} trimtab would have set ${t.changes.map(change).join(", ")} and expected ${signed(expected(t))}.`;
  const reverted = !c.yielded?.length && (c.tuning === "returned" || c.trials?.some((t) => t.outcome !== "would"));
  return `${reverted ? "The owner's values are back" : "Nothing was changed"}: ${c.why}.`;
}

function values(c) {
  const all = Object.keys(c.now ?? {}).sort();
  if (!all.length) return null;
  return table("Limits that stand", ["Knob", "Now", "Owner's", "Who decides"], all.map((k) => [knob(k), value(k, c.now[k]),
    value(k, c.original?.[k]), c.yielded?.includes(k) ? "somebody else set it: trimtab leaves it alone" : c.deciders?.[k] ?? "-"]), [3]);
}

function gate(c) {
  return facts([["not now, because", c.whyNot], ["decided by", c.gate], ["GPU preflight", c.preflight], ["GPU lost", c.gpuLost]]);
}

function verdict(c) {
  const v = c.verdict;
  if (!v?.class) return null;
  return section("What bounds it", el("p", {}, causeWords(v)), v.why ? el("p", {}, v.why) : null, facts([
    ["class and cause", v.class + (v.cause ? "/" + v.cause : "")], ["time lost to it", v.severity ? percent(v.severity) : ""], ["confidence", percent(v.confidence)],
    ...(v.evidence ?? []).map((e) => [e.name, quantity(e)]), ["relief", v.relief]]));
}

function latest(c) {
  const s = shares(c.breakdown);
  if (!s.length) return null;
  const rows = s.map((share, i) => [parts[partNames[i]], share]).filter(([, share]) => share >= 0.005);
  return section("Its latest window" + (c.ranks > 1 ? `, the slowest of ${c.ranks} processes` : ""),
    table("Shares of the time", ["What", "Share"], rows.map(([what, share]) => [what, percent(share)])));
}

function prediction(c) {
  const k = c.cost;
  if (!(k?.ticks > 0) || c.aggregated) return null;
  const ms = (s) => (s ? number(s * 1000) + " ms" : "");
  const tick = c.rate?.steps ? "step" : "tick";
  return section(`What one ${tick} costs`, facts([["training process on a CPU", ms(k.trainerCPU)], ["data loaders on a CPU", ms(k.loaderCPU)], ["other threads on a CPU", ms(k.otherCPU)],
    ["waits that no CPU shortens", ms(k.device)], ["behind others for a CPU", ms(k.queue)], ["one batch, by one loader", k.loaders ? `${ms(k.batch)}, ${k.loaders} side by side` : ""],
    ["no more speed beyond", c.knee ? cpus(c.knee) + " CPUs" : ""], ["memory used", c.memoryUse?.read ? bytes(c.memoryUse.current) : ""]]));
}

// bursts stands where no knee is told: one is made of means, of which bursts tell nothing.
function bursts(c) {
  return c.bursts ? section("What CPUs buy", facts([["it works in bursts, stopped by", cpus(c.bursts) + " CPUs"], ["its mean use", cpus(c.usedCPUs) + " CPUs"]])) : null;
}

function loan(c) {
  const l = c.loan;
  return l ? section("What it was lent", facts([["its own", cpus(l.own) + " CPUs"], ["given by a trial, no loan", l.trial ? cpus(l.trial) + " CPUs" : ""], ["lent, while nobody else wants it", cpus(l.cpus) + " CPUs"], ["of that used", cpus(l.used) + " CPUs"],
    ["since", l.since ? clock(l.since) : ""], ["all that may be lent to it", l.whole ? "whether that is enough is not known" : ""], ["enough", l.settled && !l.whole ? `--cpus ${cpus(l.own + (l.trial ?? 0) + l.cpus)}` : ""], ["why", l.why]])) : null;
}

function allocation(c) {
  const a = c.allocation;
  return a ? section("Its part of this host", facts([["why", a.why], ["CPUs it is entitled to", cpus(c.entitled ?? 0)], ["CPUs it can use", cpus(a.need)],
    ["CPUs it gets beside others", cpus(a.cpus)], ["of its best rate", a.rate ? percent(a.rate) : ""]])) : null;
}

// lastRuns is what is known since its start, from earlier runs of the same job.
function lastRuns(c) {
  const r = c.lastRuns;
  return r?.runs > 0 ? section("Its last runs", facts([["runs remembered", String(r.runs)], ["CPUs that were enough", r.cpus ? cpus(r.cpus) : ""], ["memory that was enough", r.memory ? bytes(r.memory) : ""],
    ["expected rate", r.perSecond ? `≈${number(r.perSecond)}/s (${r.source})${r.low ? `, between ${number(r.low)} and ${number(r.high)}` : ""}` : ""],
    ["given at its start", r.took?.join("; ")], ["nothing is taken from them, since", r.doubt], ["slower than usual", r.slower > 0 ? r.slowerWhy : ""]])) : null;
}

function trials(c) {
  if (!c.trials?.length) return null;
  return section("What was tried", table("Trials, latest first", ["When", "What", "Outcome", "Measured", "Why"], c.trials.map((t) => [clock(t.started), t.changes.map(change).join(", "), outcome(t.outcome),
    [ratesOf(t), measured(t)].filter(Boolean).join(", "), t.why || t.changes[0]?.reason || "-"]), [3, 4]));
}

function enrolment(c) {
  const e = c.enrolment;
  return section("What trimtab may do", facts([["mode", e.mode], ["by", e.door], ["knobs", e.knobs?.join(", ")], ["importance", e.importance], ["loans", e.loans], ["why not more", e.whyNot]]),
    e.problems?.length ? el("ul", { class: "wrong" }, e.problems.map((p) => el("li", {}, p))) : null);
}
