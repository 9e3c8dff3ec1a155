// The Pods that wait, and what each was told.

import { ask } from "./api.js";
import { age, el, podLink, table } from "./dom.js";

export const title = "Waiting Pods";

export async function load(parameters, signal) {
  return ask("pods", signal);
}

export function render({ answer, now }) {
  if (!answer.pods.length) return [el("p", {}, "No Pod that you may list waits.")];
  const rows = answer.pods.map((pod) => [
    podLink(pod.pod), age(pod.since, now), String(pod.priority),
    pod.node ? `decided for node ${pod.node}, being written` : pod.message || "not tried yet", pod.claims.join(", "),
  ]);
  return [
    table(`${answer.found} Pods wait`, ["Pod", "Since", "Priority", "What it was told", "Claims"], rows, [1, 2]),
    answer.found > answer.pods.length ? el("p", {}, `Those that wait longest: ${answer.pods.length}.`) : null,
  ];
}
