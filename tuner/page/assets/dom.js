// Elements are made here alone, and text is only ever text: no string becomes markup.

// Characters that would break a line, or turn the direction of what follows.
const unseen = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

// clean shows each such character as one mark.
export function clean(text) {
  return String(text ?? "").replace(unseen, "\u00b7");
}

// clip cuts in the middle: both ends tell names apart.
export function clip(text, most = 60) {
  const all = [...clean(text).slice(0, 8192)];
  if (all.length <= most) return all.join("");
  const head = Math.ceil((most - 1) / 2);
  return all.slice(0, head).join("") + "…" + all.slice(all.length - (most - 1 - head)).join("");
}

// el makes an element. In attrs, class, on* (a listener) and any attribute; children are
// elements, texts, or lists of them.
export function el(tag, attrs = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== "").map((c) => (c instanceof Node ? c : clean(c))));
  return node;
}

// svg makes a graphic element; attrs are set as they are.
export function svg(tag, attrs = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attrs)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// name shows what somebody else chose: apart from the text around, whatever its direction.
export function name(text, most = 60) {
  return el("bdi", {}, clip(text, most).trim() || "(no name)");
}

// put sets an element's text if it is another one now: what stands still costs nothing.
export function put(node, text) {
  text = clean(text);
  if (node.textContent !== text) node.textContent = text;
}

// facts is a list of terms and what they are; those without a value are left out.
export function facts(rows) {
  return el("dl", { class: "facts" }, rows.filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false)
    .map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

// table makes one with a caption for those who hear it. A cell is a text, an element or a list.
export function table(caption, head, rows, wide = []) {
  const hide = (i) => (wide.includes(i) ? "wide" : undefined);
  return el("table", {}, el("caption", { class: "heard" }, caption),
    el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: hide(i) }, h)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : undefined, class: hide(i) }, cell))))));
}

// section is a heading with what stands below it; empty sections are not shown.
export function section(title, ...children) {
  const all = children.flat(3).filter((c) => c !== null && c !== undefined && c !== "");
  return all.length ? el("section", {}, el("h2", {}, title), all) : null;
}

// swap puts new content into a place, section by section, and leaves alone what is the same:
// a selection and the focus stay.
export function swap(place, ...content) {
  content = content.flat(3).filter(Boolean);
  const old = [...place.children];
  content.forEach((node, i) => {
    if (!old[i]) place.append(node);
    else if (!old[i].isEqualNode(node)) old[i].replaceWith(node);
  });
  for (const node of old.slice(content.length)) node.remove();
}
