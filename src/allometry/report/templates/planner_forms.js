"use strict";
/* The forms of allometry.laws as functions of one row of parameters, and the numbers behind intervals. */
const PlannerForms = (() => {
  const MOST_NEWTON = 60;

  // ---- numbers ----------------------------------------------------------------------------

  const logAdd = (a, b) => {
    if (a === b) return a + Math.LN2;
    const top = Math.max(a, b);
    return top === -Infinity ? top : top + Math.log1p(Math.exp(-Math.abs(a - b)));
  };
  const softplus = (z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)));
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  /* Normal distribution function at z >= 0: a series of positive terms, then a continued fraction. */
  function normal(z) {
    if (z > 9) return 1;
    const density = Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);
    if (z < 3) {
      let term = z, sum = z;
      for (let k = 3; term > 1e-17 * sum; k += 2) { term *= z * z / k; sum += term; }
      return 0.5 + density * sum;
    }
    let tail = z;
    for (let k = 60; k > 0; k--) tail = z + k / tail;
    return 1 - density / tail;
  }

  /* numpy's default quantile (linear interpolation) of a sorted array. */
  function quantile(sorted, q) {
    const at = q * (sorted.length - 1), i = Math.floor(at), part = at - i;
    if (i + 1 >= sorted.length) return sorted[sorted.length - 1];
    const step = sorted[i + 1] - sorted[i];
    return part >= 0.5 ? sorted[i + 1] - step * (1 - part) : sorted[i] + step * part;
  }

  /* Half-width that covers a mixture of centred normals with the probability `target` - 1/2. */
  function mixtureHalfWidth(scale, weight, target, start) {
    let half = start * scale.reduce((a, b) => Math.min(a, b));
    for (let t = 0; t < MOST_NEWTON; t++) {
      let covered = 0, slope = 0;
      for (let s = 0; s < scale.length; s++) {
        const z = half / scale[s];
        covered += weight[s] * normal(z);
        slope += weight[s] * Math.exp(-0.5 * z * z) / scale[s];
      }
      slope /= Math.sqrt(2 * Math.PI);
      const move = Math.max(target - covered, 0) / Math.max(slope, 1e-300);
      half += Math.min(move, half);
      if (move <= 1e-13 * half) break;
    }
    return half;
  }

  // ---- forms: log loss of parameters row i at centred logs x -------------------------------

  const LOG_LOSS = {
    additive: ({ irreducible, variables }) => (t, i, x) => {
      let top = irreducible ? t[0][i] : -Infinity;
      const first = irreducible ? 1 : 0;
      for (let v = 0; v < variables.length; v++)
        top = Math.max(top, t[first + 2 * v][i] - t[first + 2 * v + 1][i] * x[v]);
      let sum = irreducible ? Math.exp(t[0][i] - top) : 0;
      for (let v = 0; v < variables.length; v++)
        sum += Math.exp(t[first + 2 * v][i] - t[first + 2 * v + 1][i] * x[v] - top);
      return top + Math.log(sum);
    },
    coupled: () => (t, i, x) => {
      const gamma = Math.exp(t[5][i]);
      const rest = logAdd((t[1][i] - t[2][i] * x[0]) / gamma, (t[3][i] - t[4][i] * x[1]) / gamma);
      return logAdd(t[0][i], gamma * rest);
    },
    kaplan: () => (t, i, x) => {
      const gamma = Math.exp(t[1][i]);
      return gamma * logAdd((t[2][i] - t[0][i] * x[0]) / gamma, (t[3][i] - gamma * x[1]) / gamma);
    },
    frontier: ({ irreducible }) => (t, i, [n, d]) => {
      const [k, gamma, g, logA, logB] = t.slice(-5).map((column) => column[i]);
      const a = Math.exp(logA), b = Math.exp(logB);
      const v = n - g - (n + d) * (b / (a + b));
      const rest = k - gamma * (n + d) + logAdd(logB - a * v, logA + b * v) - Math.log(a + b);
      return irreducible ? logAdd(t[0][i], rest) : rest;
    },
    repeated: () => (t, i, [n, d, given]) => {
      const alpha = Math.exp(t[2][i]), beta = Math.exp(t[4][i]);
      const a = t[1][i], b = t[3][i], u = Math.min(given, d);
      const effective = (repeats, scale) => -scale * Math.expm1(-Math.max(repeats, 0) / scale);
      const own = Math.min(n, (t[2][i] - t[4][i] + a - b + beta * u) / alpha);
      const size = own + Math.log1p(effective(Math.expm1(Math.min(n - own, 50)), Math.exp(t[6][i])));
      const data = u + Math.log1p(effective(Math.expm1(d - u), Math.exp(t[5][i])));
      return logAdd(t[0][i], logAdd(a - alpha * size, b - beta * data));
    },
    shifted: () => (t, i, [x]) => {
      const [e, b, c, g] = t.map((column) => column[i]);
      return e + softplus(b + c * (g + softplus(-x - g)) - e);
    },
    sigmoid: () => (t, i, [x]) => {
      const alpha = Math.exp(t[2][i]), q = t[3][i] + t[4][i] * x;
      let v = q < 0 ? q : q / alpha;
      for (let k = 0; k < 50; k++) {
        const share = 1 / (1 + Math.exp(-v));
        const move = (v + (alpha - 1) * softplus(v) - q) / (1 + (alpha - 1) * share);
        v -= move;
        if (Math.abs(move) < 1e-14 * (1 + Math.abs(v))) break;
      }
      return t[0][i] + softplus(t[1][i] + v - softplus(v) - t[0][i]);
    },
    broken: ({ breaks, flat }) => (t, i, [x]) => {
      let z = t[1][i], j = 2;
      if (!flat) { z -= t[2][i] * x; j = 3; }
      for (let k = 0; k < breaks; k++, j += 3) {
        const f = Math.exp(t[j + 2][i]);
        z -= t[j][i] * f * softplus((x - t[j + 1][i]) / f);
      }
      return t[0][i] + softplus(z - t[0][i]);
    },
  };

  return { LOG_LOSS, clamp, quantile, mixtureHalfWidth };
})();
