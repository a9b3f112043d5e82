"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const layers = data.attention.length, n = data.slots.length;
  const svgNS = "http://www.w3.org/2000/svg";
  const by = (id) => document.getElementById(id);
  const slider = by("layer"), heads = by("head"), stage = by("stage");
  let layer = 0, head = 0, chosen = null;
  slider.max = layers;

  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS(svgNS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  function drawAttention() {
    stage.replaceChildren();
    const maps = layer ? data.attention[layer - 1] : [];
    const wide = Math.max(34, ...data.slots.map((s) => 9 * s.length + 14)), tall = 190;
    const svg = make("svg", { width: wide * n + 8, height: tall + 64, role: "img" }, stage);
    const caption = layer === 0 ? "Input tokens" :
      maps.length ? `Layer ${layer}, head ${head + 1}` : `Layer ${layer} has no attention`;
    make("title", {}, svg, caption);
    const x = (i) => 4 + wide * (i + 0.5);
    const weights = maps[head] || [];
    weights.forEach((row, i) => row.forEach((w, j) => {
      if (w < 0.01) return;
      const mine = chosen === null || chosen === i;
      make("path", {
        class: mine ? "look" : "look faint",
        d: `M${x(i)},${tall + 30} C${x(i)},${tall - 50} ${x(j)},${110} ${x(j)},${34}`,
        "stroke-opacity": mine ? Math.max(0.08, w) : 0.05,
        "stroke-width": 0.6 + 1.8 * w,
      }, svg);
    }));
    for (const [top, pick] of [[4, false], [tall + 30, true]]) {
      data.slots.forEach((name, i) => {
        const group = make("g", { class: chosen === i ? "slot chosen" : "slot" }, svg);
        if (pick) {
          for (const [k, v] of [["tabindex", 0], ["role", "button"], ["aria-pressed", chosen === i],
            ["aria-label", `Slot ${i}, ${name}`]]) group.setAttribute(k, v);
          group.addEventListener("click", () => choose(i));
          group.addEventListener("keydown", (event) => {
            if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(i); }
          });
        }
        make("rect", { x: x(i) - wide / 2 + 2, y: top, width: wide - 4, height: 28, rx: 5 }, group);
        make("text", { x: x(i), y: top + 19 }, group, name);
      });
    }
    by("where").textContent = caption;
  }

  function drawStream() {
    const [headRow, body] = [document.querySelector(".stream thead"), document.querySelector(".stream tbody")];
    headRow.replaceChildren(); body.replaceChildren();
    const line = headRow.insertRow();
    for (const [i, name] of ["", ...data.slots].entries()) {
      const cell = document.createElement("th");
      cell.scope = "col"; cell.textContent = name;
      if (chosen !== null && i === chosen + 1) cell.className = "chosen";
      line.append(cell);
    }
    const now = data.states[layer], before = data.states[Math.max(0, layer - 1)];
    data.names.forEach((name, c) => {
      const row = body.insertRow();
      const title = document.createElement("th");
      title.scope = "row"; title.textContent = name;
      row.append(title);
      now.forEach((slot, i) => {
        const cell = row.insertCell(), value = slot[c];
        cell.textContent = String(Number(value.toPrecision(4)));
        const kinds = [];
        if (value === 0) kinds.push("zero");
        if (before[i][c] !== value) kinds.push("changed");
        if (chosen === i) kinds.push("chosen");
        cell.className = kinds.join(" ");
      });
    });
  }

  function show() {
    slider.value = layer;
    const count = layer ? data.attention[layer - 1].length : 0;
    head = Math.min(head, Math.max(0, count - 1));
    heads.replaceChildren(...Array.from({ length: count }, (_, i) => new Option(`${i + 1} of ${count}`, i, false, i === head)));
    heads.disabled = count === 0;
    drawAttention(); drawStream();
  }
  function go(to) { layer = Math.max(0, Math.min(layers, to)); show(); }
  function choose(i) { chosen = chosen === i ? null : i; show(); }

  slider.addEventListener("input", () => go(Number(slider.value)));
  heads.addEventListener("change", () => { head = Number(heads.value); show(); });
  by("back").addEventListener("click", () => go(layer - 1));
  by("on").addEventListener("click", () => go(layer + 1));
  document.addEventListener("keydown", (event) => {
    if (event.target === slider || event.target === heads) return;
    if (event.key === "ArrowRight") go(layer + 1);
    if (event.key === "ArrowLeft") go(layer - 1);
  });
  go(Math.min(1, layers));
})();
