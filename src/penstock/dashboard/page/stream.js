// Server-sent events read with fetch, because EventSource cannot send a token.

import { request } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SILENT = 10_000; // the server speaks every second: this long without a word, it is gone

/** Reads a path's events until stopped; comes back by itself after a fault.
 *  on.open(): async, before the first event · on.event(name, data) · on.lost(error, waitMs) */
export function follow(path, on) {
  let wait = FIRST_WAIT;
  let timer = 0;
  let current = null;
  let ended = false;

  async function read() {
    const abort = new AbortController();
    current = abort;
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => abort.abort(), SILENT);
    };
    try {
      alive();
      const answer = await request(path, { signal: abort.signal });
      await on.open();
      for await (const [name, data] of events(answer.body)) {
        alive();
        wait = FIRST_WAIT;
        on.event(name, data);
      }
      again(null);
    } catch (error) {
      again(error);
    } finally {
      clearTimeout(watch);
      abort.abort();
    }
  }

  function again(error) {
    if (ended) return;
    on.lost(error, wait);
    timer = setTimeout(read, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }

  read();
  return {
    stop() {
      ended = true;
      clearTimeout(timer);
      current?.abort();
    },
  };
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) yield parse(block);
  }
}

function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return [name, data.join("\n")];
}
