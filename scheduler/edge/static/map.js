// Nodes and their devices. One device is in the tab order; arrow keys lead to the others.

import { ask } from "./api.js";
import { caveats, el, podLink } from "./dom.js";
import { STATES, sign, stateClass } from "./states.js";

const LIMIT = 200;

export const title = "Map";

export async function load(parameters, signal) {
  const match = parameters.get("match") ?? "";
  const { answer } = await ask(`map?limit=${LIMIT}&match=${encodeURIComponent(match)}`, signal);
  return { answer, match };
}

export function render({ answer, match }) {
  const details = el("section", { class: "details", "aria-label": "The chosen device", "aria-live": "polite", id: "device-details" },
    el("p", {}, "Choose a device to see who has it."));
  const nodes = el("ul", { class: "nodes", id: "nodes" }, answer.nodes.map((node) => nodeItem(node, details)));
  const first = nodes.querySelector("button.device");
  if (first) first.tabIndex = 0;
  nodes.addEventListener("keydown", move);
  return [
    legend(answer.states),
    filter(match),
    answer.found > answer.nodes.length && el("p", {}, `The first ${answer.nodes.length} of ${answer.found} nodes are shown.`),
    caveats(answer.caveats),
    el("div", { class: "beside" }, nodes, details),
  ];
}

function legend(states) {
  return el("ul", { class: "legend", "aria-label": "Devices by state" },
    Object.entries(states).map(([state, count]) =>
      el("li", {}, el("span", { class: `device ${stateClass(state)}`, "aria-hidden": "true" }, sign(state)),
        el("span", {}, el("strong", {}, `${count} ${state}`), ` ${STATES[state]?.text ?? ""}`))));
}

function filter(match) {
  const input = el("input", { id: "match", name: "match", value: match, autocomplete: "off", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    location.hash = input.value ? `#/map?match=${encodeURIComponent(input.value)}` : "#/map";
  };
  return el("form", { class: "filter", role: "search", "aria-label": "Nodes", onsubmit: submit },
    el("label", { for: "match" }, "Nodes whose name contains "), input, el("button", { type: "submit" }, "Show"));
}

function nodeItem(node, details) {
  const devices = node.devices.map((device) => deviceButton(node, device, details));
  return el("li", { class: "node" },
    el("h2", {}, node.node),
    el("p", { class: "facts" }, [`${node.pods} Pods`, `${node.devices.length} devices`, ...node.notes].join(", ")),
    devices.length ? el("ul", { class: "devices" }, devices.map((button) => el("li", {}, button))) : null);
}

function deviceButton(node, device, details) {
  const words = [`${device.pool}/${device.device}`, device.model, device.state].filter(Boolean).join(", ");
  const show = () => details.replaceChildren(...deviceFacts(node, device));
  return el("button", {
    type: "button", class: `device ${stateClass(device.state)}`, tabindex: "-1", title: words, "aria-label": words,
    "data-device": `${device.driver}/${device.pool}/${device.device}`, onclick: show, onfocus: show,
  }, sign(device.state));
}

function deviceFacts(node, device) {
  const rows = [["Driver", device.driver], ["Pool", device.pool], ["Node", node.node], ["Model", device.model],
    ["State", `${device.state}: ${STATES[device.state]?.text ?? ""}`], ["Why", device.why],
    ...Object.entries(device.left).map(([name, amount]) => [`${name} left`, amount])];
  return [
    el("h2", {}, device.device),
    el("dl", {}, rows.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    device.holders.length ? el("ul", { class: "holders" }, device.holders.map((holder) => el("li", {}, holderWords(holder)))) : null,
  ];
}

/** `claim ns/x (pod ns/y, ns/z)`, with a link to each Pod. */
function holderWords(text) {
  const found = /^(.*\(pod )([^()]+)\)$/.exec(text);
  if (!found) return [text];
  const pods = found[2].split(", ");
  return [found[1], ...pods.flatMap((pod, at) => [at ? ", " : null, pod.includes("/") ? podLink(pod) : pod]), ")"];
}

function move(event) {
  const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  const rows = { ArrowDown: 1, ArrowUp: -1 };
  const here = event.target.closest("button.device");
  if (!here || !(event.key in steps || event.key in rows)) return;
  const all = [...event.currentTarget.querySelectorAll("button.device")];
  let to;
  if (event.key in steps) {
    to = all[Math.max(0, Math.min(all.length - 1, all.indexOf(here) + steps[event.key]))];
  } else {
    const nodes = [...event.currentTarget.querySelectorAll(".node")].filter((node) => node.querySelector("button.device"));
    const place = nodes.indexOf(here.closest(".node"));
    const column = [...nodes[place].querySelectorAll("button.device")].indexOf(here);
    const there = [...(nodes[place + rows[event.key]] ?? nodes[place]).querySelectorAll("button.device")];
    to = there[Math.min(column, there.length - 1)];
  }
  event.preventDefault();
  here.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}
