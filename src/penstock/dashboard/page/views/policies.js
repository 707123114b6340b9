// Policies: what may go out, and how often each rule was the one that decided.

import { get } from "../api.js";
import { h, setText } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { figures, onFigures } from "../live.js";
import { noticePlace } from "../notice.js";
import { count } from "../numbers.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Policies";

const SECONDS = 10;
const VERDICTS = ["allowed", "deferred", "blocked", "shadowed"];

export function mount(root) {
  const trouble = noticePlace();
  const policies = policyTable();
  const lists = suppressionTable();
  root.append(
    h("div.head", {}, h("h1", {}, title)), trouble,
    h("section.card", {}, policies.node),
    h("section.card", {}, h("h2", {}, "Suppression lists"), lists.node));
  let known = null;
  const draw = () => {
    if (known) policies.update(known.map((policy) => ({ policy, bound: figures.stats?.policies[policy.id] ?? {} })));
  };
  const asking = poll(SECONDS, trouble, async (signal) => {
    known = (await get("v1/policies", signal)).items;
    draw();
    lists.update((await get("v1/suppressions", signal)).items);
  });
  const stop = onFigures(draw);
  return () => { asking.stop(); stop(); };
}

function policyTable() {
  const bound = (verdict) => ({ label: verdict[0].toUpperCase() + verdict.slice(1), number: true, text: (row) => count(row.bound[verdict] ?? 0) });
  return table({
    caption: "Policies, and how often each was the binding one",
    key: (row) => row.policy.id,
    empty: lesson("No policies: everything goes out when it is due. Three a day and person, for instance:",
      curl("PUT", "v1/policies/three-a-day", { kind: "cap", scope: ["key"], limit: 3, window: "24h", on_exceed: "DEFER" })),
    columns: [
      { label: "Policy", text: (row) => row.policy.id },
      { label: "Kind", text: (row) => row.policy.kind + (row.policy.shadow ? " (shadow)" : "") },
      { label: "Rule", class: "rule", text: (row) => rule(row.policy) },
      { label: "Applies to", wide: true, text: (row) => applies(row.policy) },
      ...VERDICTS.slice(1).map(bound),
      { label: "Share", wide: true, make: shareCell, update: (node, row) => showShare(node, row.bound) },
    ],
  });
}

/** A rule as a sentence. */
function rule(policy) {
  if (policy.kind === "cap") {
    const parts = [];
    if (policy.limit !== undefined && policy.limit !== null) parts.push(`${count(policy.limit)} a ${(policy.scope ?? []).join(" and ")} in ${period(policy.window)}`);
    if (policy.min_interval) parts.push(`${policy.min_interval} apart`);
    return `${parts.join(", ")}, else ${(policy.on_exceed ?? "DEFER").toLowerCase()}`;
  }
  if (policy.kind === "quiet") return `quiet ${policy.from}–${policy.to}${policy.zone ? ` ${policy.zone}` : ""}${policy.days ? `, ${policy.days.join(" ")}` : ""}`;
  if (policy.kind === "pace") return `${policy.rate}${policy.burst ? `, ${count(policy.burst)} at once` : ""}`;
  return "";
}

const period = (window) => (typeof window === "object" && window ? `a calendar ${window.calendar}${window.zone ? ` (${window.zone})` : ""}` : String(window ?? ""));

function applies(policy) {
  const parts = Object.entries(policy.applies_to ?? {}).map(([name, values]) => `${name} ${[values].flat().join(", ")}`);
  const bypass = policy.bypass?.length ? `not ${policy.bypass.join(", ")}` : "";
  return [...parts, bypass].filter(Boolean).join(" · ") || "everything";
}

function shareCell() {
  return h("span.stack", { role: "img" }, VERDICTS.map((verdict) => h("i", { "data-verdict": verdict })));
}

function showShare(node, bound) {
  const sum = VERDICTS.reduce((total, verdict) => total + (bound[verdict] ?? 0), 0);
  [...node.children].forEach((part, i) => { part.style.width = `${sum ? (100 * (bound[VERDICTS[i]] ?? 0)) / sum : 0}%`; });
  const words = sum ? VERDICTS.map((verdict) => `${verdict} ${count(bound[verdict] ?? 0)}`).join(", ") : "not decided yet";
  node.setAttribute("aria-label", words);
  node.title = words;
}

function suppressionTable() {
  return table({
    caption: "Suppression lists",
    key: (list) => list.id,
    empty: lesson("No lists. A key on a list gets no messages:", curl("PUT", "v1/suppressions/optout", { keys: ["user1"], legal: true })),
    columns: [
      { label: "List", text: (list) => list.id },
      { label: "Kind", text: (list) => (list.legal ? "legal: nothing bypasses it" : "may be bypassed") },
    ],
  });
}
