// Numbers for people: short, steady in width, the same everywhere.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** 12345 → "12,345"; nothing known → "–". */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** 1234567 → "1.2M", for axes and narrow places. */
export const compact = (value) => (value === null || value === undefined ? "–" : short.format(value));

/** A rate: one decimal while it is small. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value !== 0 && value < 10 ? value.toFixed(1) : whole.format(value);
}

/** Milliseconds as people say them. */
export function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${whole.format(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  if (value < 3_600_000) return `${(value / 60_000).toFixed(1)} min`;
  return `${(value / 3_600_000).toFixed(1)} h`;
}

/** "1 message", "2,000 messages". */
export const messages = (value) => `${count(value)} ${value === 1 ? "message" : "messages"}`;
