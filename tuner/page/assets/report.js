// What the GPUs and CPUs of this node were held for, and what each term of it rests on: groups,
// then the containers of one, then the verdicts, trials and loans of a container. #/report/SINCE/BY/GROUP
import { el, facts, name, put, section, swap, table } from "./dom.js";
import { Listing } from "./list.js";
import { get, throttle } from "./live.js";
import { record } from "./records.js";
import { above, terms } from "./terms.js";
import { day, heldFor, hours, percent } from "./words.js";

const times = { "1h": "this hour and the last", "24h": "the last day", "7d": "the last week", "30d": "the last 30 days" };
const ways = { team: "team", image: "image", container: "container", cause: "cause" };
const resources = [["gpu", "GPU-hours", terms], ["cpu", "CPU-hours", [...terms, ...above]]];
const recordsAsked = 1000; // of one container

// A report is of what was stored a minute ago: it is asked for once a minute.
const ask = () => throttle(60000, get);
const asked = (since, by) => `/v1/report?since=${since}&by=${by}`;

const known = (all, choice, other) => (Object.hasOwn(all, choice ?? "") ? choice : other);
const at = (since, by, group) => `#/report/${since}/${by}` + (group === undefined ? "" : "/" + encodeURIComponent(group));
const value = (g, resource, t) => (above.includes(t) ? g[t.field] : g[resource][t.field]);
const called = (by, group) => (by === "cause" ? heldFor(group) : group || `(no ${by})`);
const held = (g, resource, columns) => columns.some((t) => value(g, resource, t) > 0);

export function open(root, _, again, [sinceWord, byWord, group]) {
  const since = known(times, sinceWord, "24h"), by = known(ways, byWord, "team");
  if (group === undefined) return overview(root, again, since, by);
  return by === "container" ? evidence(root, since, group) : members(root, since, by, group);
}

function choice(id, all, chosen, onchange) {
  return el("select", { id, onchange }, Object.entries(all).map(([v, t]) => el("option", { value: v, selected: v === chosen }, t)));
}

// meanings are the terms in a line each, for those who do not point at a head.
const meanings = () => el("details", { class: "meanings" }, el("summary", {}, "What each column means"), facts([...terms, ...above].map((t) => [t.title, t.means])));

// tables are the groups of a report by resource; href is where one leads to.
function tables(by, href) {
  const all = resources.map(([resource, title, columns]) => {
    const list = new Listing({ caption: title, kind: "figures", id: (g) => g.name, label: (g) => called(by(), g.name), href, order: (g) => -value(g, resource, terms[0]),
      columns: [{ title: "Name", key: (g) => called(by(), g.name) },
        ...columns.map((t) => ({ title: t.title, means: t.means, down: true, text: (g) => hours(value(g, resource, t)), key: (g) => -value(g, resource, t) }))] });
    const none = el("p", {}, "None held."), shown = el("div", {}, list.nodes);
    return { resource, columns, list, none, shown, node: el("section", {}, el("h2", {}, title), none, shown) };
  });
  return {
    nodes: [...all.map((t) => t.node), meanings()],
    first: () => all.forEach((t) => t.list.first()),
    show(groups, fits, total) {
      for (const { resource, columns, list, none, shown } of all) {
        const there = groups.filter((g) => held(g, resource, columns));
        none.hidden = there.length > 0;
        shown.hidden = there.length === 0;
        list.show(there, there.filter(fits));
        if (total) list.total(["total", ...columns.map((t) => hours(value(total, resource, t)))]);
      }
    },
  };
}

// looked says which time a report is of, and what nobody looked on.
function looked(r) {
  const out = [`${day(r.from)} to ${day(r.to)}: looked on for ${hours(r.observedSeconds)} h`];
  if (r.unobservedSeconds >= 1) out.push(`, not observed ${hours(r.unobservedSeconds)} h (${percent(r.unobservedSeconds / (r.observedSeconds + r.unobservedSeconds))}): nothing is said of those`);
  if (100 * (r.since - r.from) > r.to - r.since) out.push(`; it begins before the ${day(r.since)} that was asked for: whole hours are stored, after 8 days whole days`);
  if (r.gaps?.length) out.push(`; the longest gap: ${day(r.gaps[0].from)} to ${day(r.gaps[0].to)}`);
  return el("p", {}, out.join("") + ".");
}

