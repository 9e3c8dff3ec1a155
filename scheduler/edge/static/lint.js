// What lint found, worst first.

import { ask } from "./api.js";
import { caveats, el } from "./dom.js";

const SIGNS = { error: "✖", warning: "▲", note: "i" };

export const title = "Lint";

export async function load(parameters, signal) {
  return ask("lint", signal);
}

export function render({ answer }) {
  const count = (severity) => answer.findings.filter((finding) => finding.severity === severity).length;
  return [
    el("p", {}, `${count("error")} errors, ${count("warning")} warnings, ${count("note")} notes`),
    el("ul", { class: "findings" }, answer.findings.map((finding) =>
      el("li", { class: `finding f-${Object.hasOwn(SIGNS, finding.severity) ? finding.severity : "note"}` },
        el("h2", {}, el("span", { "aria-hidden": "true" }, `${SIGNS[finding.severity] ?? "i"} `), `${finding.severity}: ${finding.subject}`),
        finding.path ? el("p", {}, el("code", {}, finding.path)) : null,
        el("p", {}, finding.what),
        el("dl", {}, el("dt", {}, "Why"), el("dd", {}, finding.why), el("dt", {}, "Fix"), el("dd", {}, finding.fix),
          el("dt", {}, "Rule"), el("dd", {}, finding.check))))),
    caveats(answer.caveats),
  ];
}
