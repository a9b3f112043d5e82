/* A fitted scaling law in the page: `law.predict` and `law.plan` of allometry.laws, step by step.

   Python is the reference: tests/report/test_planner_evaluator.py compares both on random queries.
   Everything works on natural logarithms. Row 0 of a column is the fit, the rest are its draws. */
const PlannerLaw = (() => {
  const { LOG_LOSS, clamp, quantile, mixtureHalfWidth } = PlannerForms;
  const GRID = 600, SEARCH = 241, REACH = 12, COARSE = 10;
  const UNCALIBRATED = { kappa: 0, rate: 0, spread: 0, reach: 0, moves_value: true };

  // ---- payload ----------------------------------------------------------------------------

  /* A column of numbers: 32-bit steps from its lowest to its highest value, in base64. */
  function unpacked({ low, step, data }) {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float64Array.from({ length: bytes.length / 4 }, (_, i) => low + step * view.getUint32(4 * i, true));
  }
  /* The same with the value of the fit in front. */
  function column(first, packed) {
    const rest = unpacked(packed);
    const all = new Float64Array(rest.length + 1);
    all[0] = first;
    all.set(rest, 1);
    return all;
  }
  const components = (members) => members.map((m) => ({
    ...m,
    columns: m.theta.map((value, j) => column(value, m.draws[j])),
    log: LOG_LOSS[m.kind](m),
  }));

  // ---- rows -------------------------------------------------------------------------------

  const centred = (member, logs) => member.variables.map((name, v) => logs[name] - member.centre[v]);
  /* Weighted mean of the members for row i. */
  function average(members, points, i) {
    let total = 0;
    for (let k = 0; k < members.length; k++)
      total += members[k].weight * members[k].log(members[k].columns, i, points[k]);
    return total;
  }
  const rows = (members) => members[0].columns[0].length;

  // ---- the law ----------------------------------------------------------------------------

  function make(payload) {
    const members = components(payload.members);
    const { cost: prices, path, seen, interval, variables } = payload;
    const allocation = payload.allocation && {
      ...payload.allocation,
      members: payload.allocation.members ? components(payload.allocation.members) : members,
    };
    if (allocation && allocation.prior) {
      const { growth, start } = allocation.prior;
      allocation.growth = column(growth.first, growth.draws);
      allocation.start = column(start.first, start.draws);
    }
    const low = prices.low ?? -Infinity, high = prices.high ?? Infinity;
    const cost = {
      ratio: (n) => prices.level + prices.slope * (clamp(n, low, high) - prices.mid),
      compute: (n, d) => n + d + cost.ratio(n),
      data: (c, n) => c - n - cost.ratio(n),
      size(c, d) {
        let n = c - d - prices.level;
        for (let k = 0; k < 60; k++) n = c - d - cost.ratio(n);
        return n;
      },
    };
    const along = {
      at: (name, c) => path.of[name][0] + path.of[name][1] * (c - path.mean),
      compute: (name, x) => path.mean + (x - path.of[name][0]) / path.of[name][1],
    };
    const has = (...names) => names.every((name) => variables.includes(name));

    // -- the compute-optimal allocation

    const middle = (c) => payload.central.N + 0.5 * (c - payload.central.C);
    function grid(c, count) {
      const from = middle(c) - REACH, step = 2 * REACH / (count - 1);
      return Float64Array.from({ length: count }, (_, i) => from + step * i);
    }
    /* Position of the lowest value: a coarse search, then every point beside its local minima. */
    function lowest(values, last) {
      const coarse = [];
      for (let i = 0; i < last; i += COARSE) coarse.push(i);
      coarse.push(last);
      const at = coarse.map(values);
      let best = 0, least = Infinity;
      for (let k = 0; k < coarse.length; k++) {
        if (at[k] > at[k - 1] || at[k] > at[k + 1]) continue; // comparisons with undefined are false
        const end = coarse[Math.min(k + 1, coarse.length - 1)];
        for (let i = coarse[Math.max(k - 1, 0)]; i <= end; i++) {
          const value = values(i);
          if (value < least) { least = value; best = i; }
        }
      }
      return best;
    }
    /* Log size of the minimum of each row at points of a grid of sizes, and whether at its edge. */
    function minima(chooser, n, points, last, count) {
      const size = new Float64Array(count), step = n[1] - n[0];
      let edges = 0, firstEdge = false;
      for (let row = 0; row < count; row++) {
        const value = (i) => (i > last ? Infinity : average(chooser, points[i], row));
        const i = lowest(value, last);
        const edge = i === 0 || i === n.length - 1;
        if (row === 0) firstEdge = edge; else edges += edge;
        const j = clamp(i, 1, n.length - 2), a = value(j - 1), b = value(j), c = value(j + 1);
        const bend = a - 2 * b + c;
        const shift = Number.isFinite(bend) && bend > 0 ? 0.5 * (a - c) / bend : 0;
        size[row] = edge ? n[i] : n[j] + clamp(shift, -1, 1) * step;
      }
      return { size, firstEdge, edges: count > 1 ? edges / (count - 1) : 0 };
    }
    /* Optimal sizes at log compute c without limits on data: of the fit alone or of every row. */
    function lowestSizes(c, count) {
      const n = grid(c, SEARCH), chooser = allocation.members;
      const points = Array.from(n, (x) => {
        const logs = { N: x, D: cost.data(c, x), C: c };
        return chooser.map((m) => centred(m, logs));
      });
      return minima(chooser, n, points, n.length - 1, count).size;
    }
    /* The effect of the prior of the exponent beyond the runs. */
    function priorShifts(c, count) {
      const shifts = new Float64Array(count), prior = allocation.prior;
      const far = prior ? c - prior.max_log_compute : 0;
      if (!prior || prior.data_weight === 1 || far <= 0) return shifts;
      const end = lowestSizes(c, count);
      for (let i = 0; i < count; i++)
        shifts[i] = (1 - prior.data_weight) * (allocation.growth[i] * far - (end[i] - allocation.start[i]));
      return shifts;
    }
    const bestSize = (c) => lowestSizes(c, 1)[0] + priorShifts(c, 1)[0];

    function sizeEstimate(best, c) {
      const value = best[0];
      if (best.length < 20) return { value: Math.exp(value), lo: null, hi: null };
      const sorted = best.slice(1).sort();
      let lo = quantile(sorted, 0.025), hi = quantile(sorted, 0.975);
      const error = allocation.error;
      if (error) {
        const far = Math.max(c - error.max_log_compute, 0);
        const least = Math.max((hi - lo) / (4 * 1.96), 1e-9);
        const side = (gap) => {
          const own = Math.max(Math.max(gap, 0) / 1.96, least);
          const scale = error.tau.map((tau) => Math.sqrt(own * own + tau * tau * far * far));
          return mixtureHalfWidth(scale, error.weight, interval.target, interval.quantile);
        };
        [lo, hi] = [value - side(value - lo), value + side(hi - value)];
      }
      return { value: Math.exp(value), lo: Math.exp(Math.min(lo, value)), hi: Math.exp(Math.max(hi, value)) };
    }

    // -- coordinates

    function coordinate(name, given) {
      if (name in given) return given[name];
      if (name === "C" && "N" in given && "D" in given) return cost.compute(given.N, given.D);
      if (name === "D" && "N" in given && "C" in given) return cost.data(given.C, given.N);
      if (name === "N" && "D" in given && "C" in given) return cost.size(given.C, given.D);
      if (name === "D_unique") return coordinate("D", given);
      const names = Object.keys(given);
      if (path && names.length === 1) {
        const c = names[0] === "C" ? given.C : along.compute(names[0], given[names[0]]);
        return name === "C" ? c : along.at(name, c);
      }
      throw new Error(`law must be given ${variables.join(" and ")} (or two of N, D, C)`);
    }
    function points(at) {
      const given = {};
      for (const [name, value] of Object.entries(at)) {
        if (!(value > 0 && Number.isFinite(value))) throw new Error(`${name} must be positive and finite`);
        given[name] = Math.log(value);
      }
      if (Object.keys(given).join() === "C" && has("N", "D") && !path) given.N = bestSize(given.C);
      const logs = {};
      for (const name of variables) logs[name] = coordinate(name, given);
      if (!("C" in logs) && "N" in logs && "D" in logs) logs.C = cost.compute(logs.N, logs.D);
      return logs;
    }

    // -- predictions

    /* Distance from the range of the runs, in e-folds of a form's variables. */
    function distance(member, logs) {
      let far = 0;
      for (const name of member.variables)
        far += Math.max(0, logs[name] - seen[name][1], seen[name][0] - logs[name]) ** 2;
      far = Math.sqrt(far);
      if (member.variables.length === 2 && "C" in logs && "C" in seen)
        far = Math.max(far, (logs.C - seen.C[1]) / Math.SQRT2);
      return far;
    }
    function halfWidth(variance, far) {
      const scale = [], known = variance + interval.noise ** 2;
      for (const inflation of interval.inflation)
        for (const tau of interval.tau) scale.push(Math.sqrt(known * inflation + tau * tau * far * far));
      return mixtureHalfWidth(scale, interval.weight, interval.target, interval.quantile);
    }
    /* Decline of the average from the nearest point within the runs, and the e-folds from there. */
    function beyondRuns(logs, mid) {
      const back = {};
      for (const name of variables) back[name] = Math.min(logs[name], seen[name][1]);
      if ("N" in back && "D" in back && "C" in logs && "C" in seen) {
        const c = logs.C - (logs.N - back.N) - (logs.D - back.D), excess = Math.max(c - seen.C[1], 0);
        Object.assign(back, { N: back.N - excess / 2, D: back.D - excess / 2, C: c - excess });
      }
      const at = members.map((m) => centred(m, back));
      const beyond = "C" in back ? (logs.C - back.C) / 2 : Math.max(...Object.keys(back).map((v) => logs[v] - back[v]));
      return { decline: Math.max(average(members, at, 0) - mid, 0), beyond };
    }
    /* Logs of lower end, value and upper end. */
    function logBand(logs) {
      const at = members.map((m) => centred(m, logs));
      const each = members.map((m, k) => m.log(m.columns, 0, at[k]));
      const mid = members.reduce((sum, m, k) => sum + m.weight * each[k], 0);
      const between = interval.between
        * members.reduce((sum, m, k) => sum + m.weight * (each[k] - mid) ** 2, 0);
      const { kappa, rate, spread, reach, draws: drawsShare, moves_value: moves }
        = interval.calibration ?? UNCALIBRATED;
      const outside = Math.max(...members.map((m) => distance(m, logs)));
      let below = between, above = between;
      const count = rows(members);
      if (count > 1) {
        const draws = new Float64Array(count - 1);
        for (let i = 1; i < count; i++) draws[i - 1] = average(members, at, i);
        draws.sort();
        const low = quantile(draws, 0.025), high = quantile(draws, 0.975), least = (high - low) / (4 * 1.96);
        const share = (drawsShare ?? 1) ** Math.min(outside, 1);
        below += share * Math.max(Math.max(mid - low, 0) / 1.96, least) ** 2;
        above += share * Math.max(Math.max(high - mid, 0) / 1.96, least) ** 2;
      }
      const { decline, beyond } = beyondRuns(logs, mid);
      // Beyond the reach of the calibration every e-fold counts twice.
      const far = outside + (reach ? Math.max(beyond - reach, 0) : 0);
      const extra = (interval.few.distance * far) ** 2 + (interval.few.decline * decline) ** 2 + (spread * decline) ** 2;
      const centre = mid - kappa * decline - rate * Math.min(beyond, reach);
      const lo = centre - halfWidth(below + extra, far), hi = centre + halfWidth(above + extra, far);
      return moves ? [lo, centre, hi] : [Math.min(lo, mid), mid, Math.max(hi, mid)];
    }
    /* The loss of a new run with its 95 % interval, at {N, D}, {N, C}, {D, C} or {C}. */
    function predict(at) {
      const [lo, value, hi] = logBand(points(at)).map(Math.exp);
      return { value, lo, hi };
    }

    // -- plans

    const { inference, repetition } = payload.constants;
    function effectiveData(data, unique) {
      if (!unique || data <= unique || has("D_unique")) return data;
      return unique * (1 - repetition * Math.expm1(-(data / unique - 1) / repetition));
    }
    /* Log compute that is left for training after inference. */
    const left = (c, n, tokens) => (tokens ? c + Math.log(Math.max(1 - inference * tokens * Math.exp(n - c), 0)) : c);

    function optimal(c, unique, tokens) {
      const n = grid(c, GRID), chooser = allocation.members;
      const d = n.map((x) => cost.data(left(c, x, tokens), x));
      let last = n.length - 1;
      while (last > 0 && !Number.isFinite(d[last])) last--;
      const at = Array.from(n, (x, i) => {
        const logs = { N: x, D: d[i], C: left(c, x, tokens) };
        if (unique) {
          logs.D_unique = Math.min(Math.log(unique), d[i]);
          logs.D = Math.log(effectiveData(Math.exp(d[i]), unique));
        } else if (has("D_unique")) logs.D_unique = d[i];
        return chooser.map((m) => centred(m, logs));
      });
      const count = rows(chooser);
      const best = minima(chooser, n, at, last, count);
      const shifts = priorShifts(c, count);
      const N = sizeEstimate(best.size.map((x, i) => x + shifts[i]), c);
      const data = (size) => {
        const x = Math.log(size);
        if (x <= n[0]) return Math.exp(d[0]);
        if (x >= n[GRID - 1]) return Math.exp(d[GRID - 1]);
        const i = clamp(Math.floor((x - n[0]) / (n[1] - n[0])), 0, GRID - 2);
        const j = x < n[i] ? i - 1 : x >= n[i + 1] ? i + 1 : i;
        // Sizes whose inference alone takes the budget leave no data: minus infinity at both ends.
        return x === n[j] || d[j] === d[j + 1] ? Math.exp(d[j]) : Math.exp(d[j] + (x - n[j]) * (d[j + 1] - d[j]) / (n[j + 1] - n[j]));
      };
      const D = { value: data(N.value), lo: N.hi && data(N.hi), hi: N.lo && data(N.lo) };
      const unidentified = best.firstEdge || best.edges > 0.025 ? Math.max(best.edges, Number(best.firstEdge)) : 0;
      return { N, D, unidentified };
    }
    const exact = (value) => ({ value, lo: value, hi: value, exact: true });
    /* How to spend a budget in FLOPs: N and D with intervals, and the loss of such a run. */
    function plan(compute, { N, D, unique, tokens } = {}) {
      if (!(compute > 0 && Number.isFinite(compute))) throw new Error("The budget must be positive.");
      const c = Math.log(compute);
      const far = "C" in seen ? compute / Math.exp(seen.C[1]) : 0;
      const beyond = far > Math.max(Math.exp((seen.C?.[1] ?? 0) - (seen.C?.[0] ?? 0)), 10) ? far : 0;
      if (payload.kind === "path") {
        const d = along.at("D", c);
        const n = path.of.D[1] === 0 ? cost.size(c, d) : along.at("N", c);
        const [size, data] = [Math.exp(n), Math.exp(d)];
        const none = (value) => ({ value, lo: null, hi: null });
        return { compute, N: none(size), D: none(data), loss: predict({ N: size, D: data }), beyond, unidentified: 0, passes: 0 };
      }
      if (payload.kind === "compute") {
        const trend = payload.trend, none = (value) => ({ value, lo: null, hi: null });
        const n = trend && trend.N + trend.slope * (c - trend.C);
        return {
          compute, loss: predict({ C: compute }), beyond, unidentified: 0, passes: 0,
          N: trend && none(Math.exp(n)), D: trend && none(Math.exp(cost.data(c, n))),
        };
      }
      let found;
      if (N || D) {
        let n = N ? Math.log(N) : cost.size(c, Math.log(D));
        if (D && tokens) n += Math.log(1 / (1 + inference * tokens / (Math.exp(cost.ratio(n)) * D)));
        const d = cost.data(left(c, n, tokens), n);
        if (!Number.isFinite(d)) throw new Error("The budget must pay for some training beside inference.");
        found = { N: exact(Math.exp(n)), D: exact(Math.exp(d)), unidentified: 0 };
      } else found = optimal(c, unique, tokens);
      const at = { N: found.N.value, D: effectiveData(found.D.value, unique) };
      if (unique && has("D_unique")) at.D_unique = unique;
      if (!(at.D > 0)) throw new Error("The budget must pay for some training beside inference.");
      const passes = unique && found.D.value > unique ? found.D.value / unique : 0;
      return { compute, ...found, loss: predict(at), beyond, passes };
    }

    return { predict, plan, bestSize: (C) => Math.exp(bestSize(Math.log(C))), kind: payload.kind, seen };
  }
  return { make };
})();