function overview(root, again, since, by) {
  let report;
  const sinceBox = choice("since", times, since, () => choose()), byBox = choice("by", ways, by, () => choose());
  // Who goes to choose has all ways at hand when chosen: they were made with the one that is shown.
  byBox.addEventListener("focus", () => Object.keys(ways).forEach((way) => get(asked(sinceBox.value, way)).catch(() => {})));
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", oninput: () => { list.first(); show(); } });
  const sentence = el("div"), list = tables(() => by, (g) => at(since, by, g.name)), fetched = ask();
  root.append(el("h1", {}, "Report"), el("div", { class: "tools" }, el("label", { for: "since" }, "Of"), sinceBox, el("label", { for: "by" }, "by"), byBox,
    el("label", { for: "filter" }, "Filter by name"), filter), sentence, ...list.nodes);

  // choose asks anew; the address says what is shown, and the focus stays.
  function choose() {
    history.replaceState(null, "", at(sinceBox.value, byBox.value));
    list.first();
    again();
  }

  function show() {
    if (!report) return;
    const wanted = filter.value.toLowerCase();
    list.show(report.groups, (g) => !wanted || [called(by, g.name), g.team, g.image].some((t) => t?.toLowerCase().includes(wanted)), report.total);
  }

  return async () => {
    const question = [sinceBox.value, byBox.value], answer = await fetched(asked(...question));
    if (question[0] !== sinceBox.value || question[1] !== byBox.value || answer === report) return; // another was chosen meanwhile, or nothing is new
    [since, by] = question;
    report = answer;
    swap(sentence, looked(report));
    show();
  };
}

// members are the containers that a group's terms are of.
function members(root, since, by, group) {
  const head = el("div"), list = tables(() => "container", (g) => at(since, "container", g.name)), fetched = ask(), fetchedAll = ask();
  root.append(head, el("h2", {}, "Its containers"), by === "cause" ? el("p", {}, "Their figures are of this cause alone.") : "", ...list.nodes);
  const of = { team: (g) => (g.team ?? "") === group, image: (g) => (g.image ?? "") === group, cause: (g) => resources.some(([resource, , columns]) => held(g, resource, columns)) }[by];
  return async () => {
    const [report, all] = await Promise.all([fetched(asked(since, by)), fetchedAll(asked(since, "container"))]);
    swap(head, ...heading(report, since, by, group));
    list.show((by === "cause" ? all.groups.map((g) => ofCause(g, group, report)) : all.groups).filter(of), () => true);
  };
}

// ofCause is what of a container's figures is of one cause; report, by cause, tells which term that is.
function ofCause(g, cause, report) {
  const own = report.groups.find((one) => one.name === cause);
  const use = (u, all) => {
    const time = u.causes?.[cause] ?? 0;
    return { held: time, idle: all?.idle > 0 ? time : 0, stalled: all?.stalled > 0 ? time : 0, notKnown: all?.notKnown > 0 ? time : 0,
      actionable: u.actionableCauses?.[cause] ?? 0, saved: u.savedCauses?.[cause] ?? 0, lost: u.lostCauses?.[cause] ?? 0 };
  };
  const part = { name: g.name, gpu: use(g.gpu, own?.gpu), cpu: use(g.cpu, own?.cpu) };
  for (const t of above) part[t.field] = t.key === cause ? g[t.field] : 0;
  return part;
}

// heading is a group's own figures.
function heading(report, since, by, group) {
  const g = report.groups.find((one) => one.name === group);
  return [el("h1", {}, `Report: ${by} `, name(called(by, group), 200)), el("p", {}, el("a", { href: at(since, by) }, `Of ${times[since]}, by ${by}`)), looked(report),
    ...(g ? resources.filter(([resource, , columns]) => held(g, resource, columns)).map(([resource, title, columns]) => section(title, facts(columns.map((t) => [t.title, hours(value(g, resource, t))])))) :
      [el("p", {}, "Nothing was held by it in that time.")])];
}

