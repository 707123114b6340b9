// The style sheet's colors, for canvases. Read again when the theme changes.

const known = new Map();
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
document.documentElement.addEventListener("themechange", () => known.clear());

/** color("accepted") → the computed value of --accepted. */
export function color(name, alpha = 1) {
  const key = `${name}/${alpha}`;
  if (!known.has(key)) {
    probe.style.color = `color-mix(in srgb, var(--${name}) ${alpha * 100}%, transparent)`;
    known.set(key, getComputedStyle(probe).color);
  }
  return known.get(key);
}

const ROUTES = 8;
/** The n-th route's color; they come round again. */
export const routeColor = (index) => `route-${index % ROUTES}`;
export const MOST_ROUTES = ROUTES;

/** Pixels of one rem, so that canvases grow with the text around them. */
export const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
