// Records of history: one line each, and all that a record says behind it.
import { el, facts, name } from "./dom.js";
import { change, day, clock, kind, knob, momentOf, outcome, ratesOf, recordGain, signed, value } from "./words.js";

// record is a line that opens; number is that of its mark, or undefined. others are the
// records that may belong to the same plan.
export function record(r, others, number) {
  const line = [number ? el("span", { class: "number " + r.kind }, String(number)) : null,
    el("time", {}, number ? clock(r.time) : day(r.time)), " ", el("b", { class: "kind " + r.kind }, kind(r)), " ",
    !number && r.name ? [name(r.name, 40), " "] : null, r.knob ? change(r) + " " : null, recordGain(r) === "-" ? null : recordGain(r)];
  const node = el("details", { class: "record" }, el("summary", {}, line));
  node.addEventListener("toggle", () => {
    if (node.open && node.children.length === 1) node.append(explained(r, others));
  });
  return node;
}

// explained is everything that the record holds, in words.
function explained(r, others) {
  const plan = r.plan ? others.filter((o) => o !== r && o.plan === r.plan) : [];
  return el("div", {}, el("p", {}, r.text), facts([
    ["when", day(r.time)], ["container", r.name ? el("a", { href: "#/job/" + encodeURIComponent(r.key) }, name(r.name)) : ""], ["team", r.team],
    ["at that moment", r.name ? el("a", { href: `#/history/${encodeURIComponent(r.name)}/${momentOf(r.time)}` }, "what stood") : ""],
    ["knob", r.knob ? knob(r.knob) : ""], ["from", r.from ? value(r.knob, r.from) : ""], ["to", r.to ? value(r.knob, r.to) : ""],
    ["read back", r.actual ? value(r.knob, r.actual) : ""], ["policy", r.policy], ["plan", r.plan],
    ["outcome", r.outcome ? outcome(r.outcome) : ""], ["rates", ratesOf(r)],
    r.kind === "trial" ? ["measured", recordGain(r)] : ["expected", r.gain ? signed(r.gain) : ""],
    ["surely between", r.low && r.high ? `${signed(r.low - 1)} and ${signed(r.high - 1)}` : ""],
  ]), plan.length ? [el("p", {}, "Of the same plan:"), el("ul", {}, plan.slice(0, 30).map((o) => el("li", {}, clock(o.time), " ", kind(o), " ", o.name ? [name(o.name, 40), ": "] : null, o.text)))] : null);
}
