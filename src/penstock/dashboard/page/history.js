// The last half hour, one point a second: loaded once, then grown by the live stream.

export const SERIES = ["accepted", "released", "delivered", "failed", "deferred", "blocked", "pending", "late_p50", "late_p99"];
const RATES = { accepted: ["accepted"], released: ["released"], delivered: ["delivered"], failed: ["retry", "dead"], deferred: ["deferred"], blocked: ["blocked"] };
const MOST = 1800;

export class History {
  constructor() {
    this.times = [];
    this.points = Object.fromEntries(SERIES.map((name) => [name, []]));
    this.previous = null;
  }

  /** What the server remembers goes before what this page saw itself. */
  load({ from, step, points }) {
    const start = Math.round(Date.parse(from) / 1000);
    const first = this.times[0] ?? Infinity;
    const times = [];
    const length = Math.max(0, ...SERIES.map((name) => points[name]?.length ?? 0));
    for (let i = 0; i < length && start + i * step < first; i += 1) times.push(start + i * step);
    for (const name of SERIES) {
      const known = points[name] ?? [];
      this.points[name] = [...times.map((_, i) => known[i] ?? null), ...this.points[name]];
    }
    this.times = [...times, ...this.times];
    this.trim();
  }

  /** One event of the stream → one point. */
  add(stats) {
    const point = stats.point ?? this.derive(stats);
    this.previous = stats;
    const second = Math.round(Date.parse(stats.now) / 1000);
    const last = this.times.at(-1);
    if (!point || second <= last) return;
    if (last !== undefined && second - last > 3) this.push(last + 1, {}); // a gap stays a gap
    this.push(second, point);
    this.trim();
  }

  push(second, point) {
    this.times.push(second);
    for (const name of SERIES) this.points[name].push(point[name] ?? null);
  }

  derive(stats) {
    const before = this.previous;
    if (!before) return null;
    const seconds = (Date.parse(stats.now) - Date.parse(before.now)) / 1000;
    if (seconds <= 0) return null;
    const point = { pending: stats.states.scheduled ?? 0 };
    for (const [name, stages] of Object.entries(RATES)) {
      const grown = stages.reduce((sum, stage) => sum + (stats.totals[stage] ?? 0) - (before.totals[stage] ?? 0), 0);
      point[name] = grown < 0 ? null : grown / seconds; // it started anew
    }
    const late = Object.values(stats.lateness ?? {});
    for (const share of ["p50", "p99"]) {
      const known = late.map((one) => one[share]).filter((value) => value !== null);
      point[`late_${share}`] = known.length ? Math.max(...known) : null;
    }
    return point;
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
