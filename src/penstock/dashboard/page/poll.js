// Ask again every so often, only while somebody looks, never two requests at once.

import { notice } from "./notice.js";

/** Runs `ask(signal)` now and every `seconds`; what goes wrong is told in `where`. */
export function poll(seconds, where, ask) {
  const abort = new AbortController();
  let timer = 0;
  let ended = false;
  let again = false;
  let asking = false;

  async function turn() {
    clearTimeout(timer);
    if (asking) { again = true; return; }
    asking = true;
    try {
      if (!document.hidden) {
        await ask(abort.signal);
        if (!ended) notice(where, null);
      }
    } catch (error) {
      if (!ended && error.name !== "AbortError") notice(where, error);
    } finally {
      asking = false;
    }
    if (ended) return;
    timer = setTimeout(turn, again ? 0 : seconds * 1000);
    again = false;
  }

  const shown = () => { if (!document.hidden) turn(); };
  document.addEventListener("visibilitychange", shown);
  turn();
  return {
    now: turn,
    stop() {
      ended = true;
      clearTimeout(timer);
      abort.abort();
      document.removeEventListener("visibilitychange", shown);
    },
  };
}
