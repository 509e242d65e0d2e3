// GPUs and MIG slices, and who holds them.
import { el, facts, name, section, swap, table } from "./dom.js";
import { get } from "./live.js";
import { bytes, clock, number, percent, span } from "./words.js";

export function open(root) {
  const list = el("div");
  root.append(el("h1", {}, "Devices"), list);
  return async () => {
    const answer = await get("/v1/devices");
    swap(list, answer.devices.length ? answer.devices.map((d) => device(d, answer)) : el("p", {}, "No devices: " + answer.why));
  };
}

const share = (v) => (v === undefined ? "" : percent(v));

function device(d, answer) {
  const title = `${d.parent ? "Slice of GPU" : "GPU"} ${d.index}${d.name ? ": " + d.name : ""}${d.virtual ? " (virtual)" : ""}`;
  return section(title, d.lost ? el("p", { class: "problem" }, "Nothing can be read of it: " + d.lost) : null,
    facts([["busy", share(d.duty)], ["memory", d.memTotal ? `${bytes(d.memUsed ?? 0)} of ${bytes(d.memTotal)}` : ""], ["SMs", share(d.sm)], ["tensor cores", share(d.tensor)], ["its memory's bandwidth", share(d.dram)],
      ["power", d.power === undefined ? "" : `${number(d.power)} W${d.powerLimit ? " of " + number(d.powerLimit) : ""}`],
      ["clock", d.clock === undefined ? "" : `${number(d.clock)} MHz${d.maxClock ? " of " + number(d.maxClock) : ""}`], ["below its clocks for", d.slowdown?.join(", ")],
      ["temperature", d.temp === undefined ? "" : number(d.temp) + " °C"], ["shared by", d.sharing],
      ["kept for", d.hold ? [name(d.hold.for), `, until ${clock(d.hold.until)}: trimtab place was asked to`] : ""], ["UUID", d.uuid]]),
    d.holders.length ? table(`Who holds ${title}`, ["Holder", "Team", "Memory", "Since", "Without a kernel for", "How that is known"],
      d.holders.map((h) => [h.host ? "processes of the host" : el("a", { href: "#/job/" + encodeURIComponent(h.key) }, name(h.name)), h.team ? name(h.team, 40) : "-", bytes(h.mem), clock(h.since),
        [span(h.quiet), h.idle ? [" ", el("b", { class: "idle" }, `idle: longer than ${span(answer.idleAfter / 1e9)}`)] : null], h.evidence || "-"]), [1, 3, 5]) : el("p", {}, "Nobody holds it."));
}
