"""Random questions to a law, answered by Python and by the script in the page."""

from importlib.resources import files

import numpy as np

from allometry import InputError
from allometry.report.planner_payload import payload

SCRIPTS = [
    files("allometry.report").joinpath("templates", name)
    for name in ("planner_forms.js", "planner_law.js")
]

PREDICT = """(queries) => queries.map((at) => {
  const { lo, value, hi } = law.predict(at);
  return [lo, value, hi];
})"""
PLAN = """(queries) => queries.map(([compute, options]) => {
  try {
    const { N, D, loss } = law.plan(compute, options);
    return [N, D, loss].map((e) => e && [e.value, e.lo, e.hi]);
  } catch (error) { return null; }
})"""


def grid(rng, n=60, unique=False):
    """Runs of a Chinchilla law with noise, size and data varied independently."""
    N = 10 ** rng.uniform(6, 9, n)
    D = N * 10 ** rng.uniform(0.5, 2, n)
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * np.exp(rng.normal(0, 0.004, n))
    columns = {"N": N, "D": D, "loss": loss}
    return columns | ({"D_unique": D / np.exp(rng.uniform(0, 2, n))} if unique else {})


def page_with(browser, law):
    """A page whose script has the law as `law`."""
    page = browser.new_page()
    page.add_script_tag(content="\n".join(script.read_text() for script in SCRIPTS))
    page.evaluate("(payload) => { globalThis.law = PlannerLaw.make(payload); }", payload(law))
    return page


def points(rng, law, count):
    """Points of random pairs of N, D and C, or C alone, in and far beyond the runs."""
    N, D = 10 ** rng.uniform(5, 12, count), 10 ** rng.uniform(8, 14, count)
    C = 6 * N * D
    pairs = [("N", "D"), ("N", "C"), ("D", "C")]
    columns = {"N": N, "D": D, "C": C}
    chosen = rng.integers(0, len(pairs), count)
    return [{v: float(columns[v][i]) for v in pairs[chosen[i]]} for i in range(count)]


def expected(law, queries):
    """Ends and value of `law.predict`, one row per query, grouped by what they give."""
    found = np.empty((len(queries), 3))
    for names in {tuple(q) for q in queries}:
        rows = [i for i, q in enumerate(queries) if tuple(q) == names]
        band = law.band(**{v: np.array([queries[i][v] for i in rows]) for v in names})
        found[rows] = np.stack(band, 1)
    return found


def budgets(rng, count, allocates=True):
    """Random budgets with random limits."""
    asked = []
    for _ in range(count):
        options, kind = {}, rng.random()
        if allocates and rng.random() < 0.3:
            options["unique"] = float(10 ** rng.uniform(9, 12))
        if allocates and rng.random() < 0.3:
            options["tokens"] = float(10 ** rng.uniform(9, 14))
        if allocates and kind < 0.3:
            options["N" if kind < 0.15 else "D"] = float(10 ** rng.uniform(6.5, 11))
        asked.append((float(10 ** rng.uniform(16, 24)), options))
    return asked


def planned(law, queries):
    """`law.plan` of each query as rows of value and ends, or None if it refuses."""
    found = []
    for compute, options in queries:
        keywords = {"inference_tokens" if k == "tokens" else k: v for k, v in options.items()}
        try:
            plan = law.plan(compute, **keywords)
        except InputError:
            found.append(None)
            continue
        found.append([e and [e.value, e.lo, e.hi] for e in (plan.N, plan.D, plan.loss)])
    return found


def flat(plans):
    """The numbers of plans in one row, without missing ones, and where they are missing."""
    numbers = [x for plan in plans for e in plan or () for x in e or ()]
    missing = [plan and [e and [x is None for x in e] for e in plan] for plan in plans]
    return np.array([x for x in numbers if x is not None]), missing
