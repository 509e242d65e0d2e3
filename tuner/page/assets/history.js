// What was done on this node, newest first; each record explains itself. #/history/NAME/TIME is one
// container's up to a moment, and says what stood then: the hour of its page is long over by then.
import { el, facts, name, put, section, table } from "./dom.js";
import { get, throttle } from "./live.js";
import { record } from "./records.js";
import { day, kind, knob, momentOf, value } from "./words.js";

const atOnce = 100, asked = 1000;
const spans = { "1h": 3600e3, "24h": 86400e3, "7d": 7 * 86400e3 }; // ms

export function open(root, _, refresh, [who = "", moment = ""]) {
  let records = [], most = atOnce, stamp = "";
  const again = () => {
    most = atOnce;
    history.replaceState(null, "", "#/history" + (who || until() ? "/" + encodeURIComponent(who) : "") + (until() ? "/" + momentOf(until() * 1e6) : ""));
    refresh();
  };
  const since = el("select", { id: "since", onchange: again }, [["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["", "all that is kept"]]
    .map(([v, t]) => el("option", { value: v, selected: v === (who ? "" : "24h") }, t)));
  const upTo = el("input", { type: "datetime-local", step: 1, id: "until", value: local(Date.parse(moment)), onchange: again });
  const changed = el("input", { type: "checkbox", id: "changed", onchange: again });
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", oninput: () => { most = atOnce; show(); } });
  const count = el("p", { role: "status", class: "count" });
  const then = el("div"), list = el("ol", { class: "records" });
  const more = el("button", { type: "button", onclick: () => { most += atOnce; show(); } }, "Show more");
  const older = el("button", { type: "button", onclick: () => { upTo.value = local(earlier(records.at(-1).time / 1e6)); again(); } }, "Show older records");
  root.append(el("h1", {}, "History", who ? [" of ", name(who, 200)] : null), who ? el("p", {}, el("a", { href: "#/history" }, "Of all containers")) : "",
    el("div", { class: "tools" }, el("label", { for: "since" }, "Of"), since, el("label", { for: "until" }, "up to"), upTo,
      el("span", {}, changed, el("label", { for: "changed" }, "only values that changed")), el("label", { for: "filter" }, "Filter by name or text"), filter), then, count, list, more, older);

  // until is the end of the second that was chosen, ms; undefined: now.
  const until = () => (upTo.value ? Date.parse(upTo.value) + 999 : undefined);

  // earlier is the time of the oldest record that stands, or the second before if that was chosen: it goes on.
  const earlier = (ms) => (Math.floor(ms / 1000) === Math.floor((until() ?? Infinity) / 1000) ? ms - 1000 : ms);

  function show() {
    const wanted = filter.value.toLowerCase();
    const found = records.filter((r) => !wanted || [r.name, r.text, r.kind, r.team].some((t) => t?.toLowerCase().includes(wanted)));
    list.replaceChildren(...found.slice(0, most).map((r) => el("li", {}, record(r, records))));
    more.hidden = found.length <= most;
    older.hidden = !more.hidden || records.length < asked;
    put(count, found.length ? `${Math.min(most, found.length)} of ${found.length} records${records.length >= asked ? `: the newest ${asked}` : ""}` : "no records");
  }

  const ask = throttle(5000, get), askThen = throttle(60000, get);
  return async () => {
    const end = until(), iso = (ms) => encodeURIComponent(new Date(ms).toISOString()), of = `&limit=${asked}` + (who ? "&name=" + encodeURIComponent(who) : "") + (end ? "&until=" + iso(end) : "");
    const from = !spans[since.value] ? "" : end ? "&since=" + iso(end - spans[since.value]) : "&since=" + since.value;
    const [answer, before] = await Promise.all([ask("/v1/history?" + (from + of).slice(1) + (changed.checked ? "&changed=true" : "")), who && end ? askThen("/v1/history?" + of.slice(1)) : undefined]);
    const now = [from, of, changed.checked, answer.records.length, answer.records.at(-1)?.time].join();
    if (now === stamp) return; // nothing new: what is open stays open
    stamp = now;
    records = answer.records.toReversed();
    then.replaceChildren(...(before ? stood(before.records, end) : []));
    show();
  };
}

// local is a time as its input has it, in the browser's zone; "": none.
function local(ms) {
  const at = new Date(ms);
  return Number.isFinite(ms) ? new Date(ms - at.getTimezoneOffset() * 60e3).toISOString().slice(0, 19) : "";
}

// What changes which value stands, where a record of it says so.
const setting = ["change", "loan", "rollback", "restore", "yield", "owed"];

// stood is what one container's records, oldest first, say of a moment after them.
function stood(records, ms) {
  const own = records.filter((r) => r.key === records.at(-1).key), latest = (kinds) => own.findLast((r) => kinds.includes(r.kind)); // of its latest run
  const line = (r) => (r ? `${r.text} (since ${day(r.time)})` : "");
  const values = new Map(own.filter((r) => setting.includes(r.kind) && r.knob && (r.actual || r.to)).map((r) => [r.knob, r])); // the last of each
  const trial = latest(["trial"]);
  return [section(`What stood at ${day(ms * 1e6)}`, own.length ? el("p", {}, "By the latest records up to then. Whether the container still ran, they do not say.") : el("p", {}, "No record of it up to then is kept."),
    facts([["verdict", line(latest(["verdict"]))], ["enrolment", line(latest(["enrol"]))], ["last trial", trial ? `${kind(trial)}: ${line(trial)}` : ""], ["GPU", line(latest(["gpu-view", "heal", "gpu-lost", "gpu-error"]))], ["slower than usual", line(latest(["slower"]))]]),
    values.size ? table("Limits that stood", ["Knob", "Value", "Before", "Since", "By", "Why"], [...values].map(([k, r]) => [knob(k), value(k, r.actual || r.to), value(k, r.from), day(r.time),
      [kind(r), r.policy].filter(Boolean).join(", "), r.text]), [2, 4]) : own.length ? el("p", {}, "trimtab had changed none of its values.") : "")];
}
