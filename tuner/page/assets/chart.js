// A job's hour: where its time went, its CPUs and its rate, with what was done to it. The
// drawing is for the eye; the slider under it says each point in words.
import { clip, el, put, svg } from "./dom.js";
import { change, clock, cpus, kind, number, partNames, parts, percent } from "./words.js";

const hourNs = 3600e9, longestNs = 120e9, width = 720, height = 180, low = 56, longestText = 240, mostAtOnce = 3;

// Chart is kept while its job is looked at; show gives it new data.
export class Chart {
  constructor() {
    this.areas = partNames.map((p) => svg("path", { class: "part " + p }));
    this.trials = svg("g", { class: "trials" });
    this.marks = svg("g", { class: "marks" });
    this.cursor = svg("line", { class: "cursor", y1: 0, y2: height, x1: -9, x2: -9 });
    this.breakdown = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", class: "breakdown" }, ...this.areas, this.trials, this.marks, this.cursor);
    this.lent = svg("path", { class: "lent" });
    this.quota = svg("path", { class: "quota" });
    this.used = svg("path", { class: "used" });
    this.cpus = svg("svg", { viewBox: `0 0 ${width} ${low}`, preserveAspectRatio: "none", role: "img", class: "lines" }, this.lent, this.quota, this.used);
    this.rateLine = svg("path", { class: "rate" });
    this.rate = svg("svg", { viewBox: `0 0 ${width} ${low}`, preserveAspectRatio: "none", role: "img", class: "lines" }, this.rateLine);
    this.cpuTitle = el("p", { class: "axis" });
    this.rateTitle = el("p", { class: "axis" });
    this.numbers = el("div", { class: "numbers", "aria-hidden": "true" });
    this.from = el("span");
    this.to = el("span");
    this.key = el("p", { class: "axis" }, "Lines are what was done, by the numbers of the list below; a bar at the top is a trial.");
    this.legend = el("ul", { class: "legend", "aria-label": "What the colours mean" });
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, id: "point", oninput: () => this.read() });
    this.words = el("output", { for: "point", class: "reading" });
    this.empty = el("p", {}, "No point yet: one comes each ten seconds while the container is watched.");
    this.drawn = el("div", { hidden: true }, this.numbers, this.breakdown, el("p", { class: "axis ends" }, this.from, this.to), this.legend, this.key,
      this.cpuTitle, this.cpus, this.rateTitle, this.rate, el("div", { class: "tools" }, el("label", { for: "point" }, "Read a point"), this.slider), this.words);
    this.node = el("div", { class: "chart" }, this.empty, this.drawn);
    this.breakdown.addEventListener("pointermove", (event) => this.point(event));
    this.points = [];
  }

  // show draws points; marks are records with their numbers, trials are spans, verdicts are records.
  // Records come oldest first.
  show(points, marks, trials, verdicts, nowNs) {
    const atEnd = Number(this.slider.value) >= this.points.length - 1;
    this.points = points;
    this.done = marks;
    this.verdicts = verdicts;
    this.end = Math.max(nowNs, points.at(-1)?.time ?? 0);
    this.begin = this.end - Math.max(Math.min(hourNs, this.end - (points[0]?.time ?? this.end)), 600e9);
    this.empty.hidden = points.length > 0;
    this.drawn.hidden = points.length === 0;
    if (!points.length) return;
    this.areas.forEach((area, i) => area.setAttribute("d", this.area(i)));
    const seen = partNames.filter((_, i) => points.some((p) => p.shares?.[i] > 0.005));
    if (seen.join() !== this.seen) {
      this.seen = seen.join();
      this.legend.replaceChildren(...seen.map((p) => el("li", {}, el("span", { class: "swatch " + p, "aria-hidden": "true" }), parts[p])));
    }
    this.trials.replaceChildren(...trials.map((t) => this.band(t)).filter(Boolean));
    this.mark(marks);
    this.lines();
    put(this.from, clock(this.begin));
    put(this.to, clock(this.end));
    this.breakdown.setAttribute("aria-label", `Where the time went from ${clock(this.begin)} to ${clock(this.end)}. ${this.say(points.length - 1)}`);
    this.slider.max = points.length - 1;
    if (atEnd) this.slider.value = points.length - 1;
    this.read();
  }

  x(ns) {
    return Math.max(0, Math.min(1, (ns - this.begin) / (this.end - this.begin))) * width;
  }

  // area is one part's band: each point's share holds since the last point that has shares.
  area(i) {
    let d = "", before = this.begin;
    for (const p of this.points) {
      if (!p.shares) continue; // a long step: the next shares hold for this time too
      const left = this.x(Math.max(before, p.time - longestNs)), right = this.x(p.time);
      before = p.time;
      if (right <= left || !(p.shares[i] > 0)) continue;
      let under = 0;
      for (let j = 0; j < i; j++) under += p.shares[j];
      const y = height * (1 - under), h = height * p.shares[i];
      d += `M${left.toFixed(1)} ${y.toFixed(1)}H${right.toFixed(1)}v${(-h).toFixed(1)}H${left.toFixed(1)}z`;
    }
    return d;
  }

  band(t) {
    const left = this.x(t.started), right = this.x(t.ended || this.end);
    if (right <= 0 || left >= width) return null;
    return svg("rect", { class: t.ended ? t.outcome : "open", x: left, y: 0, width: Math.max(2, right - left), height: 8 });
  }

  mark(marks) {
    const inside = marks.filter((m) => m.record.time >= this.begin);
    this.marks.replaceChildren(...inside.map((m) => svg("line", { class: m.record.kind, x1: this.x(m.record.time), x2: this.x(m.record.time), y1: 0, y2: height })));
    const labels = []; // marks that would stand on each other have one, of the first and the last
    for (const m of inside.toSorted((a, b) => a.record.time - b.record.time)) {
      const at = this.x(m.record.time) / width * 100, before = labels.at(-1);
      if (before && at - before.at < (before.to === before.from ? 3 : 6)) before.to = m.number;
      else labels.push({ at, from: m.number, to: m.number, kind: m.record.kind });
    }
    this.numbers.replaceChildren(...labels.map((l) => {
      const n = el("span", { class: l.kind }, l.from === l.to ? String(l.from) : `${l.from}–${l.to}`);
      n.style.left = l.at + "%";
      return n;
    }));
  }

  lines() {
    const top = Math.max(0.1, ...this.points.map((p) => Math.max(p.used, p.quota ?? 0))) * 1.05;
    const line = (value, most, like = () => true) => {
      let d = "", pen = "M", last;
      for (const p of this.points) {
        const v = value(p);
        if (last && like(p) !== like(last)) pen = "M";
        last = p;
        if (v === undefined) {
          pen = "M";
          continue;
        }
        d += `${pen}${this.x(p.time).toFixed(1)} ${(low * (1 - v / most)).toFixed(1)}`;
        pen = "L";
      }
      return d;
    };
    this.used.setAttribute("d", line((p) => p.used, top));
    this.quota.setAttribute("d", line((p) => p.quota, top));
    this.lent.setAttribute("d", this.points.map((p, i) => {
      if (!p.lent || !p.quota || !i) return "";
      const left = this.x(this.points[i - 1].time), right = this.x(p.time), y = low * (1 - p.quota / top), h = low * p.lent / top;
      return `M${left.toFixed(1)} ${y.toFixed(1)}H${right.toFixed(1)}v${h.toFixed(1)}H${left.toFixed(1)}z`;
    }).join(""));
    const fastest = Math.max(0, ...this.points.map((p) => p.rate ?? 0));
    this.rateLine.setAttribute("d", fastest > 0 ? line((p) => p.rate, fastest * 1.05, (p) => p.steps) : "");
    const last = this.points.at(-1);
    put(this.cpuTitle, `CPUs, to ${cpus(top)}: used (line), quota (dashed), lent (filled)`);
    put(this.rateTitle, fastest > 0 ? `${last.steps ? "Steps a second" : "What is counted, a second"}, to ${number(fastest * 1.05)}` : "No rate is known.");
    this.cpus.setAttribute("aria-label", `CPUs over the same time, now ${cpus(last.used)} used${last.quota ? " of " + cpus(last.quota) : ""}`);
    this.rate.setAttribute("aria-label", fastest > 0 ? `Rate over the same time, now ${number(last.rate ?? 0)} a second` : "No rate");
    this.rate.toggleAttribute("hidden", !(fastest > 0));
  }

  point(event) {
    const box = this.breakdown.getBoundingClientRect();
    const ns = this.begin + (event.clientX - box.left) / box.width * (this.end - this.begin);
    const at = this.points.findIndex((p) => p.time >= ns);
    this.slider.value = at < 0 ? this.points.length - 1 : at;
    this.read();
  }

  read() {
    const at = Number(this.slider.value), text = this.say(at);
    put(this.words, text);
    this.slider.setAttribute("aria-valuetext", text);
    const x = this.x(this.points[at]?.time ?? 0);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
  }

  say(at) {
    const p = this.points[at];
    if (!p) return "";
    const shares = (p.shares ?? []).map((s, i) => [s, parts[partNames[i]]]).filter(([s]) => s > 0.005).sort((a, b) => b[0] - a[0]);
    const out = [clock(p.time), ...shares.map(([s, words]) => `${percent(s)} ${words}`)];
    if (!shares.length) out.push("no window was closed");
    if (p.rate > 0) out.push(`${number(p.rate)} ${p.steps ? "steps/s" : "/s"}`);
    out.push(`${cpus(p.used)} CPUs used${p.quota ? " of " + cpus(p.quota) : ""}${p.lent ? `, ${cpus(p.lent)} of these lent` : ""}`);
    if (p.trial) out.push("on trial");
    const verdict = this.verdicts.findLast((v) => v.time <= p.time);
    if (verdict) out.push(`verdict since ${clock(verdict.time)}: ${clip(verdict.text, longestText)}`);
    const last = this.done.findLast((m) => m.record.time <= p.time)?.record.time;
    if (last) out.push(`last done, at ${clock(last)}: ${this.done.filter((m) => m.record.time === last).slice(0, mostAtOnce).map(said).join("; ")}`);
    return out.join(" · ");
  }
}

// said is a record under the number of its mark, with why.
function said({ record, number }) {
  return `${number}. ${kind(record)}${record.knob ? " " + clip(change(record), longestText) : ""}: ${clip(record.text, longestText)}`;
}
