// The Pods that wait, and what each was told.

import { ask } from "./api.js";
import { age, el, podLink, table } from "./dom.js";

export const title = "Waiting Pods";

export async function load(parameters, signal) {
  const namespace = parameters.get("namespace") ?? "";
  return { ...await ask(`pods?namespace=${encodeURIComponent(namespace)}`, signal), namespace };
}

function filter(namespace) {
  const input = el("input", { id: "namespace", name: "namespace", value: namespace, autocomplete: "off", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    location.hash = input.value ? `#/waiting?namespace=${encodeURIComponent(input.value)}` : "#/waiting";
  };
  return el("form", { class: "filter", role: "search", "aria-label": "Namespace", onsubmit: submit },
    el("label", { for: "namespace" }, "Namespace "), input, el("button", { type: "submit" }, "Show"));
}

export function render({ answer, now, namespace }) {
  if (!answer.pods.length) return [filter(namespace), el("p", {}, "No Pod that you may list waits.")];
  const rows = answer.pods.map((pod) => [
    podLink(pod.pod), age(pod.since, now), String(pod.priority),
    pod.node ? `decided for node ${pod.node}, being written` : pod.message || "not tried yet", pod.claims.join(", "),
  ]);
  return [
    filter(namespace),
    table(`${answer.found} Pods wait`, ["Pod", "Since", "Priority", "What it was told", "Claims"], rows, [1, 2]),
    answer.found > answer.pods.length ? el("p", {}, `Those that wait longest: ${answer.pods.length}.`) : null,
  ];
}
