// States as small colored words: the word says it, the color only helps.

import { h, setText } from "./dom.js";

const TONES = {
  scheduled: "calm", leased: "busy", delivered: "good", dead: "bad", blocked: "warn", expired: "warn", cancelled: "off",
  running: "good", paused: "warn", "breaker open": "bad", "sink never reached": "bad", "nobody serves it": "bad", idle: "off",
  open: "good", closed: "off", active: "good", ended: "off", ALLOW: "good", DEFER: "warn", BLOCK: "bad",
};

export const pill = (word) => showPill(h("span.pill"), word);

export function showPill(node, word) {
  node.dataset.tone = TONES[word] ?? "calm";
  setText(node, word);
  return node;
}
