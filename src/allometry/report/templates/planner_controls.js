/* The controls of the planner: a text field and a slider for each amount. */
(() => {
  if (!Planner) return;
  const { given, state, find, form, changed } = Planner;
  const W = PlannerWords;

  const powers = (x) => x.toExponential().replace("e+", "e");
  const short = (x) => (x >= 1e4 && x < 1e15 ? W.count(x) : x >= 1e15 ? powers(Number(x.toPrecision(6))) : String(Number(x.toPrecision(6))));
  /* A text that reads back as the same number: 7B if that is exact, all digits if not. */
  const text = (x) => (W.number(short(x)) === x ? short(x) : x >= 1e7 ? powers(x) : String(x));
  const percent = { write: (x) => String(Number((100 * x).toPrecision(12))), read: (t) => Number(t.replace("%", "")) / 100 };
  const prices = {
    write: (x) => `${state.currency}${x}`,
    read(t) { const found = W.price(t); if (found.value > 0) state.currency = found.currency; return found.value; },
  };
  const plain = { write: text, read: W.number };

  const largest = () => { const c = Planner.current().made.seen.C; return c ? Math.exp(c[1]) : 1e18; };
  function budgetRange() {
    if (state.by === "days") return [0.01, 1000];
    if (state.by === "money") return [1, 1e9];
    return [largest() / 1e3, Math.max(largest() * 1e6, 1e24)];
  }
  const amounts = {
    budget: { ...plain, range: budgetRange },
    count: { ...plain, range: () => [1, 100000], round: Math.round },
    mfu: { ...percent, range: () => [0.01, 1], linear: true },
    price: { ...prices, range: () => [0.1, 20], optional: true },
    fixed: { ...plain, range: () => [1e3, 1e13] },
    unique: { ...plain, range: () => [1e3, 1e15], optional: true },
    tokens: { ...plain, range: () => [1e3, 1e16], optional: true },
  };

  const toSlider = ({ range, linear }, x) => {
    const [low, high] = range();
    return linear ? (x - low) / (high - low) : Math.log(x / low) / Math.log(high / low);
  };
  const fromSlider = ({ range, linear, round }, t) => {
    const [low, high] = range();
    const x = linear ? low + t * (high - low) : low * (high / low) ** t;
    return round ? round(x) : Number(x.toPrecision(linear ? 2 : 3));
  };
  function place(name, field = true) {
    const amount = amounts[name], value = state[name];
    const box = find(name), slider = find(`${name}-slider`), set = value !== null && value !== undefined;
    if (field) box.value = set ? amount.write(value) : "";
    box.removeAttribute("aria-invalid");
    slider.value = set ? String(toSlider(amount, value)) : "0";
    slider.setAttribute("aria-valuetext", set ? amount.write(value) : "none");
  }
  for (const [name, amount] of Object.entries(amounts)) {
    const box = find(name), slider = find(`${name}-slider`);
    box.addEventListener("input", () => {
      const empty = amount.optional && box.value.trim() === "";
      const value = empty ? null : amount.read(box.value);
      if (!empty && !Planner.good(name, value)) { box.setAttribute("aria-invalid", "true"); return; }
      state[name] = value;
      if (name === "price" && empty && state.by === "money") setBy("flops");
      place(name, false);
      changed();
    });
    box.addEventListener("change", () => place(name));
    slider.addEventListener("input", () => {
      state[name] = fromSlider(amount, Number(slider.value));
      place(name);
      changed();
    });
  }

  const UNITS = {
    flops: ["FLOP", "Such as 1e21 or 2 ZFLOP."],
    money: ["", "Such as 50000 or 50K, at the price below."],
    days: ["days", "Days of all accelerators below."],
  };
  /* Another unit of the budget: the compute stays. */
  function setBy(by) {
    const compute = Planner.compute(), h = Planner.hardware(), H = W.hardware;
    if (by === "money" && !state.price) {
      find("price").focus();
      find("error").textContent = "Give the price of one accelerator-hour first.";
      find("error").hidden = false;
      form.querySelector(`[name="planner-by"][value="${state.by}"]`).checked = true;
      return;
    }
    const inUnit = { flops: compute, money: H.cost(h, compute), days: H.hours(h, compute) / 24 }[by];
    state.by = by;
    state.budget = Number(inUnit.toPrecision(4));
    arrange();
    changed();
  }
  function arrange() {
    const [unit, hint] = UNITS[state.by];
    find("budget").parentElement.querySelector(".unit-of").textContent = state.by === "money" ? state.currency : unit;
    find("budget-hint").textContent = hint;
    find("accelerator").value = state.on;
    const { peak_flops, memory } = Planner.hardware();
    find("accelerator-hint").textContent = `${W.flops(peak_flops)}/s peak in bf16${memory ? `, ${W.bytes(memory)}` : ""}.`;
    for (const group of ["by", "fix"])
      form.querySelector(`[name="planner-${group}"][value="${state[group]}"]`).checked = true;
    const kind = Planner.current().made.kind;
    for (const part of document.querySelectorAll("#planner [data-needs]")) part.hidden = part.dataset.needs !== kind;
    form.querySelector('[data-control="fixed"]').hidden = state.fix === "none";
    const label = form.querySelector('label[for="planner-fixed"]');
    label.textContent = state.fix === "D" ? `Data D, ${Planner.current().token}s` : "Size N, parameters";
    if (find("law")) find("law").value = String(state.law);
    for (const name of Object.keys(amounts)) place(name);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const radio of form.querySelectorAll('[name="planner-by"]')) radio.addEventListener("change", () => setBy(radio.value));
  for (const radio of form.querySelectorAll('[name="planner-fix"]')) radio.addEventListener("change", () => {
    const { N, D } = Planner.answer();
    state.fix = radio.value;
    if (state.fix !== "none") state.fixed = Number((state.fix === "N" ? N : D).value.toPrecision(3));
    arrange();
    changed();
  });
  find("accelerator").addEventListener("change", () => { state.on = find("accelerator").value; arrange(); changed(); });
  if (find("law")) find("law").addEventListener("change", () => {
    state.law = Number(find("law").value);
    arrange();
    changed();
  });

  for (const button of document.querySelectorAll("#planner [data-copy]")) button.addEventListener("click", async () => {
    const copied = Planner.show(button.dataset.copy), said = find("copied");
    let done = false;
    try { await navigator.clipboard.writeText(copied); done = true; } catch {
      find("text").select();
      try { done = document.execCommand("copy"); } catch { /* the text is selected: the user copies it */ }
    }
    said.textContent = done ? `Copied the ${button.textContent.toLowerCase() === "csv" ? "CSV" : button.textContent.toLowerCase()}.` : "Press Ctrl+C to copy.";
  });

  addEventListener("hashchange", () => { if (Planner.read(location.hash)) { arrange(); changed(); } });
  const asked = Planner.read(location.hash);
  arrange();
  Planner.update();
  if (asked) document.getElementById("planner").scrollIntoView();
})();
