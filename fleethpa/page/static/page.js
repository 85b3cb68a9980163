// The frozen view, live updates, keys, and nothing that HTML can do by itself.
"use strict";

(() => {
  document.documentElement.classList.add("scripted"); // shows what only scripts can move

  // --- frozen view: while it is on, what comes in changes nothing -----------------------------------------------------------
  let paused = false;
  const pause = document.getElementById("pause");
  // Nothing is called live while all of it is only the last that was known.
  const named = () => {
    const isOld = document.querySelector("#state[data-old]");
    if (pause) pause.textContent = paused ? "Frozen view" : isOld ? "Last known" : "Live";
  };
  document.addEventListener("htmx:afterSettle", () => named());
  pause?.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    named();
    if (!paused) document.querySelectorAll("[data-live]").forEach((each) => htmx.trigger(each, "sse:changed"));
  });
  // What is being read is not moved: neither under the pause button, nor while something inside has the focus or is selected.
  const isRead = (section) => {
    const selection = getSelection();
    const selected = selection && !selection.isCollapsed && section.contains(selection.anchorNode);
    const focused = document.activeElement?.closest("input, textarea, select");
    return selected || (focused && section.contains(focused));
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    const section = event.detail.elt;
    if (!section.hasAttribute("data-live")) return;
    if (paused || isRead(section)) event.preventDefault();
  });

  // What a reader has opened stays open.
  if (typeof Idiomorph !== "undefined")
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");

  // A live update keeps the order of the rows; what has moved is shown, and a click sorts it.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, serverResponse } = event.detail;
    if (!requestConfig?.elt?.hasAttribute("data-live") || requestConfig.elt.id !== "fleet") return;
    const made = new DOMParser().parseFromString(serverResponse, "text/html");
    const body = made.querySelector("table.fleet tbody");
    const before = [...document.querySelectorAll("table.fleet tbody tr[id]")].map((row) => row.id);
    if (!body || !before.length) return;
    const place = new Map(before.map((id, number) => [id, number]));
    const rows = [...body.querySelectorAll("tr[id]")];
    const kept = [...rows].sort((a, b) => (place.get(a.id) ?? Infinity) - (place.get(b.id) ?? Infinity) || rows.indexOf(a) - rows.indexOf(b));
    const moved = rows.filter((row, number) => row !== kept[number]).length;
    if (!moved) return;
    body.append(...kept);
    const note = made.getElementById("moved");
    note.hidden = false;
    note.querySelector("b").textContent = `The order of ${moved} rows has changed.`;
    event.detail.serverResponse = made.documentElement.outerHTML;
  });

  // --- the connection for live updates ----------------------------------------------------------------------------------
  const link = document.getElementById("link");
  let lost = 0;
  document.addEventListener("htmx:sseError", () => {
    lost = lost || Date.now();
    link.hidden = false;
    link.querySelector("b").textContent = `No live updates since ${new Date(lost).toISOString().slice(11, 19)}: the page is connecting again.`;
  });
  document.addEventListener("htmx:sseOpen", () => {
    if (!lost) return;
    lost = 0;
    link.hidden = true;
    document.querySelectorAll("[data-live]").forEach((each) => htmx.trigger(each, "sse:changed"));
  });

  // --- share ------------------------------------------------------------------------------------------------------------
  document.addEventListener("click", async (event) => {
    const id = event.target.dataset?.copies;
    if (!id) return;
    const text = document.getElementById(id);
    text.select();
    await navigator.clipboard?.writeText(text.value);
    event.target.textContent = "Copied";
  });

  // --- keys -------------------------------------------------------------------------------------------------------------
  const pressed = {
    "/": () => document.getElementById("find")?.focus(),
    "?": () => document.getElementById("keys")?.togglePopover(),
    f: () => pause?.click(),
  };
  document.addEventListener("keydown", (event) => {
    const isText = event.target.closest?.("input:not([type=range]), textarea, select");
    if (isText || event.ctrlKey || event.metaKey || event.altKey || !pressed[event.key]) return;
    event.preventDefault();
    pressed[event.key]();
  });
})();
