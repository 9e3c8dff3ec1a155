// Asks the scheduler. The token lives in this module's memory only: it is gone when the page is.

let token = "";

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export function setToken(given) {
  token = given.trim();
}

export function hasToken() {
  return token !== "";
}

export async function settings() {
  const answer = await fetch("settings.json", { cache: "no-store" });
  return answer.json();
}

/** The answer to a question, with the server's time. Raises Refused with the server's words. */
export async function ask(path, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let answer;
  try {
    answer = await fetch(`../questions/v1/${path}`, { headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The scheduler does not answer.");
  }
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Refused(answer.status, `The answer (${answer.status}) cannot be read.`);
  }
  if (!answer.ok) throw new Refused(answer.status, body.message ?? `Refused (${answer.status}).`);
  return body;
}

/** The path of one Pod's explanation. */
export function podPath(namespace, name, what) {
  return `namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/${what}`;
}
