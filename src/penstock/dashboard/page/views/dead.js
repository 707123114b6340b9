// Dead letters, grouped by what went wrong: thousands of them are usually a handful of reasons.

import { deleteMany, redriveMany } from "../actions.js";
import { get, query } from "../api.js";
import { h, setText } from "../dom.js";
import { lesson } from "../empty.js";
import { noticePlace } from "../notice.js";
import { count } from "../numbers.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { moment, relative } from "../time.js";

export const title = "Dead letters";

const SECONDS = 5;

export function mount(root) {
  const trouble = noticePlace();
  const truncated = h("p.soft", { hidden: true }, "There are more groups than are shown: the biggest are here.");
  const folded = h("p.soft", { hidden: true }, "# stands for numbers and ids, which differ from message to message.");
  const groups = groupTable(() => asking.now());
  const all = (label, action) => h("button", { type: "button", onclick: async () => { if (await action({})) asking.now(); } }, label);
  root.append(
    h("div.head", {}, h("h1", {}, title), h("div.buttons", {}, all("Redrive all…", redriveMany), all("Delete all…", deleteMany))),
    trouble, h("section.card", {}, groups.node, folded, truncated));
  const asking = poll(SECONDS, trouble, async (signal) => {
    const found = await get("v1/dead/groups", signal);
    groups.update(found.items);
    truncated.hidden = !found.truncated;
    folded.hidden = !found.items.some((group) => group.error.includes("#"));
  });
  return () => asking.stop();
}

/** What finds a group again: numbers and ids are folded in its text, so that it comes with a literal
 *  piece to look for. That may find more; the question before something is done says how many. */
const filterOf = (group) => ({ state: "dead", route: group.route, ...(group.match ? { error: group.match } : {}) });

function groupTable(done) {
  return table({
    caption: "Groups of dead letters, the biggest first",
    key: (group) => `${group.route}\n${group.error}`,
    empty: lesson("No dead letters. Messages come here when their attempts are used up or their sink refuses them for good; nothing is dropped silently."),
    columns: [
      { label: "Error", class: "error", text: (group) => group.error },
      { label: "Route", text: (group) => group.route },
      { label: "Messages", number: true, text: (group) => count(group.count) },
      { label: "Newest", class: "roomy", make: () => h("time"), update: (node, group) => showTime(node, group.newest) },
      { label: "Oldest", wide: true, make: () => h("time"), update: (node, group) => showTime(node, group.oldest) },
      {
        label: "Example", wide: true, class: "mono id short",
        make: () => h("a"),
        update(node, group) {
          setText(node, group.example_id);
          node.href = `#/message/${encodeURIComponent(group.example_id)}`;
        },
      },
      {
        label: "", class: "act",
        make: (read) => h("div.buttons", {},
          h("a.button.plain", {}, "See them"),
          h("button", { type: "button", onclick: async () => { if (await redriveMany(filterOf(read()), "Redrive this group")) done(); } }, "Redrive…"),
          h("button", { type: "button", onclick: async () => { if (await deleteMany(filterOf(read()), "Delete this group")) done(); } }, "Delete…")),
        update(node, group) {
          const [see, redrive, remove] = node.children;
          see.href = `#/messages${query(filterOf(group))}`;
          see.setAttribute("aria-label", `See messages: ${group.error}`);
          redrive.setAttribute("aria-label", `Redrive: ${group.error}`);
          remove.setAttribute("aria-label", `Delete: ${group.error}`);
        },
      },
    ],
  });
}

function showTime(node, text) {
  node.dateTime = text;
  node.title = `${moment(text)} (${text})`;
  setText(node, relative(text));
}
