// How numbers and the API's words are shown: as `trimtab ps` and `explain` show them.

export function number(v) {
  if (!Number.isFinite(v)) return "?";
  const a = Math.abs(v);
  return v === 0 ? "0" : v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

export const cpus = (v) => (Number.isFinite(v) ? v.toFixed(2).replace(/0$/, "") : "?");

export function percent(share) {
  const v = share * 100;
  if (!Number.isFinite(v)) return "?";
  const a = Math.abs(v);
  return v.toFixed(a >= 9.95 || a < 0.05 ? 0 : 1) + " %";
}

export const signed = (gain) => (gain >= 0 ? "+" : "") + percent(gain);

export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; Math.abs(v) >= 1024 && i < units.length - 1; i++) v /= 1024;
  return (v >= 100 || Number.isInteger(v) ? v.toFixed(0) : v.toFixed(1)) + " " + units[i];
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

export const clock = (ns) => (ns ? clockFormat.format(ns / 1e6) : "-");
export const day = (ns) => (ns ? dayFormat.format(ns / 1e6) : "-");

// momentOf is a time in an address: the second that it is in.
export const momentOf = (ns) => new Date(Math.floor(ns / 1e9) * 1e3).toISOString().replace(".000", "");

export function span(seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? (seconds / 3600).toFixed(1) + " h" : Math.round(seconds / 86400) + " days";
}

// hours shows seconds in hours, as `trimtab report` does.
export function hours(seconds) {
  const v = seconds / 3600;
  return v === 0 || v >= 0.005 ? number(v) : "<0.01";
}

// quota reads "QUOTA PERIOD"; undefined: none.
export function quota(value) {
  const [q, p] = String(value ?? "").split(" ").map(Number);
  return q > 0 && p > 0 ? q / p : undefined;
}

const knobWords = { "cpu.quota": "CPU", "cpu.weight": "CPU weight", "memory.limit": "memory", gpu: "GPU visibility" };

export const knob = (k) => knobWords[k] ?? k;

export function value(k, v) {
  if (v === undefined || v === "") return "-";
  if (k === "cpu.quota") return quota(v) === undefined ? "no quota" : cpus(quota(v));
  if (v === "max") return "no limit";
  if (k.startsWith("memory.") && /^\d+$/.test(v)) return bytes(Number(v));
  return v;
}

export const change = (c) => `${knob(c.knob)} ${value(c.knob, c.from)}→${value(c.knob, c.to)}`;

export function rate(r, why) {
  if (why || !r || !(r.perSecond > 0)) return "-";
  return r.steps ? number(r.perSecond) + " steps/s" : `≈${number(r.perSecond)}/s ${r.source}`;
}

// rateShown is a container's rate, or, until it has one, what its last runs had.
export function rateShown(c) {
  const usual = c.lastRuns?.perSecond;
  return usual > 0 && !(c.rate?.perSecond > 0) ? `usual ${number(usual)}/s` : rate(c.rate, c.rateWhy);
}

// reason is why a container is as it is; what a person should look at comes first.
export function reason(c) {
  if (c.owed) return "restore pending: " + c.owed;
  return (c.lastRuns?.slower > 0 ? c.lastRuns.slowerWhy : c.whyNot) || "-";
}

// parts in the API's order, in plain words.
export const parts = {
  compute: "computing on a CPU", throttled: "stopped: out of CPU quota", contended: "behind other work for a CPU", device: "waiting for its device",
  input_throttled: "for data: loaders out of quota", input_contended: "for data: loaders behind others", input_storage: "for data: reading from disk",
  input_remote: "for data: reading over network", input_workers: "for data: loaders all busy", input_other: "for data: cause not known",
  communication: "waiting for its peers", reclaim: "short of memory", other: "anything else",
};
export const partNames = Object.keys(parts);

// heldFor is what devices and CPUs were held for: a part, or what stands beside them in a report.
export const heldFor = (cause) => parts[cause] ?? ({ idle: "idle", not_known: "not known", lent: "lent" })[cause] ?? cause;

export function shares(breakdown) {
  const wall = breakdown?.wall ?? 0;
  return wall > 0 ? breakdown.ns.map((ns) => ns / wall) : [];
}

// stalled is the share of time in which a job neither computed nor waited for its device.
export function stalled(breakdown) {
  const s = shares(breakdown);
  return s.length ? Math.max(0, 1 - s[partNames.indexOf("compute")] - s[partNames.indexOf("device")]) : undefined;
}

