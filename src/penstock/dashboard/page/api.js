// Calls to the API beside this page, whatever path prefix a proxy puts before both.

import { token } from "./token.js";

const ROOT = new URL("../", import.meta.url);
/** Told of a 401, so that the page can ask for a token. */
export const refused = new EventTarget();

class ApiError extends Error {
  constructor(status, code, message, field) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

export const address = (path) => new URL(path, ROOT);

const authorization = () => (token() ? { authorization: `Bearer ${token()}` } : {});

/** Fetch, or an ApiError that says kindly what went wrong. */
export async function request(path, options = {}) {
  const used = token();
  let answer;
  try {
    answer = await fetch(address(path), {
      ...options, cache: "no-store", headers: { ...authorization(), ...options.headers },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server does not answer.");
  }
  if (answer.ok) return answer;
  throw await problem(answer, used);
}

async function problem(answer, used) {
  const body = await answer.json().catch(() => ({}));
  const { code = "", message = answer.statusText, field } = body.error ?? {};
  if (answer.status === 401) {
    if (used === token()) refused.dispatchEvent(new CustomEvent("refused", { detail: Boolean(used) }));
    return new ApiError(401, code, used ? "The server does not know this token." : "A token is needed.");
  }
  if (answer.status === 403) return new ApiError(403, code, `Not allowed: ${message}.`);
  return new ApiError(answer.status, code, field ? `${field}: ${message}` : message, field);
}

export const get = async (path, signal) => (await request(path, { signal })).json();

export async function send(method, path, body, signal) {
  const options = { method, signal };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  return (await request(path, options)).json();
}

export const post = (path, body, signal) => send("POST", path, body, signal);

export const messagePath = (id) => `v1/messages/${encodeURIComponent(id)}`;

/** {a: "", b: "x"} → "?b=x". */
export function query(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
