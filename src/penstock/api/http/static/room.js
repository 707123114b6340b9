// The visitor's page: line up once, keep the place, say when it is the visitor's turn.
import { WORDS, choose } from "./room-words.js";

const language = choose(navigator.languages ?? [navigator.language]);
const words = WORDS[language];
const room = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const api = `/v1/rooms/${encodeURIComponent(room)}`;
const asked = new URLSearchParams(location.search);
const kept = `penstock-room:${room}`;
const ENDED = new Set(["LEFT", "EXPIRED", "REVOKED"]);
const RETRY_MS = 3000;

const part = (id) => document.getElementById(id);
const say = (id, text) => {
  if (part(id).textContent !== text) part(id).textContent = text;
};
const show = (id, on) => {
  part(id).hidden = !on;
};
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const number = (value) => new Intl.NumberFormat(language).format(value);

let me = remembered();
let first = null;
let timer = 0;

function remembered() {
  try {
    const found = JSON.parse(localStorage.getItem(kept) ?? "null");
    if (found?.user && (!asked.get("user") || asked.get("user") === found.user)) return found;
  } catch {
    // storage is off: the place lasts as long as the page
  }
  return { user: asked.get("user") ?? crypto.randomUUID?.() ?? `v-${Date.now()}-${Math.random()}`, ticket: null };
}

function remember() {
  try {
    localStorage.setItem(kept, JSON.stringify(me));
  } catch {
    // see remembered()
  }
}

async function call(method, path, body) {
  const headers = me.ticket ? { "x-ticket": me.ticket } : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(value.error?.message ?? ""), { status: answer.status });
  return value;
}

async function join() {
  const ticket = await call("POST", "/join", { user: me.user });
  if (ticket.ticket) me.ticket = ticket.ticket;
  remember();
  return ticket;
}

const look = () => call("GET", `/tickets/${encodeURIComponent(me.user)}`);

async function step(how) {
  clearTimeout(timer);
  try {
    tell(await how());
  } catch (error) {
    failed(error);
  }
}

function again(millis) {
  // A little apart, so that a crowd does not ask all at once.
  timer = setTimeout(() => step(look), millis * (0.9 + Math.random() * 0.2));
}

function failed(error) {
  if (error.status === 404 && me.ticket) {
    me.ticket = null;
    first = null;
    step(join);
    return;
  }
  if (error.status && error.status < 500 && error.status !== 429) {
    show("line", false);
    say("title", error.status === 404 ? words.missing : error.status === 409 ? words.closed : words.refused);
    return;
  }
  say("news", words.offline);
  timer = setTimeout(() => step(me.ticket ? look : join), RETRY_MS);
}

function span(seconds) {
  const [value, unit] = seconds < 3600 ? [Math.ceil(seconds / 60), "minute"] : [Math.ceil(seconds / 3600), "hour"];
  return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "long" }).format(value);
}

function estimate(eta) {
  if (!eta) return words.unknown;
  if (eta.high <= 60) return words.soon;
  return fill(words.eta, { low: span(Math.max(60, eta.low)), high: span(eta.high) });
}

function tell(ticket) {
  const waiting = ticket.state === "WAITING";
  const turn = ticket.state === "ADMITTED";
  const ended = ENDED.has(ticket.state);
  const titles = { WAITING: words.waiting, ADMITTED: words.turn, ENTERED: words.inside, LEFT: words.left, EXPIRED: words.expired, REVOKED: words.revoked };
  say("title", titles[ticket.state]);
  document.title = waiting && ticket.position ? `${number(ticket.position)} · ${words.waiting}` : titles[ticket.state];
  show("line", waiting);
  show("turn", turn);
  show("leave", waiting || turn);
  show("again", ended);
  say("hint", waiting ? words.hint : "");
  if (waiting) tellPlace(ticket);
  else say("news", titles[ticket.state]);
  if (turn) tellTurn(ticket);
  if (!ended) again(turn ? Math.max(ticket.poll_after_ms, 2000) : ticket.poll_after_ms);
}

function tellPlace(ticket) {
  const states = { paused: words.paused, scheduled: words.scheduled, closed: words.closed };
  say("news", states[ticket.room_state] ?? "");
  if (ticket.position === null) {
    say("place", "…");
    say("progress-label", words.drawn);
    part("progress").removeAttribute("value");
  } else {
    first = Math.max(first ?? ticket.position, ticket.position);
    say("place", number(ticket.position));
    part("progress").value = Math.round((100 * (first - ticket.ahead)) / (first + 1));
    say("progress-label", fill(words.of, { ahead: number(ticket.ahead), waiting: number(ticket.waiting) }));
  }
  say("estimate", estimate(ticket.eta));
}

function tellTurn(ticket) {
  const by = ticket.claim_by && new Intl.DateTimeFormat(language, { timeStyle: "medium" }).format(new Date(ticket.claim_by));
  say("deadline", by ? fill(words.until, { time: by }) : "");
  say("token-label", words.token);
  part("token").value = ticket.token;
  const target = asked.get("next");
  // Only a place on this same site, so that nobody is led elsewhere with a token.
  if (target?.startsWith("/") && !target.startsWith("//") && !target.startsWith("/\\")) {
    const url = new URL(target, location.origin);
    if (url.origin === location.origin) {
      url.searchParams.set("token", ticket.token);
      part("go").href = url.href;
      say("go", words.enter);
      show("go", true);
    }
  }
}

document.documentElement.lang = language;
say("room", room);
say("place-label", words.place);
say("again", words.again);
say("leave", words.leave);
part("token").setAttribute("aria-label", words.token);
part("leave").addEventListener("click", () => step(async () => {
  await call("DELETE", `/tickets/${encodeURIComponent(me.user)}`);
  return look();
}));
part("again").addEventListener("click", () => {
  first = null;
  step(join);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && me.ticket) step(look);
});
step(join);