const causes = {
  throttled: "data comes late, because loaders run out of CPU quota", contended: "data comes late, because loaders wait for a CPU behind other work",
  storage: "data comes late, because disks are slow to read", remote: "data comes late, because it is read over the network",
  cache: "data comes late, because the memory limit evicts files that are read again", workers: "data comes late, because there are too few loaders",
  device: "its device is busy; there is nothing to gain on the host", shared: "another container works on the same device",
  host: "the training process itself needs more CPU than it gets", clocks: "power or heat slows its device down",
  network: "the network between peers is the limit", straggler: "one of its peers is late",
  reclaim: "its memory limit makes the kernel take memory away", risk: "its memory grows towards the limit",
};
// Who is short of CPU, and does not wait for data by that for half of what it loses.
const short = { throttled: "its loaders and trainer run out of CPU quota", contended: "its loaders and trainer wait for a CPU behind other work" };
const waits = (v) => v?.evidence?.some((e) => e.name === "input wait" && e.value >= (v.severity ?? 0) / 2);
const classes = {
  balanced: "nothing in particular", idle: "nothing: no progress is expected now", interactive: "nothing: a person works in it",
  unknown: "not known, the evidence is too thin",
};

export const causeWord = (v) => v?.cause || v?.class || "-";
export const causeWords = (v) => (waits(v) ? undefined : short[v?.cause]) ?? causes[v?.cause] ?? classes[v?.class] ?? (v?.class ? `${v.class}/${v.cause ?? ""}` : "not known yet");

// gain is what was measured, or expected, in the words of `trimtab ps`.
export function gain(c) {
  const w = c.work;
  if (c.doubt) return signed(c.gain) + "?";
  if (c.hasGain) return signed(c.gain ?? 0);
  if (c.trial) return "trying";
  if (w?.ratio > 0) return "≈" + signed(w.ratio - 1);
  if (w?.cpus > 0) return signed(w.cpus - 1) + " CPU";
  const t = would(c);
  return t && !c.changed?.length ? "would " + signed(expected(t)) : "-";
}

export const would = (c) => (c.trials?.[0]?.outcome === "would" ? c.trials[0] : undefined);

export function expected(t) {
  if (t.before > 0 && t.predicted > 0) return t.predicted / t.before - 1;
  return Math.max(0, ...(t.changes ?? []).map((c) => c.gain));
}

// cpuColumn is the quota, or the first knob that trimtab changed.
export function cpuColumn(c) {
  const now = c.now ?? {}, original = c.original ?? {};
  for (const k of ["cpu.quota", "cpu.weight", "cpuset", "memory.limit"]) {
    if (!c.changed?.includes(k) || !now[k] || !original[k]) continue;
    const text = `${value(k, now[k])} ← ${value(k, original[k])}`;
    if (k === "cpu.quota") return text + (c.loan ? " lent" : "");
    return knob(k).replace(/^CPU /, "") + " " + text;
  }
  return now["cpu.quota"] ? value("cpu.quota", now["cpu.quota"]) : "-";
}

const kinds = {
  change: "changed", would: "would", trial: "trial", rollback: "reverted", restore: "restored", yield: "yielded", owed: "restore pending",
  refused: "refused", enrol: "enrolment", verdict: "verdict", heal: "GPU repaired", "gpu-lost": "GPU lost", "gpu-view": "GPU view", "gpu-error": "GPU error", slower: "slower than usual",
};

export function kind(r) {
  if (r.kind === "loan") {
    if (r.knob === "cpu.weight") return "loan's weight";
    const amount = (v) => quota(v) ?? Number(v) ?? 0;
    return amount(r.to) > amount(r.from) ? "lent" : "loan cut";
  }
  const word = kinds[r.kind] ?? r.kind;
  return r.kind === "trial" && r.outcome ? `${word} ${r.outcome.replaceAll("_", " ")}` : word;
}

// gained shows what a trial measured; "≈": by no steps.
const gained = (gain, unit) => (unit === "relative" ? "≈" : "") + signed(gain);

// ratesOf are a trial's, before and after: of nothing but steps are there any in a second.
export const ratesOf = (t) => (t.unit === "steps/s" && t.before > 0 && t.after > 0 ? `${number(t.before)} → ${number(t.after)} steps/s` : "");

// measured is what a trial measured, of t.ratio or of what t.before became.
export function measured(t) {
  const ratio = t.ratio || (t.before > 0 && t.after > 0 ? t.after / t.before : 0);
  return ratio ? gained(ratio - 1, t.unit) + (t.low > 0 && t.high > 0 ? ` (${signed(t.low - 1)} to ${signed(t.high - 1)})` : "") : "-";
}

export function recordGain(r) {
  if (r.kind === "trial") return measured({ unit: r.unit, before: r.before, after: r.after, ratio: r.gain ? 1 + r.gain : 0 });
  return r.gain ? signed(r.gain) + " expected" : "-";
}

export const outcome = (o) => ({ kept: "kept", rolled_back: "reverted: worse", inconclusive: "reverted: no clear result", unproven: "left standing: no clear result, and nobody lacked it", withdrawn: "taken back later", aborted: "ended without evidence", would: "would have been tried", open: "on trial" })[o] ?? o;

export function quantity(e) {
  if (e.unit === "share") return percent(e.value);
  if (e.unit === "B") return bytes(e.value);
  if (e.unit === "B/s") return bytes(e.value) + "/s";
  return number(e.value) + " " + e.unit;
}
