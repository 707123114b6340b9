// A table that is brought up to date in place: rows keep their elements, so focus stays put.

import { h, setText } from "./dom.js";

/** columns: [{label, text(item)} | {label, make(read), update(node, item)}], with
 *  number?: true (right, tabular), wide?: true (only where there is room), class? */
export function table({ caption, columns, key, empty }) {
  const body = h("tbody");
  const node = h("div.scroll", { role: "region", "aria-label": caption, tabindex: 0 },
    h("table", {},
      h("caption.hidden", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: classes(column) }, column.label || h("span.hidden", {}, "Actions"))))),
      body));
  const rows = new Map();
  const nothing = h("div", { hidden: true });
  if (empty) nothing.append(empty);

  function rowOf(item) {
    const held = { item };
    const cells = columns.map((column, i) => {
      const made = column.make?.(() => held.item);
      return h(i === 0 ? "th" : "td", { class: classes(column), scope: i === 0 ? "row" : undefined }, made);
    });
    held.node = h("tr", {}, cells);
    held.cells = cells;
    return held;
  }

  function update(items) {
    const seen = new Set();
    let place = body.firstChild;
    for (const item of items) {
      const name = key(item);
      seen.add(name);
      if (!rows.has(name)) rows.set(name, rowOf(item));
      const row = rows.get(name);
      row.item = item;
      columns.forEach((column, i) => {
        if (column.text) setText(row.cells[i], column.text(item));
        else column.update?.(row.cells[i].firstChild, item);
      });
      if (row.node === place) place = place.nextSibling;
      else body.insertBefore(row.node, place);
    }
    for (const [name, row] of rows) {
      if (seen.has(name)) continue;
      row.node.remove();
      rows.delete(name);
    }
    node.hidden = !items.length;
    nothing.hidden = items.length > 0;
  }

  return { node: h("div.table", {}, node, nothing), update };
}

const classes = (column) => [column.number && "number", column.wide && "wide", column.class].filter(Boolean).join(" ") || undefined;
