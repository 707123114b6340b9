/* The switcher of versions in the header: also in pages that are opened from a folder. */
"use strict";
(() => {
  const config = JSON.parse(document.getElementById("__config").textContent);
  const base = new URL(config.base + "/", location.href);
  const shown = decodeURI(location.href.slice(base.href.length)).split(/[?#]/)[0] || "index.html";

  window.showVersions = (versions, pages) => {
    const folder = base.pathname.split("/").filter(Boolean).pop();
    const current = versions.find((one) => one.version === folder || one.aliases.includes(folder));
    if (!current) return;
    const list = document.createElement("ul");
    list.className = "md-version__list";
    for (const one of versions) {
      const page = pages[one.version].includes(shown) ? shown : "index.html";
      const link = document.createElement("a");
      link.className = "md-version__link";
      link.href = new URL(`../${one.version}/${page}`, base).href;
      link.textContent = one.aliases.length ? `${one.title} (${one.aliases.join(", ")})` : one.title;
      const item = document.createElement("li");
      item.className = "md-version__item";
      item.append(link);
      list.append(item);
    }
    const button = document.createElement("button");
    button.className = "md-version__current";
    button.setAttribute("aria-label", "Select version");
    button.textContent = current.title;
    const switcher = document.createElement("div");
    switcher.className = "md-version";
    switcher.append(button, list);
    document.querySelector(".md-header__topic").append(switcher);
  };

  const script = document.createElement("script");
  script.src = new URL("../versions.js", base).href;
  document.head.append(script);
})();
