// Elements from plain values. Text is only ever inserted as text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("button.plain", { type: "button", onclick }, "Cancel"): an element with its children. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  return fill(node, attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set text only where it differs: a page that redraws every second should not touch what stays. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** A list of terms and what they are, left out where there is nothing. */
export function facts(pairs) {
  const list = h("dl.facts");
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(h("div", {}, h("dt", {}, term), h("dd", {}, value)));
  }
  return list;
}
