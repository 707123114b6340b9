// The last half hour, one point a second: loaded with every connection, then grown by the stream.

const SERIES = ["accepted", "released", "delivered", "failed", "deferred", "blocked", "pending", "late_p50", "late_p99"];
const MOST = 1800;
const GAP = 3; // seconds

export class History {
  constructor() {
    this.times = [];
    this.points = Object.fromEntries(SERIES.map((name) => [name, []]));
  }

  /** What the server remembers takes the place of what this page saw, up to its last second:
   *  it has no gaps where the page slept or was cut off. */
  load({ from, step, points }) {
    const start = Math.round(Date.parse(from) / 1000);
    const told = Array.from(points.accepted, (_, i) => start + i * step);
    const later = this.times.findIndex((second) => second > told.at(-1));
    const kept = (own) => (later < 0 ? [] : own.slice(later));
    this.times = [...told, ...kept(this.times)];
    for (const name of SERIES) this.points[name] = [...points[name], ...kept(this.points[name])];
    this.trim();
  }

  /** One event of the stream. */
  add({ at, points }) {
    const second = Math.round(Date.parse(at) / 1000);
    const last = this.times.at(-1);
    if (second <= last) return;
    if (last !== undefined && second - last > GAP) this.push(last + 1, {}); // a gap stays a gap
    this.push(second, points);
    this.trim();
  }

  push(second, point) {
    this.times.push(second);
    for (const name of SERIES) this.points[name].push(point[name] ?? null);
  }

  trim() {
    const extra = this.times.length - MOST;
    if (extra <= 0) return;
    this.times.splice(0, extra);
    for (const name of SERIES) this.points[name].splice(0, extra);
  }

  /** The newest value of a series, or null. */
  latest(name) {
    return this.points[name].at(-1) ?? null;
  }

  /** The last `seconds`, or as much of them as is known; never less than a minute. */
  range(seconds) {
    const last = this.times.at(-1);
    const known = this.times.findIndex((_, i) => this.points.accepted[i] !== null || this.points.pending[i] !== null);
    return [Math.max(last - seconds, Math.min(this.times[Math.max(known, 0)], last - 60)), last];
  }

  /** uPlot's columns for some series. */
  columns(names) {
    return [this.times, ...names.map((name) => this.points[name])];
  }
}
