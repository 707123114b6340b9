// Renders /openapi.json for people: groups, parameters, schemas, examples, and a form to try each.

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

/** Text in which `backticks` are code. */
const prose = (text) => (text ?? "").split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

// Where the API is, whatever path prefix a proxy puts before it.
const root = new URL("../", import.meta.url).pathname.slice(0, -1);
const response = await fetch(`${root}/openapi.json`);
const spec = await response.json();

const resolve = (value) => {
  if (!value?.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((at, name) => at[name], spec);
};
const nameOf = (schema) => schema?.$ref?.split("/").pop();

function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return "any JSON";
  if (schema.$ref) return resolve(schema).enum ? typeOf(resolve(schema)) : nameOf(schema);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((item) => JSON.stringify(item)).join(" · ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`;
  if (schema.type === "object" && schema.additionalProperties?.type) {
    return `object of ${schema.additionalProperties.type}`;
  }
  return schema.format ?? schema.type ?? "any JSON";
}

function fieldTable(schema) {
  const body = make("tbody");
  const required = new Set(schema.required ?? []);
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    body.append(make("tr", {},
      make("td", {}, make("code", {}, name), required.has(name) ? " *" : ""),
      make("td", {}, typeOf(field)),
      make("td", { class: "soft" }, ...prose(field.description))));
  }
  return make("table", {}, body);
}

function schemaView(schema, seen = new Set()) {
  const parts = [];
  const visit = (part) => {
    if (!part) return;
    const name = nameOf(part);
    if (name && seen.has(name)) return;
    if (name) seen.add(name);
    const found = resolve(part);
    if (found.properties) {
      if (name) parts.push(make("h4", {}, name));
      if (found.description) parts.push(make("p", { class: "soft" }, ...prose(found.description)));
      parts.push(fieldTable(found));
      Object.values(found.properties).forEach(visit);
    }
    (found.anyOf ?? []).forEach(visit);
    visit(found.items);
    if (typeof found.additionalProperties === "object") visit(found.additionalProperties);
  };
  visit(schema);
  return parts;
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function curl(method, url, headers, body) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl", "-X", method, quote(location.origin + url)];
  for (const [name, value] of Object.entries(headers)) {
    parts.push("-H", quote(`${name}: ${name === "authorization" ? "Bearer …" : value}`));
  }
  if (body !== undefined) parts.push("--data-binary", quote(body));
  return parts.join(" ");
}

function tryForm(method, path, operation) {
  const inputs = new Map();
  const fields = make("div", { class: "fields" });
  for (const parameter of operation.parameters ?? []) {
    const schema = resolve(parameter.schema) ?? {};
    const input = make("input", {
      required: parameter.required, value: parameter.in === "path" ? schema.enum?.[0] : undefined,
      placeholder: schema.examples?.[0] ?? typeOf(parameter.schema),
    });
    inputs.set(parameter, input);
    fields.append(make("label", {}, `${parameter.name}${parameter.required ? " *" : ""}`, input));
  }
  const [media, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  const text = media
    ? make("textarea", { "aria-label": "Body", spellcheck: "false" }, JSON.stringify(content.example, null, 2))
    : null;
  const result = make("div", { "aria-live": "polite" });
  const form = make("form", {}, fields, text, make("p", {}, make("button", {}, "Try it")), result);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = root + path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [parameter, input] of inputs) {
      if (!input.value) continue;
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (parameter.in === "query") query.set(parameter.name, input.value);
      else headers[parameter.name.toLowerCase()] = input.value;
    }
    if (query.size) url += `?${query}`;
    if (media) headers["content-type"] = media;
    const token = document.getElementById("token").value.trim();
    if (token) headers.authorization = `Bearer ${token}`;
    result.replaceChildren(make("pre", {}, curl(method.toUpperCase(), url, headers, text?.value)));
    try {
      const answer = await fetch(url, { method: method.toUpperCase(), headers, body: text?.value });
      const shown = make("pre", {}, "");
      result.append(make("p", {}, make("strong", {}, `${answer.status} ${answer.statusText}`)), shown);
      await show(answer, shown);
    } catch (error) {
      result.append(make("p", {}, `No answer: ${error.message}`));
    }
  });
  return form;
}

async function show(answer, shown) {
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) {
    shown.textContent = pretty(await answer.text());
    return;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let events = 0; events < 3; events += 1) {
    const { value, done } = await reader.read();
    if (done) return;
    shown.textContent += value;
  }
  await reader.cancel();
  shown.textContent += "… and so on; stopped after three.";
}

function answersView(operation) {
  const rows = make("tbody");
  const schemas = [];
  for (const [status, given] of Object.entries(operation.responses)) {
    const answer = resolve(given);
    const schema = Object.values(answer.content ?? {})[0]?.schema;
    rows.append(make("tr", {},
      make("td", {}, make("code", {}, status)),
      make("td", {}, ...prose(answer.description)),
      make("td", { class: "soft" }, schema ? typeOf(schema) : Object.keys(answer.content ?? {}).join(", "))));
    if (schema && status.startsWith("2")) schemas.push(schema);
  }
  const seen = new Set();
  return [make("table", {}, rows), ...schemas.flatMap((schema) => schemaView(schema, seen))];
}

function operationView(path, method, operation) {
  const view = make("div");
  if (operation.description) view.append(make("p", { class: "soft" }, ...prose(operation.description)));
  if (operation.parameters?.length) {
    view.append(make("h4", {}, "Parameters"), make("table", {}, make("tbody", {},
      ...operation.parameters.map((parameter) => make("tr", {},
        make("td", {}, make("code", {}, parameter.name), parameter.required ? " *" : ""),
        make("td", {}, `${parameter.in}, ${typeOf(parameter.schema)}`),
        make("td", { class: "soft" }, ...prose(parameter.description)))))));
  }
  for (const [media, content] of Object.entries(operation.requestBody?.content ?? {})) {
    view.append(make("h4", {}, `Body: ${media}`), ...schemaView(content.schema));
    if (media !== "application/json") view.append(make("pre", {}, content.example ?? ""));
  }
  view.append(make("h4", {}, "Try it"), tryForm(method, path, operation));
  view.append(make("h4", {}, "Answers"), ...answersView(operation));
  return make("details", { class: "operation", id: operation.operationId },
    make("summary", {},
      make("span", { class: "method" }, method), make("span", { class: "path" }, path),
      make("span", { class: "soft" }, operation.summary)),
    view);
}

function render() {
  document.getElementById("about").append(...prose(`${spec.info.version} — ${spec.info.description}`));
  const groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationView(path, method, operation));
    }
  }
  const list = document.getElementById("operations");
  const contents = document.getElementById("contents");
  list.replaceChildren();
  for (const [tag, views] of groups) {
    const anchor = tag.toLowerCase().replaceAll(" ", "-");
    contents.append(make("a", { href: `#${anchor}` }, tag), " ");
    list.append(make("section", {}, make("h2", { id: anchor }, tag), ...views));
  }
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

render();
