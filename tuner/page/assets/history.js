// What was done on this node, newest first; each record explains itself.
import { el, put } from "./dom.js";
import { get, throttle } from "./live.js";
import { record } from "./records.js";

const atOnce = 100, asked = 1000;

export function open(root, _, refresh) {
  let records = [], most = atOnce, stamp = "";
  const again = () => { most = atOnce; refresh(); };
  const since = el("select", { id: "since", onchange: again }, [["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["30d", "all that is kept"]].map(([v, t]) => el("option", { value: v, selected: v === "24h" }, t)));
  const changed = el("input", { type: "checkbox", id: "changed", onchange: again });
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", oninput: () => { most = atOnce; show(); } });
  const count = el("p", { role: "status", class: "count" });
  const list = el("ol", { class: "records" });
  const more = el("button", { type: "button", onclick: () => { most += atOnce; show(); } }, "Show more");
  root.append(el("h1", {}, "History"), el("div", { class: "tools" }, el("label", { for: "since" }, "Of"), since,
    el("span", {}, changed, el("label", { for: "changed" }, "only values that changed")), el("label", { for: "filter" }, "Filter by name or text"), filter), count, list, more);

  function show() {
    const wanted = filter.value.toLowerCase();
    const found = records.filter((r) => !wanted || [r.name, r.text, r.kind, r.team].some((t) => t?.toLowerCase().includes(wanted)));
    list.replaceChildren(...found.slice(0, most).map((r) => el("li", {}, record(r, records))));
    more.hidden = found.length <= most;
    put(count, found.length ? `${Math.min(most, found.length)} of ${found.length} records${records.length >= asked ? `: the newest ${asked}, older ones are left out` : ""}` : "no records");
  }

  const ask = throttle(5000, get);
  async function load() {
    const answer = await ask(`/v1/history?since=${since.value}&limit=${asked}${changed.checked ? "&changed=true" : ""}`);
    const now = `${since.value} ${changed.checked} ${answer.records.length} ${answer.records.at(-1)?.time}`;
    if (now === stamp) return; // nothing new: what is open stays open
    stamp = now;
    records = answer.records.toReversed();
    show();
  }
  return load;
}
