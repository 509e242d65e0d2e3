// A table of many: fifty rows at once, sorted by a column's button. A row stays the element
// that it is while what it shows is there, so that the focus and a selection stay.
import { clip, el, name, put } from "./dom.js";

const atOnce = 50; // rows: what is found by a filter need not be scrolled for
const atFirst = 15; // rows that a first look sees; the others follow when the browser is idle

const whenIdle = (work) => (globalThis.requestIdleCallback ? requestIdleCallback(work, { timeout: 1000 }) : setTimeout(work, 50)); // not every browser has it

// Listing shows rows of any kind. A column is { title, means, wide, down, text(row), key(row) }:
// down has the largest first, which key has to say. The first column is { title, key } and a
// link; id, label and href are of a row. order is the key where no column sorts.
export class Listing {
  #rows = new Map();
  #found = [];
  #sortBy = -1;
  #most = atFirst;
  constructor({ caption, columns, kind, id, label, href, order }) {
    Object.assign(this, { columns, id, label, href, order });
    this.body = el("tbody");
    this.foot = el("tfoot");
    this.heads = columns.map((column, i) => el("th", { scope: "col", class: column.wide ? "wide" : undefined },
      el("button", { type: "button", title: column.means, onclick: () => { this.#sortBy = this.#sortBy === i ? -1 : i; this.#draw(); } }, column.title)));
    this.more = el("button", { type: "button", onclick: () => { this.#most = Math.max(this.#most, atOnce) + atOnce; this.#draw(); } }, "Show more");
    this.count = el("p", { role: "status", class: "count" });
    this.table = el("table", { class: kind }, el("caption", { class: "heard" }, caption + "; a column's button sorts by it"), el("thead", {}, el("tr", {}, this.heads)), this.body, this.foot);
    this.nodes = [this.count, el("div", { class: "scroll" }, this.table), this.more];
  }

  // first shows no more than the first rows again: what is looked for is another.
  first() {
    this.#most = atFirst;
  }

  // show takes what there is, of which found fits, and says how many, with what comes behind.
  show(all, found, rest = "") {
    const ids = new Set(all.map(this.id));
    for (const id of this.#rows.keys()) if (!ids.has(id)) this.#rows.delete(id);
    this.#found = found;
    this.rest = rest;
    this.#draw();
  }

  total(cells) {
    this.foot.replaceChildren(el("tr", {}, cells.map((text, i) => el(i ? "td" : "th", { scope: i ? undefined : "row", class: this.columns[i].wide ? "wide" : undefined }, text))));
  }

  #draw() {
    const key = this.#sortBy < 0 ? this.order : this.columns[this.#sortBy].key;
    const sorted = this.#found.map((r) => [key(r), r]).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.heads.forEach((h, i) => (i === this.#sortBy ? h.setAttribute("aria-sort", this.columns[i].down ? "descending" : "ascending") : h.removeAttribute("aria-sort")));
    const nodes = sorted.slice(0, this.#most).map(([, r]) => this.#row(r));
    const there = this.body.children;
    if (there.length <= nodes.length && [...there].every((n, i) => n === nodes[i])) this.body.append(...nodes.slice(there.length)); // what has the focus keeps it
    else this.body.replaceChildren(...nodes);
    const most = Math.max(this.#most, atOnce); // as it will be in a moment
    this.more.hidden = this.#found.length <= most;
    put(this.count, `${Math.min(this.#found.length, most)} of ${this.#found.length} that fit${this.rest}`);
    if (this.#most < Math.min(most, this.#found.length)) whenIdle(() => { if (this.#most < most) { this.#most = most; this.#draw(); } });
  }

  #row(r) {
    const id = this.id(r), label = this.label(r);
    let row = this.#rows.get(id);
    if (!row) {
      const link = el("a"), cells = this.columns.slice(1).map((column) => el("td", { class: column.wide ? "wide" : undefined }));
      row = { node: el("tr", {}, el("th", { scope: "row" }, link), cells), link, cells };
      this.#rows.set(id, row);
    }
    if (row.link.getAttribute("href") !== this.href(r)) row.link.setAttribute("href", this.href(r));
    if (row.label !== label) row.link.replaceChildren(name(label)); // a container may be renamed
    row.label = label;
    row.cells.forEach((cell, i) => put(cell, clip(this.columns[i + 1].text(r), 120)));
    return row.node;
  }
}
