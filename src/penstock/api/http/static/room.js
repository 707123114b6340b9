// The visitor's page: shows the place, keeps it, and says when it is the visitor's turn.
import { ENDED, Line, Refused } from "./room-line.js";
import { WORDS, choose } from "./room-words.js";

const RETRY_MS = 3000;
const SPEAK_EVERY_MS = 30000;
const at = location.pathname.lastIndexOf("/rooms/");
const base = location.pathname.slice(0, at);
const room = decodeURIComponent(location.pathname.slice(at + "/rooms/".length));
const asked = new URLSearchParams(location.search);
const language = choose(navigator.languages ?? [navigator.language]);
const words = WORDS[language];
const line = new Line(base, room, asked.get("user"));

const part = (id) => document.getElementById(id);
const say = (id, text) => {
  if (part(id).textContent !== text) part(id).textContent = text;
};
const show = (id, on) => {
  part(id).hidden = !on;
};
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const number = (value) => new Intl.NumberFormat(language).format(value);

let state = null;
let spoken = 0;
let ticking = 0;

/** Read aloud, at once when something happened, else now and then: not every step in the line. */
function speak(text, { now = false } = {}) {
  if (!now && Date.now() - spoken < SPEAK_EVERY_MS) return;
  spoken = Date.now();
  say("spoken", text);
}

function notice(text) {
  show("news", Boolean(text));
  say("news", text);
}

function tell(ticket) {
  const titles = {
    WAITING: words.waiting, ADMITTED: words.turn, ENTERED: words.inside,
    LEFT: words.left, EXPIRED: words.expired, REVOKED: words.revoked,
  };
  const waiting = ticket.state === "WAITING";
  const turn = ticket.state === "ADMITTED";
  const changed = ticket.state !== state;
  state = ticket.state;
  part("card").dataset.state = state;
  say("title", titles[state]);
  document.title = waiting && ticket.position ? `${number(ticket.position)} · ${words.waiting}` : `${titles[state]} · ${room}`;
  show("line", waiting);
  show("turn", turn);
  show("leave", waiting || turn);
  show("again", ENDED.has(state));
  say("hint", waiting ? words.hint : "");
  show("live", waiting && line.live);
  clearInterval(ticking);
  if (waiting) tellPlace(ticket, changed);
  else notice("");
  if (turn) tellTurn(ticket);
  if (changed && !waiting) {
    speak(titles[state], { now: true });
    (turn && !part("go").hidden ? part("go") : part("title")).focus();
  }
}

function tellPlace(ticket, first) {
  const states = { paused: words.paused, scheduled: words.scheduled, closed: words.closed };
  const drawn = ticket.position !== null;
  const place = drawn ? number(ticket.position) : "?";
  notice(drawn ? states[ticket.room_state] ?? "" : words.drawn);
  say("place", place);
  part("place").classList.toggle("long", place.length > 6);
  say("ahead", drawn ? number(ticket.ahead) : "–");
  say("all", number(ticket.waiting));
  const wait = estimate(ticket.eta);
  say("estimate", wait);
  const percent = drawn ? line.progress(ticket) : 0;
  part("arc").setAttribute("stroke-dashoffset", String(100 - percent));
  part("ring").setAttribute("aria-valuenow", String(percent));
  part("ring").setAttribute("aria-valuetext", place);
  if (drawn) speak(`${words.place}: ${place}. ${words.estimate}: ${wait}`, { now: first });
}

function tellTurn(ticket) {
  const until = ticket.claim_by && new Date(ticket.claim_by);
  say("deadline", until ? fill(words.until, { time: new Intl.DateTimeFormat(language, { timeStyle: "medium" }).format(until) }) : "");
  show("countdown", Boolean(until));
  if (until) {
    const tick = () => say("countdown", clock(Math.max(0, until - Date.now())));
    tick();
    ticking = setInterval(tick, 1000);
  }
  part("token").value = ticket.token;
  const target = next();
  show("go", target !== null);
  part("way").action = target ?? "";
  part("handed").value = ticket.token;
  if (target === null) part("pass").open = true;
}

/** Where to go with the token: only a place on this same site, so that nobody is led elsewhere with it. */
function next() {
  const target = asked.get("next");
  if (!target?.startsWith("/")) return null;
  const url = new URL(target, location.origin);
  return url.origin === location.origin ? url.href : null;
}

function clock(millis) {
  const seconds = Math.ceil(millis / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

function span(seconds) {
  const [value, unit] = seconds < 5400 ? [Math.ceil(seconds / 60), "minute"] : [Math.ceil(seconds / 3600), "hour"];
  return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "long" }).format(value);
}

function estimate(eta) {
  if (!eta) return words.unknown;
  if (eta.high <= 60) return words.soon;
  const [low, high] = [span(Math.max(60, eta.low)), span(eta.high)];
  return low === high ? fill(words.about, { time: high }) : fill(words.eta, { low, high });
}

/** Whether to try again, after telling what is wrong; a visit whose ticket is void begins anew. */
function mend(error) {
  if (!(error instanceof Refused) || error.status >= 500 || error.status === 429) {
    show("live", false);
    notice(words.offline);
    speak(words.offline);
    return error.waitMs || RETRY_MS;
  }
  if ((error.status === 404 || error.status === 401) && line.me.ticket) {
    line.forget();
    return 1;
  }
  const said = { 404: words.missing, 409: error.code === "room_closed" ? words.closed : words.refused };
  for (const id of ["line", "turn", "leave", "live"]) show(id, false);
  notice("");
  say("hint", "");
  say("title", said[error.status] ?? words.refused);
  speak(said[error.status] ?? words.refused, { now: true });
  show("again", true);
  return 0;
}

async function attend() {
  show("again", false);
  for (;;) {
    try {
      const ticket = await line.join();
      tell(ticket);
      for await (const heard of line.news(ticket)) tell(heard);
      return;
    } catch (error) {
      if (line.stopped) return;
      const pause = mend(error);
      if (!pause) return;
      await new Promise((done) => setTimeout(done, pause * (0.8 + Math.random() * 0.4)));
    }
  }
}

document.documentElement.lang = language;
say("title", words.connecting);
for (const [id, text] of Object.entries({
  room, live: words.live, again: words.again, leave: words.leave, go: words.enter, copy: words.copy,
  "place-label": words.place, "ahead-label": words.ahead, "all-label": words.all,
  "estimate-label": words.estimate, "pass-label": words.token,
})) say(id, text);
part("token").setAttribute("aria-label", words.token);
part("leave").addEventListener("click", () => line.leave().catch(mend));
part("again").addEventListener("click", () => {
  line.forget();
  attend();
});
part("way").addEventListener("submit", (event) => {
  // Posted, or after the #, the token is in no log, no history of a server and no Referer.
  if (asked.get("handover") !== "fragment") return;
  event.preventDefault();
  const url = new URL(part("way").action);
  url.hash = new URLSearchParams({ token: part("handed").value }).toString();
  location.assign(url);
});
part("copy").addEventListener("click", async () => {
  part("token").select();
  if (navigator.clipboard) await navigator.clipboard.writeText(part("token").value);
  else document.execCommand("copy"); // a page that is not on https
  say("copy", words.copied);
  speak(words.copied, { now: true });
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) line.hurry(); // a phone may have slept through its turn
});
addEventListener("pagehide", () => line.stop());
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
attend();
