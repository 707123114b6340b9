// The adapters' side of the drive for Node: see side.py, whose orders and lines are the same.
import fs from 'node:fs';
import readline from 'node:readline';

export const url = process.env.PEERS_URL;
export const lease = Number(process.env.PEERS_LEASE || 0);
export const rules = Number(process.env.PEERS_RULES || 0);
const SIZE = 100;
const AT_ONCE = 64;
let out;

export function record(body) {
  out ??= fs.openSync(process.env.PEERS_OUT, 'a');
  const [id, due] = body.split(' ', 2);
  const now = Math.floor((performance.timeOrigin + performance.now()) * 1000);
  fs.writeSync(out, `${id} ${due} ${now}\n`);
}

export const body = (id, due) => `${id} ${due} `.padEnd(SIZE, 'x');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function single(one, items) {
  for (const item of items) await one(...item);
}

async function atOnce(one, items) {
  const following = items.values();
  await Promise.all(Array.from({ length: AT_ONCE }, () => single(one, following)));
}

async function steady(one, items, order) {
  const start = performance.now();
  for (let n = 0; n < items.length; n++) {
    const wait = start + (n * 1000) / order.rate - performance.now();
    if (wait > 0) await sleep(wait);
    const due = Date.now() + Math.floor((order.near + Math.random() * (order.far - order.near)) * 1000);
    await one(body(order.first + n, due), due);
  }
}

export async function enqueuer(one, many) {
  const does = { bulk: (_, items) => many(items), single, at_once: atOnce, steady };
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const due = (n) => order.due + Math.floor((n * (order.apart || 0)) / 1000);
    const items = Array.from({ length: order.number }, (_, n) => [body(order.first + n, due(n)), due(n)]);
    const start = performance.now();
    await does[order.do](one, items, order);
    console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
  }
  process.exit(0);
}
