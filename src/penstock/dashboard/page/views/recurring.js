// Recurring rules: when each fires next, what became of its last moments, and how busy the coming week is.

import { get, post } from "../api.js";
import { ask } from "../dialog.js";
import { h, setAttribute, setText } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { noticePlace, toast } from "../notice.js";
import { count, millis } from "../numbers.js";
import { pill, showPill } from "../pill.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { axisDay, moment } from "../time.js";

export const title = "Recurring";

const SECONDS = 5;
const MOST = 200;
const path = (rule) => `v1/recurring/${encodeURIComponent(rule.id)}`;

export function mount(root, { path: chosen }) {
  const trouble = noticePlace();
  const rules = ruleTable(() => asking.now());
  const more = h("p.soft", { hidden: true });
  const detail = h("section.card", { hidden: true });
  const calendar = h("section.card", { hidden: true });
  root.append(h("div.head", {}, h("h1", {}, title)), trouble, h("section.card", {}, rules.node, more), detail, calendar);
  const asking = poll(SECONDS, trouble, async (signal) => {
    const page = await get(`v1/recurring?limit=${MOST}`, signal);
    rules.update(page.items);
    more.hidden = page.next === null;
    setText(more, `The first ${MOST} rules, by id.`);
    if (chosen) showRule(detail, await get(path({ id: chosen }), signal));
    showLoad(calendar, await get("v1/forecast", signal));
  });
  return () => asking.stop();
}

function ruleTable(done) {
  const button = (word, read, act) => h("button.plain", { type: "button", onclick: async () => { if (await act(read())) done(); } }, word);
  return table({
    caption: "Recurring rules",
    key: (rule) => rule.id,
    empty: lesson("No recurring rules. One that fires every weekday at nine:",
      curl("PUT", "v1/recurring/daily-report", { cron: "0 9 * * mon-fri", zone: "Europe/Berlin", payload: { report: "daily" } })),
    columns: [
      {
        label: "Rule",
        make: () => h("div.two", {}, h("a"), h("span.soft")),
        update(node, rule) {
          setText(node.firstChild, rule.id);
          setAttribute(node.firstChild, "href", `#/recurring/${encodeURIComponent(rule.id)}`);
          setText(node.lastChild, rule.words);
        },
      },
      { label: "State", make: () => pill(""), update: showState },
      { label: "Route", wide: true, text: (rule) => rule.route },
      { label: "Next", class: "line", text: (rule) => (rule.next.length ? moment(rule.next[0]) : "–") },
      { label: "Planted", number: true, text: (rule) => count(rule.planted) },
      { label: "Missed", number: true, wide: true, text: (rule) => count(rule.missed) },
      { label: "Skipped", number: true, wide: true, text: (rule) => count(rule.skipped) },
      { label: "", class: "act", make: (read) => button("Trigger", read, trigger), update: (node, rule) => node.setAttribute("aria-label", `Trigger ${rule.id}`) },
      {
        label: "", class: "act",
        make: (read) => button("Pause", read, pause),
        update(node, rule) {
          setText(node, rule.paused ? "Resume" : "Pause");
          node.setAttribute("aria-label", `${node.textContent} ${rule.id}`);
        },
      },
    ],
  });
}

function showState(node, rule) {
  showPill(node, rule.state);
  setAttribute(node, "title", rule.error);
}

const trigger = (rule) => ask({
  title: "Trigger this rule now?",
  prepare: async () => ({
    text: `1 message of ${rule.id} is put, due now; its moments stay as they are.`,
    confirm: "Trigger 1 message",
    act: async () => toast(`Triggered: ${(await post(`${path(rule)}/trigger`)).id}.`),
  }),
});

function pause(rule) {
  const word = rule.paused ? "resume" : "pause";
  const says = rule.paused ? "Moments that passed meanwhile are not made up for." : "It puts no messages until it is resumed.";
  return ask({
    title: rule.paused ? "Resume this rule?" : "Pause this rule?",
    prepare: async () => ({
      text: `${rule.id}: ${rule.words}. ${says}`,
      confirm: rule.paused ? "Resume the rule" : "Pause the rule",
      act: async () => {
        await post(`${path(rule)}/${word}`);
        toast(`${rule.id} is ${word}d.`);
      },
    }),
  });
}

/** The next five moments and the last ten. */
function showRule(node, rule) {
  const last = table({
    caption: "The last moments",
    key: (one) => `${one.at} ${one.what}`,
    empty: h("p.soft", {}, "No moment has come yet."),
    columns: [
      { label: "Moment", class: "line", text: (one) => moment(one.at) },
      { label: "What", text: (one) => one.what },
      {
        label: "Message",
        make: () => h("a.mono"),
        update(link, one) {
          setText(link, one.id ?? "–");
          setAttribute(link, "href", one.id ? `#/message/${encodeURIComponent(one.id)}` : null);
        },
      },
      { label: "State", make: () => pill(""), update: (state, one) => showPill(state, one.state ?? "–") },
      { label: "Late", number: true, text: (one) => (one.late === null ? "–" : millis(one.late)) },
    ],
  });
  last.update(rule.last);
  const next = rule.next.map((at) => h("li", {}, moment(at)));
  const error = rule.error ? [h("p.trouble", {}, rule.error)] : [];
  node.replaceChildren(
    h("h2", {}, rule.id), h("p", {}, rule.words), ...error,
    h("h3", {}, "Next"), next.length ? h("ol", {}, next) : h("p.soft", {}, "None."), h("h3", {}, "Last"), last.node);
  node.hidden = false;
}

/** A row a day, a cell an hour of the wall clock: the more is due then, the darker. */
function showLoad(node, forecast) {
  const days = new Map();
  for (const { from, routes } of forecast.hours) {
    const sum = Object.values(routes).reduce((total, number) => total + number, 0);
    const day = axisDay(Date.parse(from) / 1000);
    if (!days.has(day)) days.set(day, Array(24).fill(null));
    days.get(day)[new Date(from).getHours()] += sum;
  }
  const most = Math.max(1, ...[...days.values()].flat());
  node.replaceChildren(h("h2", {}, "The coming week, hour by hour"), ...[...days].map(([day, sums]) => h("div.calendar", {},
    h("span.soft", {}, day), sums.map((sum, hour) => loadCell(hour, sum, most)))));
  node.hidden = false;
}

/** Hours that are over, or that the clock jumps over, keep their place. */
function loadCell(hour, sum, most) {
  if (sum === null) return h("i.none");
  const words = `${hour}:00: ${count(sum)}`;
  const cell = h("i", { role: "img", title: words, "aria-label": words });
  cell.style.opacity = sum ? 0.15 + 0.85 * (sum / most) : 0.05;
  return cell;
}
