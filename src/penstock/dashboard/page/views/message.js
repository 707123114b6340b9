// One message: what it is, what became of it and why, and what can still be done.

import { cancelOne, deleteOne, redriveOne, releaseOne, rescheduleOne } from "../actions.js";
import { get, messagePath } from "../api.js";
import { facts, h } from "../dom.js";
import { noticePlace } from "../notice.js";
import { pill } from "../pill.js";
import { poll } from "../poll.js";
import { timeOf } from "../time.js";

export const title = "Message";
export const under = "messages";

const SECONDS = 2;
const ACTIONS = {
  scheduled: [["Release now…", releaseOne], ["Reschedule…", rescheduleOne], ["Cancel…", cancelOne]],
  leased: [["Cancel…", cancelOne]],
  dead: [["Redrive…", redriveOne], ["Delete…", deleteOne]],
};
const BAD = new Set(["dead", "retry", "blocked", "expired", "lost"]);

export function mount(root, { path: id }) {
  const trouble = noticePlace();
  const body = h("div");
  root.append(
    h("p", {}, h("a", { href: "#/messages" }, "← Messages")),
    h("div.head", {}, h("h1.mono.id", {}, id)), trouble, body);
  let shown = "";

  const asking = poll(SECONDS, trouble, async (signal) => {
    const message = await get(messagePath(id), signal);
    const text = JSON.stringify(message);
    if (text === shown) return; // nothing new: focus and selection stay
    shown = text;
    const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
    body.replaceChildren(...parts(message, () => asking.now()));
    [...body.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  });
  return () => asking.stop();
}

function parts(message, again) {
  const act = (action) => async () => { if (await action(message.id)) again(); };
  const buttons = (ACTIONS[message.state] ?? []).map(([label, action]) => h(/^(Cancel|Delete)/.test(label) ? "button.danger" : "button", { type: "button", onclick: act(action) }, label));
  return [
    h("section.card.summary", { "aria-label": "Summary" },
      h("div.head", {}, h("p", {}, pill(message.state), message.cancel_pending ? " cancel asked: it will not go out again" : ""), h("div.buttons", {}, buttons)),
      facts([
        ["Route", message.route], ["Key", h("span.mono", {}, message.key)], ["Due", timeOf(message.due, { both: true })],
        ["Expires", message.expires && timeOf(message.expires)], ["Attempt", String(message.attempt)], ["Priority", String(message.priority)],
        ["Created", timeOf(message.created)], ["Settled", message.settled && timeOf(message.settled)], ["Version", String(message.version)],
        ["Topic", message.topic], ["Labels", labels(message.labels)],
        ["Verdict", message.verdict && h("span", {}, pill(message.verdict), message.reason ? ` ${message.reason.policy}: ${message.reason.detail}` : "")],
      ]),
      message.last_error ? h("p.error-text", {}, message.last_error) : null),
    h("div.columns", {},
      h("section.card", {}, h("h2", {}, "Timeline"), timeline(message.timeline ?? [])),
      h("section.card", {}, h("h2", {}, "Payload"), h("p.soft", {}, message.content_type),
        h("pre", { tabindex: 0, "aria-label": "Payload" }, payload(message)),
        h("h2", {}, "Headers"), headers(message.headers))),
  ];
}

function labels(given) {
  return Object.entries(given).filter(([, value]) => value && value.length !== 0).map(([name, value]) => `${name} ${[value].flat().join(", ")}`).join(" · ");
}

function timeline(events) {
  if (!events.length) return h("p.soft", {}, "Nothing has happened to it yet.");
  return h("ol.timeline", {}, events.map((event) => h("li", { "data-bad": BAD.has(event.event) },
    h("p", {}, h("b", {}, event.event.replaceAll("_", " ")), event.attempt ? h("span.soft", {}, ` attempt ${event.attempt}`) : null, " ", timeOf(event.at)),
    event.detail ? h("p.detail", {}, event.detail) : null)));
}

function payload(message) {
  if (message.payload !== undefined) return JSON.stringify(message.payload, null, 2);
  if (message.payload_base64 === undefined) return "(not kept any more)";
  return message.payload_base64 || "(empty)";
}

function headers(given) {
  const pairs = Object.entries(given);
  return pairs.length ? facts(pairs.map(([name, value]) => [name, h("span.mono", {}, value)])) : h("p.soft", {}, "None.");
}
