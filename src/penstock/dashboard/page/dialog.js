// Questions before something is done. The browser's own <dialog> keeps focus and Escape right.

import { h } from "./dom.js";

/** Shows a dialog; resolves to true once `act` has succeeded, false when it was closed.
 *  prepare(signal): async → {text, confirm, act?}; without `act` there is nothing to confirm.
 *  fields: inputs that stand above the text; a change prepares anew. */
export function ask({ title, fields = [], danger = false, prepare }) {
  const text = h("p", { role: "status" });
  const trouble = h("p.trouble", { role: "alert", hidden: true });
  const confirm = h(danger ? "button.danger" : "button.primary", { type: "submit", disabled: true }, "…");
  const close = h("button.plain", { type: "button", onclick: () => dialog.close() }, "Close");
  const form = h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, title), fields, text, trouble, h("div.buttons", {}, close, confirm));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  let act = null;
  let abort = new AbortController();

  const fail = (error) => {
    if (error.name === "AbortError") return;
    trouble.textContent = error.message;
    trouble.hidden = false;
  };

  async function look() {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    confirm.disabled = true;
    trouble.hidden = true;
    act = null;
    try {
      const ready = await prepare(signal);
      if (signal.aborted) return;
      text.textContent = ready.text;
      confirm.textContent = ready.confirm ?? "Nothing to do";
      act = ready.act ?? null;
      confirm.disabled = !act;
    } catch (error) {
      text.textContent = "";
      fail(error);
    }
  }

  return new Promise((resolve) => {
    let done = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!act) return;
      confirm.disabled = true;
      confirm.setAttribute("aria-busy", "true");
      try {
        await act(abort.signal);
        done = true;
        dialog.close();
      } catch (error) {
        fail(error);
        confirm.disabled = false;
      } finally {
        confirm.removeAttribute("aria-busy");
      }
    });
    form.addEventListener("change", look);
    dialog.addEventListener("close", () => {
      abort.abort();
      dialog.remove();
      resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
    text.textContent = "Counting …";
    look();
  });
}

/** A labelled input for a dialog or form. */
export function field(label, input, hint) {
  return h("label.field", {}, h("span", {}, label), input, hint ? h("small.soft", {}, hint) : null);
}
