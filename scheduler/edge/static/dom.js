// Builds elements. Text is only ever set as text: whatever a name contains, it is shown and never run.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. attributes: name → value; `on…` are listeners, null and false are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A table with a caption and column heads; the first cell of a row is its head. numeric: columns aligned right. */
export function table(caption, heads, rows, numeric = []) {
  const cells = (row) =>
    row.map((cell, column) => el(column ? "td" : "th", { scope: column ? null : "row", class: numeric.includes(column) ? "number" : null }, cell));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, column) => el("th", { scope: "col", class: numeric.includes(column) ? "number" : null }, head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

/** A link to one Pod's story; parts are encoded, so that no name can lead elsewhere. */
export function podLink(key) {
  const [namespace, name] = key.split("/");
  return el("a", { href: `#/pod/${encodeURIComponent(namespace)}/${encodeURIComponent(name ?? "")}` }, key);
}

/** Caveats as a list, nothing without any. */
export function caveats(list) {
  return list?.length ? el("ul", { class: "caveats" }, list.map((text) => el("li", {}, text))) : null;
}

/** How long ago a time of the API was, in the largest unit that fits. */
export function age(timestamp, now) {
  const seconds = Math.floor(now - Date.parse(timestamp) / 1000);
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${seconds}s`;
}
