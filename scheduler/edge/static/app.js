// Which view is shown, when it is loaded anew, and who is asking.

import { ask, hasToken, Refused, setToken, settings } from "./api.js";
import { el } from "./dom.js";
import * as inventory from "./inventory.js";
import * as lint from "./lint.js";
import * as map from "./map.js";
import * as pod from "./pod.js";
import * as waiting from "./waiting.js";

const VIEWS = { map, waiting, pod, inventory, lint };
const INTERVAL_MS = 5000;

const content = document.getElementById("content");
const status = document.getElementById("status");
const pauseButton = document.getElementById("pause");
const leaveButton = document.getElementById("leave");

let needsToken = true;
let running = null; // the request of the view that is shown
let shownBody = ""; // what the view shows, to leave it alone when nothing changed

function place() {
  const [path, query] = location.hash.replace(/^#\//, "").split("?");
  const [name, ...rest] = path.split("/");
  const parameters = new URLSearchParams(query ?? "");
  parameters.set("path", rest.join("/"));
  return { name: Object.hasOwn(VIEWS, name) ? name : "map", parameters };
}

function markView(name) {
  for (const link of document.querySelectorAll("#views a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function heading(name, parameters) {
  if (name !== "pod") return VIEWS[name].title;
  return `Pod ${parameters.get("path").split("/").map(decodeURIComponent).join("/")}`;
}

/** Load and show the view. fresh: the reader went there, so the focus goes to its heading. */
async function show(fresh) {
  running?.abort();
  const request = new AbortController();
  running = request;
  const { name, parameters } = place();
  markView(name);
  if (needsToken && !hasToken()) return askForToken();
  if (fresh) {
    document.title = `${heading(name, parameters)} – dra-scheduler`;
    status.textContent = "Loading …";
    status.dataset.state = "loading";
  }
  try {
    const found = await VIEWS[name].load(parameters, request.signal);
    // Ages alone are no reason to draw a page anew: what the reader folded or chose stays.
    const body = JSON.stringify({ ...found, text: null, now: name === "waiting" ? Math.floor((found.now ?? 0) / 60) : 0 });
    if (fresh || body !== shownBody) draw(heading(name, parameters), VIEWS[name].render(found), fresh);
    shownBody = body;
    status.textContent = `As of ${new Date().toLocaleTimeString()}`;
    status.dataset.state = "shown";
  } catch (error) {
    if (error.name === "AbortError") return;
    refuse(error, heading(name, parameters));
  } finally {
    if (running === request) running = null;
  }
}

function folds() {
  return [...content.querySelectorAll("details")];
}

/** What a fold is about, with those around it; numbers and ages may change between two looks. */
function nameOf(fold) {
  const words = [];
  for (let one = fold; one && one !== content; one = one.parentElement) {
    if (one.localName === "details") words.push(one.firstElementChild.textContent.replace(/\d+/g, ""));
  }
  return words.join("\n");
}

function draw(text, parts, fresh) {
  const title = el("h1", { tabindex: "-1" }, text);
  const active = document.activeElement;
  const kept = !fresh && content.contains(active) ? active.dataset.device ?? active.id : "";
  const folded = fresh ? new Set() : new Set(folds().filter((one) => !one.open).map(nameOf));
  content.replaceChildren(title, ...parts.filter(Boolean));
  for (const one of folds()) if (folded.has(nameOf(one))) one.open = false;
  if (fresh) title.focus({ preventScroll: true });
  else if (kept) content.querySelector(`[data-device="${CSS.escape(kept)}"], #${CSS.escape(kept)}`)?.focus({ preventScroll: true });
}

function refuse(error, text) {
  shownBody = "";
  if (error instanceof Refused && error.code === 401) {
    setToken("");
    return askForToken("This token is not accepted.");
  }
  if (!(error instanceof Refused)) console.error(error);
  const words = error instanceof Refused ? error.message : "This answer cannot be shown.";
  // What a busy scheduler showed last stays on the page.
  if (!(error.code === 503 && content.querySelector("h1"))) draw(text, [el("p", { class: "refused", role: "alert" }, words)], false);
  status.textContent = words;
  status.dataset.state = "refused";
}

function askForToken(problem = "") {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true, "aria-describedby": "token-help" });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value);
    start();
  };
  shownBody = "";
  content.replaceChildren(
    el("h1", { tabindex: "-1" }, "Who are you?"),
    el("form", { class: "token", onsubmit: submit },
      problem ? el("p", { class: "refused", role: "alert" }, problem) : null,
      el("label", { for: "token" }, "A bearer token of the cluster"), input,
      el("p", { id: "token-help" }, "For example from kubectl create token NAME. You see what its owner may list. It stays in this page's memory and is forgotten with it."),
      el("button", { type: "submit" }, "Show the cluster")));
  leaveButton.hidden = true;
  status.textContent = problem;
  input.focus();
}

async function start() {
  if (!needsToken || hasToken()) {
    try {
      const { answer } = await ask("me");
      document.getElementById("who").textContent = needsToken ? answer.user : "demo";
      leaveButton.hidden = !needsToken;
    } catch (error) {
      return refuse(error, "dra-scheduler");
    }
  }
  return show(true);
}

pauseButton.addEventListener("click", () => {
  const paused = pauseButton.getAttribute("aria-pressed") !== "true";
  pauseButton.setAttribute("aria-pressed", String(paused));
});
leaveButton.addEventListener("click", () => {
  setToken("");
  document.getElementById("who").textContent = "";
  askForToken();
});
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const [namespace, name] = document.getElementById("find-pod").value.trim().replace(/^pod\//, "").split("/");
  if (namespace) location.hash = `#/pod/${encodeURIComponent(name ? namespace : "default")}/${encodeURIComponent(name ?? namespace)}`;
});
window.addEventListener("hashchange", () => {
  // The skip link leads inside the page, not to another view.
  if (location.hash === "#content") return;
  show(true);
});
setInterval(() => {
  const paused = pauseButton.getAttribute("aria-pressed") === "true" || document.hidden || running;
  if (!paused && (!needsToken || hasToken())) show(false);
}, INTERVAL_MS);

try {
  needsToken = (await settings()).token !== false;
} catch {
  needsToken = true;
}
start();