// evidence is what a container's terms rest on: what it held devices and CPUs for, and the verdicts,
// trials and loans of its name.
function evidence(root, since, group) {
  const head = el("div"), causes = el("div"), done = el("div"), fetched = ask();
  const used = { proven: el("p"), tried: el("p") }; // apart from the records: they grow while what is open stays open
  const records = throttle(60000, (n) => get(`/v1/history?limit=${recordsAsked}&name=${encodeURIComponent(n)}`));
  const runs = throttle(60000, (key) => get("/v1/containers/" + encodeURIComponent(key)).then(() => "runs", (error) => (error.status === 404 ? "gone" : "unknown")));
  root.append(head, causes, meanings(), done);
  let stamp;
  return async () => {
    const report = await fetched(asked(since, "container"));
    const g = report.groups.find((one) => one.name === group);
    const now = { runs: () => el("a", { href: "#/job/" + encodeURIComponent(g.key) }, "its page"), gone: () => "it does not run", unknown: () => "the daemon does not say" }[g?.key ? await runs(g.key) : "gone"];
    swap(head, ...heading(report, since, "container", group), g ? facts([["now", now()],
      ["team", g.team ? el("a", { href: at(since, "team", g.team) }, name(g.team, 40)) : ""], ["image", g.image ? el("a", { href: at(since, "image", g.image) }, name(g.image, 120)) : ""]]) : null);
    swap(causes, g ? resources.map(([resource, title]) => heldTable(g[resource], title)) : null);
    inUse(used.proven, g, "proven", "were in use under them while they stood.");
    inUse(used.tried, g, "tried", "were in use during them.");
    const past = await records(group);
    const latest = [past.records.length, past.records.at(-1)?.time, report.from].join("/");
    if (latest === stamp) return; // nothing new: what is open stays open
    stamp = latest;
    done.replaceChildren(...termsRecords(past.records, report.from, used));
  };
}

// inUse says of a term how much of it was in use.
function inUse(node, g, key, words) {
  node.hidden = !(g?.gpu[key] > 0 || g?.cpu[key] > 0);
  put(node, node.hidden ? "" : resources.map(([resource, title]) => `${hours(g[resource][key])} ${title}`).join(" and ") + " " + words);
}

function heldTable(use, title) {
  const causes = Object.entries(use.causes ?? {}).sort(([, a], [, b]) => b - a);
  return causes.length ? section(`What its ${title} went into`, table(title, ["What", "Hours", "Of what was held"], causes.map(([c, seconds]) => [heldFor(c), hours(seconds), percent(seconds / use.held)]))) : null;
}

// termsRecords are a container's records, by the term that they stand for. A proof may be older than
// the report: it counts while its change stands.
function termsRecords(all, from, used) {
  const newest = all.toReversed(), trials = newest.filter((r) => r.kind === "trial"), ofThen = (r) => r.time >= from;
  const means = (key) => el("p", {}, [...terms, ...above].find((t) => t.key === key).means + ".");
  const list = (some, none) => (some.length ? el("ol", { class: "records" }, some.map((r) => el("li", {}, record(r, all)))) : el("p", {}, none));
  return [
    section("Actionable, by these verdicts", means("actionable"), list(newest.filter((r) => ofThen(r) && r.kind === "verdict"), "No verdict of it was given.")),
    section("Saved, by these proofs", means("saved"), used.proven, list(trials.filter((r) => r.outcome === "kept"), "No trial of it was kept.")),
    section("Lost, in these trials", means("lost"), used.tried, list(trials.filter((r) => ofThen(r) && ["rolled_back", "inconclusive", "unproven"].includes(r.outcome)), "It has no such trial.")),
    section("Lent, by these loans", means("lent"), list(newest.filter((r) => ofThen(r) && r.kind === "loan"), "Nothing was lent to it.")),
    section("Given, by these trials", means("given"), list(trials.filter((r) => r.knob === "cpu.quota" && parseInt(r.to) > parseInt(r.from)), "No trial gave it quota.")),
    all.length >= recordsAsked ? el("p", {}, `Of its newest ${recordsAsked} records; older ones are left out.`) : null,
  ].filter(Boolean);
}
