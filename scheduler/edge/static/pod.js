// One Pod's story: the explanation's own lines as a tree that can be folded, its scores, and the record if there is one.

import { ask, podPath } from "./api.js";
import { el } from "./dom.js";

export const title = "Pod";

export async function load(parameters, signal) {
  const [namespace, name] = parameters.get("path").split("/").map(decodeURIComponent);
  const found = await ask(podPath(namespace, name, "explanation"), signal);
  let story = null;
  try {
    story = (await ask(podPath(namespace, name, "story"), signal)).answer;
  } catch (error) {
    if (error.name === "AbortError") throw error; // without a record there is no story: the rest is shown all the same
  }
  return { ...found, story };
}

export function render({ answer, text, story }) {
  // What would help comes first, the long tree of nodes after it.
  const sections = split(text).sort((one, other) => rank(one) - rank(other));
  return [
    el("p", { class: `phase p-${answer.phase.replaceAll(" ", "-")}` }, text[0] ?? ""),
    ...sections.map(section),
    story?.lines?.length ? el("section", {}, el("h2", {}, "What happened so far"),
      el("ol", { class: "story" }, story.lines.map((line) => el("li", {}, line)))) : null,
  ];
}

function split(lines) {
  const sections = [[]];
  for (const line of lines.slice(1)) {
    if (line === "") sections.push([]);
    else sections.at(-1).push(line);
  }
  return sections.filter((section) => section.length);
}

function rank(lines) {
  if (lines[0].startsWith(" ")) return 0;
  return lines[0].startsWith("What would help") ? 1 : 2;
}

function section(lines) {
  const headed = !lines[0].startsWith(" ") && !lines[0].startsWith("note:");
  const body = headed ? lines.slice(1) : lines;
  const heading = headed ? lines[0] : lines[0].startsWith("note:") ? "Notes" : "In short";
  if (/^\s*(NODE|[A-Z]+ {2,})/.test(body[0] ?? "")) {
    return el("section", {}, el("h2", {}, heading), el("pre", { tabindex: "0", role: "region", "aria-label": heading }, body.join("\n")));
  }
  return el("section", {}, el("h2", {}, heading), tree(body.map((line) => ({ depth: line.search(/\S/), text: line.trim() }))));
}

/** Lines by their indentation: what is further in belongs to the line before it. */
function tree(lines) {
  const items = [];
  for (let at = 0; at < lines.length; at++) {
    const inner = [];
    let next = at + 1;
    while (next < lines.length && lines[next].depth > lines[at].depth) inner.push(lines[next++]);
    items.push(el("li", {}, inner.length
      ? el("details", { open: true }, el("summary", {}, lines[at].text), tree(inner))
      : lines[at].text));
    at = next - 1;
  }
  return el("ul", { class: "tree" }, items);
}
