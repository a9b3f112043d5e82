/* The two charts of the planner as SVG: loss against compute, and against size at the budget. */
const PlannerCharts = (() => {
  const WIDE = 460, TALL = 300, BOX = { left: 56, right: 446, top: 14, bottom: 252 };

  function put(parent, name, attributes, text) {
    const made = document.createElementNS(parent.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }
  const scale = (low, high, from, to) => (x) => from + (Math.log(x / low) / Math.log(high / low)) * (to - from);

  /* Powers of ten, or 1-2-5 steps if the range has fewer than two of them. */
  function ticks(low, high, most) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    if (last - first >= 1) {
      const every = Math.ceil((last - first + 1) / most);
      const found = [];
      for (let k = first; k <= last; k += every) found.push(10 ** k);
      return found;
    }
    const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
    return found;
  }
  function axes(svg, x, y, xRange, yRange, xTitle, write) {
    for (const at of ticks(...yRange, 5)) {
      put(svg, "line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(at), y2: y(at) });
      put(svg, "text", { class: "tick", x: BOX.left - 8, y: y(at) + 4, "text-anchor": "end" }, PlannerWords.significant(at, 3));
    }
    for (const at of ticks(...xRange, 6)) {
      put(svg, "line", { class: "axis", x1: x(at), x2: x(at), y1: BOX.bottom, y2: BOX.bottom + 5 });
      put(svg, "text", { class: "tick", x: x(at), y: BOX.bottom + 19, "text-anchor": "middle" }, write(at));
    }
    put(svg, "line", { class: "axis", x1: BOX.left, x2: BOX.right, y1: BOX.bottom, y2: BOX.bottom });
    put(svg, "text", { class: "title", x: (BOX.left + BOX.right) / 2, y: BOX.bottom + 40, "text-anchor": "middle" }, xTitle);
  }
  const bounds = (values) => [Math.min(...values), Math.max(...values)];
  function widened([low, high], share) {
    const by = Math.max((high / low) ** share, 1.002);
    return [low / by, high * by];
  }

  /* Draws a band with points; `line` has {x, lo, mid, hi}, `mark` the plan, `dots` the runs. */
  function draw(svg, { line, dots = [], mark, known, xTitle, write, label }) {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${WIDE} ${TALL}`);
    svg.setAttribute("aria-label", label);
    const finite = line.filter((p) => [p.lo, p.mid, p.hi].every((v) => Number.isFinite(v) && v > 0));
    const xs = [...finite.map((p) => p.x), ...dots.map((d) => d[0])];
    // Ends of far extrapolations may be orders of magnitude away: they are cut, the line is not.
    const inner = [...finite.map((p) => p.mid), ...dots.map((d) => d[1]), mark.loss.value];
    const [least, most] = bounds(inner), room = Math.max(most / least, 1.05);
    const lows = finite.map((p) => p.lo).filter((v) => v > least / room ** 1.5);
    const highs = finite.map((p) => p.hi).filter((v) => v < most * room ** 1.5);
    const xRange = widened(bounds(xs), 0.02), yRange = widened(bounds([...inner, ...lows, ...highs]), 0.06);
    const x = scale(...xRange, BOX.left, BOX.right), y = scale(...yRange, BOX.bottom, BOX.top);
    const inside = (v) => Math.min(Math.max(y(v), BOX.top), BOX.bottom).toFixed(2);
    axes(svg, x, y, xRange, yRange, xTitle, write);
    if (finite.length > 1) {
      const upper = finite.map((p) => `${x(p.x).toFixed(2)},${inside(p.hi)}`);
      const lower = finite.map((p) => `${x(p.x).toFixed(2)},${inside(p.lo)}`).reverse();
      put(svg, "path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` });
      const path = (points) => `M${points.map((p) => `${x(p.x).toFixed(2)},${inside(p.mid)}`).join("L")}`;
      const seen = known === undefined ? finite : finite.filter((p) => p.x <= known);
      const beyond = known === undefined ? [] : finite.slice(Math.max(seen.length - 1, 0));
      if (seen.length > 1) put(svg, "path", { class: "line", d: path(seen) });
      if (beyond.length > 1) put(svg, "path", { class: "line beyond", d: path(beyond) });
    }
    for (const [dx, dy] of dots) put(svg, "circle", { class: "dot", cx: x(dx).toFixed(2), cy: inside(dy), r: 2.6 });
    const mx = x(mark.x);
    if (mx >= BOX.left - 1 && mx <= BOX.right + 1) {
      const { lo, hi, value } = mark.loss;
      put(svg, "line", { class: "mark", x1: mx, x2: mx, y1: inside(lo), y2: inside(hi) });
      if (mark.lo) {
        const [from, to] = [mark.lo, mark.hi].map((v) => Math.min(Math.max(x(v), BOX.left), BOX.right));
        put(svg, "line", { class: "mark", x1: from, x2: to, y1: inside(value), y2: inside(value) });
      }
      put(svg, "circle", { class: "mark", cx: mx, cy: inside(value), r: 5 });
    }
  }
  return { draw };
})();
