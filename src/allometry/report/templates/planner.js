/* The planner: controls, state in the URL fragment, results, charts and copies. */
const Planner = (() => {
  const data = document.getElementById("planner-data");
  if (!data) return null;
  const given = JSON.parse(data.content.textContent);
  const W = PlannerWords, H = W.hardware;
  const laws = given.laws.map((each) => ({ ...each, made: null }));
  const find = (id) => document.getElementById(`planner-${id}`);
  const form = find("form");

  // ---- state ------------------------------------------------------------------------------

  /* Amounts are numbers or null; the text in a field is only their appearance. */
  const start = { law: 0, by: "flops", budget: null, on: given.accelerators[0].name, fix: "none", currency: "$", ...given.start };
  const state = { ...start };
  const NUMBERS = ["budget", "count", "mfu", "price", "fixed", "unique", "tokens"];
  /* Whether a number is a value that the field may have. */
  const good = (key, x) => x > 0 && Number.isFinite(x)
    && (key !== "mfu" || x <= 1) && (key !== "count" || (Number.isInteger(x) && x <= 1e7));

  function read(fragment) {
    const asked = new URLSearchParams(fragment.replace(/^#/, ""));
    if (!asked.has("planner")) return false;
    Object.assign(state, start, { price: null, unique: null, tokens: null, fixed: null });
    const one = (key, allowed) => { if (allowed.includes(asked.get(key))) state[key] = asked.get(key); };
    one("by", ["flops", "money", "days"]);
    one("fix", ["none", "N", "D"]);
    one("on", given.accelerators.map((a) => a.name));
    if (/^([$€£]|[A-Z]{3} )$/.test(asked.get("currency") ?? "")) state.currency = asked.get("currency");
    if (laws[Number(asked.get("law"))]) state.law = Number(asked.get("law"));
    for (const key of NUMBERS) {
      const value = Number(asked.get(key));
      if (asked.get(key) && good(key, value)) state[key] = value;
    }
    if (state.by === "money" && !state.price) state.by = "flops";
    return true;
  }
  function fragment() {
    const said = new URLSearchParams({ planner: "", by: state.by });
    for (const key of NUMBERS) if (state[key] !== null && state[key] !== undefined) said.set(key, String(state[key]));
    said.set("on", state.on);
    said.set("fix", state.fix);
    if (state.price) said.set("currency", state.currency);
    if (laws.length > 1) said.set("law", String(state.law));
    return `#${said.toString()}`;
  }
  const link = () => location.href.replace(/#.*$/, "") + fragment();

  // ---- the plan ---------------------------------------------------------------------------

  const current = () => {
    const law = laws[state.law];
    law.made ??= PlannerLaw.make(law.payload);
    return law;
  };
  const hardware = () => {
    const accelerator = given.accelerators.find((a) => a.name === state.on);
    return { ...accelerator, count: state.count, mfu: state.mfu, price: state.price };
  };
  function compute() {
    if (state.by === "days") return H.computeInDays(hardware(), state.budget);
    if (state.by === "money") return H.computeFor(hardware(), state.budget);
    return state.budget;
  }
  function options() {
    if (current().made.kind !== "allocation") return {};
    const asked = { unique: state.unique || undefined, tokens: state.tokens || undefined };
    if (state.fix !== "none" && state.fixed) asked[state.fix] = state.fixed;
    return asked;
  }
  /* Everything the panel shows, as numbers. */
  function answer() {
    const h = hardware(), plan = current().made.plan(compute(), options());
    const N = plan.N && plan.N.value;
    return {
      ...plan,
      hours: H.hours(h, plan.compute),
      accelerator_hours: H.acceleratorHours(h, plan.compute),
      cost: H.cost(h, plan.compute),
      energy: H.energy(h, plan.compute),
      memory: N ? H.memory(h, N, given.memory) : null,
      hardware: h,
    };
  }

  // ---- words ------------------------------------------------------------------------------

  const many = (x, noun) => { const text = W.count(x); return `${text} ${noun}${text === "1" ? "" : "s"}`; };
  function notes(a) {
    const { token, payload } = current();
    const said = [];
    if (a.unidentified)
      said.push(`The allocation between N and D is not identified: in ${Math.round(100 * a.unidentified)} % of the fits no finite size is optimal.`);
    if (a.beyond)
      said.push(`The budget is ${W.count(a.beyond)} times the largest run, further than the runs themselves span: backtests don't reach that far.`);
    if (a.passes) said.push(`The plan takes ${W.significant(a.passes, 2)} passes over the unique ${token}s; repeated data are discounted.`);
    if (a.memory && a.hardware.memory && a.memory > a.hardware.memory)
      said.push(`Training takes ${W.bytes(a.memory)} per accelerator; ${a.hardware.name} has ${W.bytes(a.hardware.memory)}. Use more accelerators.`);
    if (payload.kind === "path")
      said.push("N and D of the runs follow one path, and so does the plan. These runs do not identify the compute-optimal allocation.");
    if (payload.kind === "compute")
      said.push("The law is in compute alone: N and D follow the trend of the runs, which is not an optimum.");
    return said;
  }
  /* The answer in a line, which stays in sight on a narrow screen. */
  function summary(a) {
    const parts = [`Loss ${W.loss(a.loss.value)} (${W.span(a.loss, W.loss)})`];
    if (a.N) parts.push(`N ${W.count(a.N.value)}`, `D ${W.count(a.D.value)}`);
    parts.push(W.time(a.hours));
    if (a.cost !== null) parts.push(W.money(a.cost, state.currency));
    return parts.join(" · ");
  }
  function sentence(a) {
    const { unit, token } = current(), h = a.hardware;
    const price = h.price ? `, ${W.money(a.cost, state.currency)} at ${W.money(h.price, state.currency)} per accelerator-hour` : "";
    const spent = `With ${W.flops(a.compute)} (${W.time(a.hours)} on ${h.count} ${h.name} at ${W.percent(h.mfu)} utilisation${price})`;
    const size = a.N ? `, ${many(a.N.value, "parameter")} (${W.interval(a.N, W.count)}) on ${many(a.D.value, token)} (${W.interval(a.D, W.count)})` : "";
    const limits = [options().unique ? `${W.count(state.unique)} unique ${token}s` : "",
      options().tokens ? `${W.count(state.tokens)} tokens of inference from the same budget` : ""].filter(Boolean);
    const under = limits.length ? `, with ${limits.join(" and ")}` : "";
    return `${spent}${under}${size} reach a loss of ${W.loss(a.loss.value)} ${unit} (${W.interval(a.loss, W.loss)}). ${notes(a).join(" ")}`.trim();
  }
  function csv(a) {
    const h = a.hardware, asked = options();
    const row = {
      compute: a.compute, N: a.N?.value, N_lo: a.N?.lo, N_hi: a.N?.hi, D: a.D?.value, D_lo: a.D?.lo, D_hi: a.D?.hi,
      loss: a.loss.value, loss_lo: a.loss.lo, loss_hi: a.loss.hi, hours: a.hours, cost: a.cost, currency: h.price ? state.currency : "",
      energy_kwh: a.energy, memory_per_accelerator: a.memory, accelerator: h.name, count: h.count, mfu: h.mfu, price_per_hour: h.price,
      unique: asked.unique, inference_tokens: asked.tokens,
    };
    return `${Object.keys(row).join(",")}\n${Object.values(row).map((v) => v ?? "").join(",")}\n`;
  }
  function command(a) {
    const asked = options(), h = a.hardware, words = ["allometry", "plan", given.source];
    if (state.by === "flops") words.push("--compute", String(a.compute));
    else words.push(`--${state.by}`, String(state.budget));
    if (state.by !== "flops" || h.price) words.push("--hardware", `${h.count}x${h.name}`, "--mfu", String(h.mfu));
    if (h.price) words.push("--price", `${state.currency}${h.price}/h`);
    if (current().family) words.push("--family", current().family);
    for (const [flag, value] of [["--size", asked.N], ["--tokens", asked.D], ["--unique-tokens", asked.unique], ["--inference-tokens", asked.tokens]])
      if (value) words.push(flag, String(value));
    const quoted = (word) => (/^[\w.,:\/+@%=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    return words.map(quoted).join(" ");
  }
  const COPIES = { sentence, csv, command, link };

  // ---- showing ----------------------------------------------------------------------------

  function fact(label, value, detail, estimate) {
    const box = document.createElement("div"), term = document.createElement("dt"), said = document.createElement("dd");
    const strong = document.createElement("strong");
    term.textContent = label;
    strong.textContent = value;
    said.append(strong, detail);
    box.append(term, said);
    box.dataset.fact = label;
    if (estimate !== undefined) box.dataset.value = JSON.stringify(estimate);
    return box;
  }
  const bare = (e) => ({ value: e.value, lo: e.lo, hi: e.hi });
  function facts(a) {
    const { unit, token } = current(), h = a.hardware, made = [];
    made.push(fact("Loss", W.loss(a.loss.value), `${unit}, ${W.interval(a.loss, W.loss)}`, bare(a.loss)));
    if (a.N) made.push(fact("Size N", W.count(a.N.value), `parameters, ${W.interval(a.N, W.count)}`, bare(a.N)));
    if (a.D) made.push(fact("Data D", W.count(a.D.value), `${token}s, ${W.interval(a.D, W.count)}`, bare(a.D)));
    made.push(fact("Compute", W.flops(a.compute), "training and inference", a.compute));
    made.push(fact("Time", W.time(a.hours), `on ${h.count} ${h.name}, ${W.count(a.accelerator_hours)} accelerator-hours`, a.hours));
    made.push(fact("Money", a.cost === null ? "–" : W.money(a.cost, state.currency), a.cost === null ? "give a price" : `at ${W.money(h.price, state.currency)} per accelerator-hour`, a.cost));
    if (a.energy !== null) made.push(fact("Energy", W.energy(a.energy), "at rated power", a.energy));
    if (a.memory !== null) made.push(fact("Memory", W.bytes(a.memory), "per accelerator, fully sharded", a.memory));
    return made;
  }

  const lines = new Map();
  /* The law at the compute-optimal allocation on a fixed grid of compute; points are kept. */
  function frontier(law, from, to) {
    const points = [];
    if (!lines.has(state.law)) lines.set(state.law, new Map());
    const kept = lines.get(state.law), last = Math.ceil((Math.log(to) - Math.log(from)) / 0.35);
    const every = Math.ceil(last / 70);
    for (let k = 0; k <= last; k += every) {
      if (!kept.has(k)) {
        const x = from * Math.exp(0.35 * k);
        try {
          const at = law.made.kind === "allocation" ? { N: law.made.bestSize(x), C: x } : { C: x };
          const { lo, value, hi } = law.made.predict(at);
          kept.set(k, { x, lo, mid: value, hi });
        } catch { kept.set(k, null); }
      }
      if (kept.get(k)) points.push(kept.get(k));
    }
    return points;
  }
  function drawCompute(a) {
    const law = current(), seen = law.made.seen.C;
    const low = Math.exp(seen[0]), high = Math.exp(seen[1]);
    const to = Math.max(high * 3, a.compute * 2), from = Math.min(low, a.compute / 2);
    const line = frontier(law, low, to);
    PlannerCharts.draw(find("compute"), {
      line, dots: law.runs, known: high * 1.001, xTitle: "Training compute, FLOP", write: (x) => W.flops(x).replace(/ ?FLOP$/, ""),
      mark: { x: Math.max(a.compute, from), loss: a.loss },
      label: `Loss against compute. At ${W.flops(a.compute)} the loss is ${W.loss(a.loss.value)}, ${W.interval(a.loss, W.loss)}.`,
    });
  }
  function drawSize(a) {
    const law = current();
    if (law.made.kind !== "allocation") return;
    const centre = Math.log(a.N.value), limits = { ...options(), N: undefined, D: undefined };
    const line = [];
    for (let k = -18; k <= 18; k++) {
      const N = Math.exp(centre + k * 0.14);
      try {
        const { lo, value, hi } = law.made.plan(a.compute, { ...limits, N }).loss;
        line.push({ x: N, lo, mid: value, hi });
      } catch { /* beyond the budget: inference alone costs more */ }
    }
    PlannerCharts.draw(find("size"), {
      line, xTitle: `Parameters, at ${W.flops(a.compute)}`, write: W.count,
      mark: { x: a.N.value, lo: a.N.exact ? null : a.N.lo, hi: a.N.exact ? null : a.N.hi, loss: a.loss },
      label: `Loss against size at ${W.flops(a.compute)}. The plan has ${W.count(a.N.value)} parameters, ${W.interval(a.N, W.count)}.`,
    });
  }

  let shown = null, waiting = 0, later = 0, copied = "sentence";
  function update() {
    waiting = 0;
    const error = find("error");
    try {
      shown = answer();
      error.hidden = true;
    } catch (problem) {
      error.textContent = problem.message;
      error.hidden = false;
      return;
    }
    find("summary").textContent = summary(shown);
    find("facts").replaceChildren(...facts(shown));
    find("notes").replaceChildren(...notes(shown).map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
    find("text").value = COPIES[copied](shown);
    clearTimeout(later);
    later = setTimeout(() => { drawCompute(shown); drawSize(shown); }, 30);
    if (moved) {
      try { history.replaceState(null, "", fragment()); } catch { /* some browsers refuse on disk */ }
    }
  }
  let moved = false;
  function changed() {
    moved = true;
    if (!waiting) waiting = requestAnimationFrame(update);
  }

  return { given, laws, state, good, read, fragment, link, answer, compute, hardware, current, COPIES, find, form, changed, update,
    show(kind) { copied = kind; find("text").value = COPIES[kind](shown); return find("text").value; } };
})();
