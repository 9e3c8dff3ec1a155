// Devices counted, as bars and as tables.

import { ask } from "./api.js";
import { caveats, el, svg, table } from "./dom.js";
import { stateClass } from "./states.js";

const GROUPINGS = ["model", "driver", "pool", "node"];
const SHOWN = ["used", "shared", "tainted", "blocked", "free"];
const WIDTH = 600;

export const title = "Inventory";

export async function load(parameters, signal) {
  const by = GROUPINGS.includes(parameters.get("by")) ? parameters.get("by") : "model";
  const { answer } = await ask(`inventory?by=${by}`, signal);
  return { answer, by };
}

export function render({ answer, by }) {
  const heads = { driver: ["driver"], model: ["driver", "model"], pool: ["driver", "pool", "node"], node: ["node"] }[by];
  const named = answer.lines.map((line) => ({ line, name: heads.map((head) => line[head] || "-").join(" ") }));
  return [
    choice(by),
    caveats(answer.caveats),
    named.length ? chart(`Devices by ${by}`, named) : el("p", {}, "No devices are published."),
    named.length ? table(`Devices by ${by}, in numbers`, [by, "total", ...SHOWN, "largest", "fragmentation", "left to share"],
      named.map(({ line, name }) => [name, line.total, ...SHOWN.map((state) => line[state] ?? 0), line.largest,
        `${Math.round(line.fragmentation * 100)}%`,
        Object.entries(line.remainder ?? {}).map(([capacity, amount]) => `${capacity} ${amount}`).join(", ")].map(String)), [1, 2, 3, 4, 5, 6, 7, 8]) : null,
    namespaces(answer.namespaces),
    pools(answer.pools),
    ...[["Claims that leak", answer.leaked], ["Claims whose devices are gone", answer.lost],
      ["Claims on tainted devices", answer.on_tainted ?? []], ["Claims that wait for long", answer.waiting]]
      .map(([heading, notes]) => notes.length ? claims(heading, notes) : null),
  ];
}

function choice(by) {
  return el("p", { class: "choice" }, "Counted by ", GROUPINGS.map((name) =>
    el("a", { href: `#/inventory?by=${name}`, "aria-current": name === by ? "true" : null }, name)));
}

function chart(heading, named) {
  const most = Math.max(1, ...named.map(({ line }) => line.total));
  return el("section", { class: "chart" }, el("h2", {}, heading), el("ul", { class: "bars" }, named.slice(0, 50).map(({ line, name }) => {
    const parts = SHOWN.map((state) => [state, line[state] ?? 0]).filter(([, count]) => count > 0);
    const words = `${line.total} devices: ${parts.map(([state, count]) => `${count} ${state}`).join(", ")}`;
    let x = 0;
    // A shared device with room left counts as free, too: bars end at the total.
    const drawn = parts.map(([state, count]) => {
      const width = Math.min(count / most * WIDTH, line.total / most * WIDTH - x);
      const bar = [svg("rect", { x, y: 0, width: Math.max(0, width), height: 18, class: `bar ${stateClass(state)}` }),
        width > 70 ? svg("text", { x: x + 5, y: 13.5, class: "in-bar" }, `${count} ${state}`) : null];
      x += Math.max(0, width);
      return bar;
    });
    return el("li", {}, el("span", { class: "bar-name" }, name),
      svg("svg", { viewBox: `0 0 ${WIDTH} 18`, role: "img", "aria-label": words, preserveAspectRatio: "xMinYMid meet" }, ...drawn.flat()),
      el("span", { class: "bar-words", "aria-hidden": "true" }, words));
  })));
}

function namespaces(uses) {
  const rows = Object.entries(uses).flatMap(([space, drivers]) =>
    Object.entries(drivers).map(([driver, count]) => [space, driver, String(count)]));
  return rows.length ? table("Devices held by namespace", ["Namespace", "Driver", "Devices"], rows, [2]) : null;
}

function pools(unusable) {
  const rows = Object.entries(unusable);
  return rows.length ? table("Pools that cannot be used", ["Pool", "Why"], rows) : null;
}

function claims(heading, notes) {
  return table(heading, ["Claim", "Why", "Devices"], notes.map((note) => [note.claim, note.because, note.devices.join(", ")]));
}
