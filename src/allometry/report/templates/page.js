"use strict";
(() => {
  const root = document.documentElement;
  const store = {
    // A browser may refuse storage to a page opened from disk: the choice then lasts until the page closes.
    get() { try { return localStorage.getItem("allometry-scheme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("allometry-scheme", value); } catch { /* see above */ } },
  };

  const buttons = [...document.querySelectorAll("[data-scheme]")].filter((b) => b !== root);
  function scheme(value) {
    if (value === "light" || value === "dark") root.dataset.theme = value;
    else delete root.dataset.theme;
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.scheme === value));
  }
  scheme(store.get() || "auto");
  for (const b of buttons) b.addEventListener("click", () => {
    scheme(b.dataset.scheme);
    store.set(b.dataset.scheme);
  });

  function value(row, column) {
    const cell = row.cells[column];
    const order = cell.dataset.order;
    if (order === undefined) return cell.textContent.trim().toLowerCase();
    return order === "" ? NaN : Number(order);
  }
  function compare(a, b) {
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
    return a - b;
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      const blank = (x) => typeof x === "number" && Number.isNaN(x);
      // Cells without a value stay at the bottom in either order.
      rows.sort(([a], [b]) => blank(a) || blank(b) ? blank(a) - blank(b) : (up ? 1 : -1) * compare(a, b));
      body.append(...rows.map(([, row]) => row));
    }));
  }

  const tip = document.getElementById("tip");
  let shown = null;
  function show(mark) {
    const box = mark.getBoundingClientRect();
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), root.clientWidth - width - 8);
    const above = box.top - height - 10;
    tip.style.setProperty("left", `${left}px`);
    tip.style.setProperty("top", `${above > 4 ? above : box.bottom + 10}px`);
    shown = mark;
  }
  function hide() { tip.hidden = true; shown = null; }
  for (const picture of document.querySelectorAll(".picture")) {
    const marks = [...picture.querySelectorAll("[role='graphics-symbol'][aria-label]")];
    const nearest = (event) => {
      let best = null, least = 22 * 22;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        if (box.width > 60 || box.height > 60) continue;
        const dx = event.clientX - box.left - box.width / 2, dy = event.clientY - box.top - box.height / 2;
        if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = mark; }
      }
      return best || event.target.closest("[role='graphics-symbol'][aria-label]");
    };
    picture.addEventListener("pointermove", (event) => {
      const mark = nearest(event);
      if (!mark) hide();
      else if (mark !== shown) show(mark);
    });
    picture.addEventListener("pointerdown", (event) => { const mark = nearest(event); if (mark) show(mark); });
    picture.addEventListener("pointerleave", hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });
})();
