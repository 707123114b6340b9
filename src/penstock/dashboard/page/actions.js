// What can be done to messages and routes: one at a time or by filter, never without a question
// that says how many.

import { messagePath, post, send } from "./api.js";
import { ask, field } from "./dialog.js";
import { h } from "./dom.js";
import { toast } from "./notice.js";
import { messages } from "./numbers.js";
import { fromInput, moment } from "./time.js";

// --- one message

const one = (title, id, text, confirm, call, { danger = false } = {}) => ask({
  title,
  danger,
  prepare: async () => ({
    text: `1 message: ${id}. ${text}`,
    confirm,
    act: async () => {
      await call();
      toast(`${confirm}: done for ${id}.`);
    },
  }),
});

export const cancelOne = (id) => one("Cancel this message?", id, "It will not be sent.", "Cancel 1 message",
  () => send("DELETE", `${messagePath(id)}?state=scheduled`), { danger: true });

/** It leaves nothing to look at: on to the other dead letters. */
export const deleteOne = (id) => one("Delete this dead message?", id, "The message and its timeline are removed.", "Delete 1 message",
  async () => {
    await send("DELETE", `${messagePath(id)}?state=dead`);
    location.hash = "#/dead";
  }, { danger: true });

export const releaseOne = (id) => one("Release this message now?", id, "It becomes due at once.", "Release 1 message",
  () => post(`${messagePath(id)}/release`));

export const redriveOne = (id) => one("Redrive this message?", id, "It is sent again, counting from its first attempt.", "Redrive 1 message",
  () => post(`${messagePath(id)}/redrive`));

export function rescheduleOne(id) {
  const when = whenFields();
  return ask({
    title: "Reschedule this message",
    fields: when.fields,
    prepare: async () => ({
      text: `1 message: ${id}. It becomes due ${when.words()}.`,
      confirm: "Reschedule 1 message",
      act: async () => {
        await send("PATCH", messagePath(id), when.value());
        toast(`Reschedule 1 message: done for ${id}.`);
      },
    }),
  });
}

// --- by filter: the server counts first (dry_run), then does it

function bulk({ title, path, filter, what, verb, note = "", fields = [], more = () => ({}), danger = false }) {
  return ask({
    title,
    danger,
    fields,
    prepare: async (signal) => {
      const { matched } = await post(path, { filter, ...more(), dry_run: true }, signal);
      if (!matched) return { text: `0 messages: nothing ${what} matches ${words(filter)}.` };
      return {
        text: `${messages(matched)} ${what}, ${words(filter)}. ${note}`,
        confirm: `${verb} ${messages(matched)}`,
        act: async (running) => {
          const { done } = await post(path, { filter, ...more() }, running);
          toast(`${verb}: done for ${messages(done)}.`);
        },
      };
    },
  });
}

export const cancelMany = (filter) => bulk({
  title: "Cancel in bulk", path: "v1/messages/cancel", filter, what: "scheduled", verb: "Cancel",
  note: "They will not be sent.", danger: true,
});

export const releaseMany = (filter) => bulk({
  title: "Release in bulk", path: "v1/messages/release", filter, what: "not due yet", verb: "Release",
  note: "They become due at once.", danger: true,
});

export function rescheduleMany(filter) {
  const when = whenFields();
  return bulk({
    title: "Reschedule in bulk", path: "v1/messages/reschedule", filter, what: "scheduled", verb: "Reschedule",
    note: "They become due together.", fields: when.fields, more: when.value,
  });
}

export function redriveMany(filter, title = "Redrive dead letters") {
  const rate = h("input", { name: "rate", placeholder: "all at once", pattern: "[1-9][0-9]*/(s|m|h)", autocomplete: "off" });
  return bulk({
    title, path: "v1/dead/redrive", filter, what: "dead", verb: "Redrive", note: "They are sent again.",
    fields: [field("How fast", rate, "such as 100/s or 30/m")],
    more: () => (rate.value ? { rate: rate.value } : {}),
  });
}

export const deleteMany = (filter, title = "Delete dead letters") => bulk({
  title, path: "v1/dead/delete", filter, what: "dead", verb: "Delete", note: "The messages and their timelines are removed.", danger: true,
});

/** A filter in words; its state is said already. */
function words({ route, key, due_from: from, due_to: to, error }) {
  const parts = [
    route && `on route ${route}`, key && `with key ${key}`,
    from && `due from ${moment(from)}`, to && `due before ${moment(to)}`, error && `with an error like “${error}”`,
  ].filter(Boolean);
  return parts.length ? parts.join(", ") : "without any filter";
}

// --- routes and rooms

export function pause(kind, name, paused) {
  const verb = paused ? "Pause" : "Resume";
  const meaning = paused
    ? { routes: "None of its messages are sent until it is resumed; messages are still accepted.", rooms: "No visitor is admitted until it is resumed; visitors may still join." }
    : { routes: "Its overdue messages are sent at once.", rooms: "Visitors are admitted again." };
  const thing = kind === "routes" ? "route" : "room";
  return ask({
    title: `${verb} ${thing} ${name}?`,
    danger: paused,
    prepare: async () => ({
      text: `1 ${thing}: ${name}. ${meaning[kind]}`,
      confirm: `${verb} 1 ${thing}`,
      act: async () => {
        await post(`v1/${kind}/${encodeURIComponent(name)}/${verb.toLowerCase()}`);
        toast(`${name} is ${paused ? "paused" : "running again"}.`);
      },
    }),
  });
}

// --- a moment: in some time, or at some time

function whenFields() {
  const delay = h("input", { name: "delay", value: "15m", autocomplete: "off" });
  const at = h("input", { name: "at", type: "datetime-local", step: 1 });
  return {
    fields: [
      field("In", delay, "such as 90s, 15m, 2h, 3d"),
      field("or at", at, "your own time zone; this one wins when it is filled in"),
    ],
    value: () => (at.value ? { at: fromInput(at.value) } : { delay: delay.value }),
    words: () => (at.value ? `at ${moment(fromInput(at.value))}` : `in ${delay.value}`),
  };
}
