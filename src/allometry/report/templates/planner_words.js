/* Numbers as allometry.report.formatting and plan_cost_cells write them, and hardware as
   allometry.laws.hardware and allometry.laws.memory convert it. */
const PlannerWords = (() => {
  const COUNTS = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]];
  const FLOPS = [[1e21, "ZFLOP"], [1e18, "EFLOP"], [1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"]];
  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const BEYOND = "beyond reach";

  function significant(x, digits = 3) {
    if (x === 0 || !Number.isFinite(x)) return String(x);
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(x))));
    const text = x.toFixed(Math.min(places, 100));
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }
  function powerOfTen(x) {
    let exponent = Math.floor(Math.log10(Math.abs(x)));
    let mantissa = significant(x / 10 ** exponent, 2);
    if (mantissa === "10") { mantissa = "1"; exponent += 1; }
    const raised = String(exponent).replace(/\d/g, (d) => RAISED[d]).replace("-", "⁻");
    return mantissa === "1" ? `10${raised}` : `${mantissa}×10${raised}`;
  }
  function scaled(x, steps, gap) {
    const rounded = Math.abs(Number(x.toPrecision(3)));
    for (const [step, name] of steps) if (rounded >= step) return `${significant(x / step)}${gap}${name}`;
    return null;
  }
  function count(x) {
    if (!Number.isFinite(x)) return BEYOND;
    return Math.abs(x) >= 1e15 ? powerOfTen(x) : scaled(x, COUNTS, "") || significant(x);
  }
  function flops(x) {
    if (!Number.isFinite(x)) return BEYOND;
    return Math.abs(x) >= 1e24 ? `${powerOfTen(x)} FLOP` : scaled(x, FLOPS, " ") || `${significant(x)} FLOP`;
  }
  function duration(seconds) {
    if (!Number.isFinite(seconds)) return "unknown";
    if (seconds < 9.95) return `${significant(seconds, 2)} s`;
    const total = Math.round(seconds);
    if (total < 60) return `${total} s`;
    for (const [big, small, first, second] of [[60, 1, "min", "s"], [3600, 60, "h", "min"], [86400, 3600, "d", "h"]]) {
      if (big !== 86400 && total >= big * (big === 60 ? 60 : 24)) continue;
      const whole = Math.floor(total / big), rest = Math.floor((total % big) / small);
      return `${whole} ${first}${rest ? ` ${rest} ${second}` : ""}`;
    }
    return "unknown";
  }
  const loss = (x) => (!Number.isFinite(x) ? "infinite" : Math.abs(x) >= 0.1 ? x.toFixed(3) : significant(x));
  const thousands = (text) => text.replace(/\B(?=(\d{3})+$)/g, ",");
  function money(x, currency) {
    if (x >= 1e6) return `${currency}${count(x)}`;
    return currency + (x >= 100 ? thousands(x.toFixed(0)) : x.toFixed(2));
  }
  function inUnits(x, steps, last) {
    for (const [step, unit] of steps) if (x >= step) return `${significant(x / step)} ${unit}`;
    return `${significant(x / last[0])} ${last[1]}`;
  }
  const bytes = (x) => inUnits(x, [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"]], [1e3, "kB"]);
  const energy = (x) => inUnits(x, [[1e6, "GWh"], [1e3, "MWh"]], [1, "kWh"]);
  const years = (count) => `${count} year${count === "1" ? "" : "s"}`;
  const time = (hours) => (hours > 24 * 365 ? years(significant(hours / 24 / 365, 2)) : duration(3600 * hours));
  const percent = (x) => `${significant(100 * x)} %`;

  /* `1.2M to 3M`; both ends share one unit. */
  function span({ lo, hi }, write) {
    if (lo === null || hi === null) return "no interval";
    const first = write(lo), last = write(hi), unit = last.split(" ").pop();
    return `${last.includes(" ") && first.endsWith(unit) ? first.slice(0, -unit.length).trimEnd() : first} to ${last}`;
  }
  const interval = (estimate, write) => (estimate.exact ? "fixed" : estimate.lo === null ? "no interval" : `95 % interval ${span(estimate, write)}`);

  const SUFFIX = { "": 1, k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12, p: 1e15, e: 1e18, z: 1e21 };
  /* A positive number with an optional suffix, such as 7B, 1e21, 2 ZFLOP; NaN for other text. */
  function number(text) {
    const found = /^([0-9][0-9_,]*\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?)\s*([kmbgtpez]?)\s*(?:flops?|parameters|tokens)?$/i.exec(text.trim());
    if (!found) return NaN;
    const value = Number(found[1].replace(/[_,]/g, "")) * SUFFIX[found[2].toLowerCase()];
    return value > 0 && Number.isFinite(value) ? value : NaN;
  }
  /* A price with an optional currency in front: `2.5`, `€3`. */
  function price(text) {
    const found = /^([$€£]|[a-z]{3} )?\s*([0-9.,_]+)$/i.exec(text.trim());
    return found ? { value: number(found[2]), currency: (found[1] || "$").toUpperCase() } : { value: NaN, currency: "$" };
  }

  // ---- hardware ---------------------------------------------------------------------------

  /* `hardware` has peak_flops, memory and power of one accelerator, count, mfu and price. */
  const hardware = {
    flopsPerSecond: (h) => h.count * h.peak_flops * h.mfu,
    hours: (h, compute) => compute / hardware.flopsPerSecond(h) / 3600,
    acceleratorHours: (h, compute) => compute / (h.peak_flops * h.mfu) / 3600,
    cost: (h, compute) => (h.price ? hardware.acceleratorHours(h, compute) * h.price : null),
    energy: (h, compute) => (h.power ? hardware.acceleratorHours(h, compute) * h.power / 1000 : null),
    computeInDays: (h, days) => hardware.flopsPerSecond(h) * (24 * days) * 3600,
    computeFor: (h, amount) => amount / h.price * 3600 * h.peak_flops * h.mfu,
    /* Bytes per accelerator to train N parameters with Adam in mixed precision, fully sharded. */
    memory(h, N, constants) {
      const free = (constants.aspect * N / 12) ** (1 / 3);
      const width = Math.max(Math.round(free), 1), depth = Math.max(Math.round(free / constants.aspect), 1);
      const activations = constants.activations * h.count * constants.batch_tokens * width * depth;
      return (constants.bytes * N + activations) / h.count;
    },
  };
  return { significant, count, flops, duration, time, loss, money, bytes, energy, percent, span, interval, number, price, hardware };
})();
