// How a device can stand: word, sign and what it means. Colour is never the only difference.

export const STATES = {
  free: { sign: "○", text: "a request can get it now" },
  used: { sign: "●", text: "given to a claim as a whole" },
  shared: { sign: "◐", text: "given in part; what is left can be had" },
  tainted: { sign: "▲", text: "kept from requests without a toleration" },
  blocked: { sign: "■", text: "what it is made of is in use" },
  unseen: { sign: "?", text: "its pool is incomplete or invalid: nobody can get it" },
};

export function sign(state) {
  return STATES[state]?.sign ?? "·";
}

/** The class for a state; a word we do not know gets none. */
export function stateClass(state) {
  return Object.hasOwn(STATES, state) ? `s-${state}` : "";
}
