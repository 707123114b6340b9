// Waiting rooms: who waits, who is inside, and how fast the line moves.

import { pause } from "../actions.js";
import { address, get } from "../api.js";
import { chart } from "../chart.js";
import { facts, h, setText } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { noticePlace } from "../notice.js";
import { compact, count, rate } from "../numbers.js";
import { pill, showPill } from "../pill.js";
import { poll } from "../poll.js";

export const title = "Waiting rooms";

const SECONDS = 2;
const MOST = 50;
const WINDOW = 900;
/** Room → its curves: what the server remembers, and what this page has seen since. */
const curves = new Map();

export function mount(root) {
  const trouble = noticePlace();
  const place = h("div.rooms");
  const empty = h("div.card", { hidden: true }, lesson(
    "No rooms. One for a sale that lets in a thousand people, two hundred a second at most:",
    curl("PUT", "v1/rooms/sale", { capacity: 1000, admit_rate: "200/s", claim_ttl: "2m" })));
  root.append(h("div.head", {}, h("h1", {}, title)), trouble, empty, place);
  const cards = new Map();
  let remembered = false;

  const asking = poll(SECONDS, trouble, async (signal) => {
    if (!remembered) {
      remember(await get("v1/history/rooms", signal));
      remembered = true;
    }
    const { items: rooms } = await get(`v1/rooms?limit=${MOST}`, signal);
    empty.hidden = rooms.length > 0;
    for (const [name, card] of cards) {
      if (rooms.some((room) => room.room === name)) continue;
      card.node.remove();
      card.destroy();
      cards.delete(name);
    }
    for (const room of rooms) {
      keep(room);
      if (!cards.has(room.room)) {
        const card = roomCard(room.room, () => asking.now());
        cards.set(room.room, card);
        place.append(card.node);
      }
      cards.get(room.room).draw(room);
    }
  });
  return () => {
    asking.stop();
    for (const card of cards.values()) card.destroy();
  };
}

const inside = (room) => room.admitted + room.entered;

/** With every opening of the view the server's looks take the place of this page's own, up to its last. */
function remember({ from, step, rooms }) {
  const start = Date.parse(from) / 1000;
  for (const [name, told] of Object.entries(rooms)) {
    const times = told.waiting.map((_, i) => start + i * step);
    const seen = curves.get(name) ?? { times: [], waiting: [], inside: [], capacity: [] };
    const later = seen.times.findIndex((second) => second > times.at(-1));
    const after = (own) => (later < 0 ? [] : own.slice(later));
    curves.set(name, {
      times: [...times, ...after(seen.times)],
      waiting: [...told.waiting, ...after(seen.waiting)],
      inside: [...told.inside, ...after(seen.inside)],
      capacity: [...told.capacity, ...after(seen.capacity)],
    });
  }
}

function keep(room) {
  const kept = curves.get(room.room) ?? { times: [], waiting: [], inside: [], capacity: [] };
  const now = Date.now() / 1000;
  kept.times.push(Math.max(now, kept.times.at(-1) ?? 0)); // the server's clock may be a little ahead
  kept.waiting.push(room.waiting);
  kept.inside.push(inside(room));
  kept.capacity.push(room.capacity);
  while (kept.times[0] < now - WINDOW) for (const column of Object.values(kept)) column.shift();
  curves.set(room.room, kept);
}

function roomCard(name, again) {
  const state = pill("");
  const button = h("button.plain", { type: "button" });
  const figures = h("div.numbers");
  const settings = h("div");
  const drawn = chart({
    title: `${name}: the line and the room`,
    format: count,
    axis: compact,
    height: 11,
    series: [{ label: "waiting", hue: "pending", fill: true }, { label: "inside", hue: "delivered" }, { label: "capacity", hue: "edge" }],
  });
  const node = h("section.card.room", { "aria-label": `Room ${name}` },
    h("div.head", {}, h("h2", {}, name), state, h("span.grow"),
      h("a.button.plain", { href: address(`rooms/${encodeURIComponent(name)}`) }, "Visitor’s page"), button),
    figures, drawn.node, settings);
  let paused = false;
  button.addEventListener("click", async () => { if (await pause("rooms", name, !paused)) again(); });
  return {
    node,
    destroy: drawn.destroy,
    draw(room) {
      paused = room.state === "paused";
      showPill(state, room.state);
      setText(button, paused ? "Resume" : "Pause");
      button.setAttribute("aria-label", `${button.textContent} ${name}`);
      figures.replaceChildren(...numbers(room));
      settings.replaceChildren(facts([
        ["Admits", room.admit_rate ?? "as slots come free"], ["To claim", room.claim_ttl], ["Session", room.session_ttl],
        ["Opens", room.opens_at], ["Order", room.lottery ? "by lot" : "first come, first in"],
      ]));
      const kept = curves.get(name);
      const last = kept.times.at(-1);
      drawn.draw([kept.times, kept.waiting, kept.inside, kept.capacity], [Math.max(last - WINDOW, Math.min(kept.times[0], last - 60)), last]);
    },
  };
}

function numbers(room) {
  const pairs = [
    ["Waiting", room.waiting], ["Admitted", room.admitted], ["Entered", room.entered],
    ["Left", room.left_total], ["Expired", room.expired_total], ["Joined", room.joined_total],
  ];
  return [
    ...pairs.map(([label, number]) => h("p", {}, h("b.figure", {}, count(number)), h("span.soft", {}, label))),
    h("p", {}, h("b.figure", {}, rate(room.promoted_a_minute)), h("span.soft", {}, "let in per minute")),
  ];
}
