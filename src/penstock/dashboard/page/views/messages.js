// Messages: find them, look at one, act on many.

import { cancelMany, deleteMany, redriveMany, releaseMany, rescheduleMany } from "../actions.js";
import { get, messagePath, query } from "../api.js";
import { field } from "../dialog.js";
import { h, setText } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { onFigures } from "../live.js";
import { notice, noticePlace } from "../notice.js";
import { pill, showPill } from "../pill.js";
import { table } from "../table.js";
import { fromInput, moment, relative, toInput } from "../time.js";

export const title = "Messages";

const STATES = ["scheduled", "leased", "delivered", "dead", "blocked", "expired", "cancelled"];
const PAGE = 50;
const BULK = [
  ["Release…", releaseMany, "scheduled"], ["Reschedule…", rescheduleMany, "scheduled"],
  ["Cancel…", cancelMany, "scheduled"], ["Redrive…", redriveMany, "dead"], ["Delete…", deleteMany, "dead"],
];

export function mount(root, { search }) {
  const where = Object.fromEntries(search);
  const trouble = noticePlace();
  const found = resultTable();
  const more = h("button", { type: "button", hidden: true, onclick: () => load(next) }, "More");
  const said = h("p.soft", { role: "status" });
  let items = [];
  let next = null;
  let abort = new AbortController();

  async function load(cursor = null) {
    abort.abort();
    abort = new AbortController();
    try {
      const page = await get(`v1/messages${query({ ...where, cursor, limit: PAGE })}`, abort.signal);
      items = cursor ? [...items, ...page.items] : page.items;
      next = page.next;
      notice(trouble, null);
      found.update(items);
      setText(said, items.length ? `${items.length} shown${next ? ", there are more" : ""}` : "");
      more.hidden = !next;
    } catch (error) {
      if (error.name !== "AbortError") notice(trouble, error);
    }
  }

  const form = filterForm(where);
  root.append(
    h("div.head", {}, h("h1", {}, title)),
    byId(),
    form.node,
    h("section.card", { "aria-label": "Results" },
      h("div.head", {}, said, bulkButtons(where, () => load())),
      trouble, found.node, h("div.buttons", {}, more)));
  load();
  const stop = onFigures(form.offer);
  return () => { abort.abort(); stop(); };
}

/** An id is looked up directly: it need not be in any list. */
function byId() {
  const input = h("input", { name: "id", class: "mono", required: true, autocomplete: "off", spellcheck: "false" });
  const trouble = noticePlace();
  return h("form.card.row", {
    role: "search",
    async onsubmit(event) {
      event.preventDefault();
      const id = input.value.trim();
      try {
        await get(messagePath(id));
        location.hash = `#/message/${encodeURIComponent(id)}`;
      } catch (error) {
        notice(trouble, error.status === 404 ? new Error(`There is no message with the id ${id}.`) : error);
      }
    },
  }, field("Find by id", input), h("button.primary", { type: "submit" }, "Find"), trouble);
}

function filterForm(where) {
  const inputs = {
    state: select("state", STATES, where.state),
    route: select("route", where.route ? [where.route] : [], where.route),
    key: h("input", { name: "key", value: where.key, autocomplete: "off" }),
    due_from: h("input", { name: "due_from", type: "datetime-local", step: 1, value: toInput(where.due_from) }),
    due_to: h("input", { name: "due_to", type: "datetime-local", step: 1, value: toInput(where.due_to) }),
    error: h("input", { name: "error", value: where.error, autocomplete: "off" }),
  };
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.type === "datetime-local" ? fromInput(input.value) : input.value]));
    const hash = `#/messages${query(given)}`;
    if (hash === location.hash) dispatchEvent(new HashChangeEvent("hashchange")); // the same again: look anew
    else location.hash = hash;
  };
  /** Routes become known with the figures. */
  const offer = (stats) => {
    const offered = new Set([...inputs.route.options].map((option) => option.value));
    inputs.route.append(...Object.keys(stats.routes).filter((name) => !offered.has(name)).map((name) => h("option", { value: name }, name)));
  };
  const node = h("form.card.filters", { onsubmit: submit, "aria-label": "Filter" },
    field("State", inputs.state), field("Route", inputs.route), field("Key", inputs.key),
    field("Due from", inputs.due_from), field("Due before", inputs.due_to), field("Error contains", inputs.error),
    h("div.buttons", {}, h("a.button.plain", { href: "#/messages" }, "Clear"), h("button.primary", { type: "submit" }, "Search")));
  return { node, offer };
}

function select(name, options, chosen) {
  return h("select", { name }, h("option", { value: "" }, "any"), options.map((option) => h("option", { value: option, selected: option === chosen }, option)));
}

function bulkButtons(where, done) {
  const { limit, cursor, ...filter } = where;
  return h("div.buttons", { role: "group", "aria-label": "Act on everything that matches" }, h("span.soft", {}, "All that match:"),
    BULK.map(([label, act, state]) => {
      const fits = !filter.state || filter.state === state;
      return h(label.startsWith("Cancel") ? "button.danger" : "button", {
        type: "button",
        disabled: !fits,
        title: fits ? undefined : `Only for messages in state ${state}`,
        onclick: async () => { if (await act(filter)) done(); },
      }, label);
    }));
}

function resultTable() {
  return table({
    caption: "Messages in order of due",
    key: (message) => message.id,
    empty: lesson("No message matches. Schedule one:", curl("POST", "v1/messages", { id: "order-42", payload: { order: 42 }, delay: "1h" })),
    columns: [
      {
        label: "Id", class: "mono id",
        make: () => h("a"),
        update(node, message) {
          setText(node, message.id);
          node.href = `#/message/${encodeURIComponent(message.id)}`;
        },
      },
      { label: "State", make: () => pill(""), update: (node, message) => showPill(node, message.state) },
      { label: "Route", class: "roomy", text: (message) => message.route },
      { label: "Key", wide: true, class: "mono id", text: (message) => message.key },
      {
        label: "Due",
        make: () => h("time"),
        update(node, message) {
          node.dateTime = message.due;
          node.title = message.due;
          setText(node, `${moment(message.due)} · ${relative(message.due)}`);
        },
      },
      { label: "Attempt", number: true, wide: true, text: (message) => String(message.attempt) },
      { label: "Last error", wide: true, class: "clip", text: (message) => message.last_error ?? "" },
    ],
  });
}
