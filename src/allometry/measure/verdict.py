"""A one-sentence verdict on samples, from the computed metrics, with its reasons.

The rules use two-sample tests first: samples that no test separates from the data have no fault.
Then they use the location of the samples: inside parts of the data (collapsed), around the data
(blurred), beside them (shifted), or on the training rows (memorised). Thresholds were chosen on a
ring of eight Gaussians and a table of four columns, seeds 0 to 4, and tested on other data and
seeds (`bench/verdicts.py`): 193 of 200 verdicts were right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.estimate import Estimate

LEVEL = 0.005
"""p-values at or below it reject: three tests have a false-positive rate of at most 1.5 %."""
FEWEST = 50
"""Smallest number of rows of each set for a verdict."""

NEEDED = ("precision", "recall", "density", "coverage", "nearest_neighbour_p_value")
TESTS = {
    "nearest_neighbour_p_value": "nearest neighbours",
    "classifier_p_value": "network",
    "efron_p_value": "energy",
}
KINDS = {
    "good": "no test separates the samples from the data",
    "collapsed": "samples lie inside the data but leave out parts of them",
    "blurred": "samples lie around the data, not inside them",
    "shifted": "samples lie beside the data",
    "memorised": "samples copy training rows",
    "different": "tests separate the samples from the data, by none of the known faults",
}


@final
@dataclass(frozen=True)
class SampleVerdict:
    """The faults of samples, if any.

    Args:
        kind: One of `KINDS`; the first of `faults`, or `good`.
        reasons: The metrics behind the verdict.
        faults: All faults found.
        notes: Faults that could not be checked.
    """

    kind: str
    reasons: list[str]
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """One line: `collapsed: recall 0.007, ...`."""
        name = "no fault found" if self.kind == "good" else self.kind
        return f"{name}: {', '.join(self.reasons)}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the same keys as a metric."""
        return {
            **dict.fromkeys(("value", "se", "lo", "hi")),
            "features": "",
            "kind": self.kind,
            "meaning": KINDS[self.kind],
            "summary": self.summary,
            "reasons": self.reasons,
            "faults": self.faults,
            "notes": self.notes,
        }


def judge(
    found: Mapping[str, Estimate], real: Float[Tensor, "n d"], samples: Float[Tensor, "m d"]
) -> SampleVerdict | None:
    """The verdict, or None if metrics that it needs are missing or there are too few rows.

    Args:
        found: Metrics by name, as `score` computes them.
        real: Features of the data.
        samples: Features of the samples.
    """
    if min(len(real), len(samples)) < FEWEST or not all(name in found for name in NEEDED):
        return None
    faults = _copy_fault(found)
    p = {name: found[name].value for name in TESTS if name in found}
    if min(p.values()) <= LEVEL:
        faults |= _location_fault(found, real, samples)
    notes = [] if "copying" in found else ["copies were not checked: give --training"]
    if not faults:
        reasons = [f"p {value:.3g} ({TESTS[name]})" for name, value in p.items()]
        return SampleVerdict("good", [*reasons, *_values(found, "precision", "recall")], [], notes)
    # A few rows copied many times count as a collapse first.
    order = [kind for kind in KINDS if kind in faults and kind != "different"] or ["different"]
    if "memorised" in order and "collapsed" not in order:
        order = ["memorised", *(kind for kind in order if kind != "memorised")]
    return SampleVerdict(order[0], faults[order[0]], order, notes)


def _values(found: Mapping[str, Estimate], *names: str) -> list[str]:
    short = {
        "nearest_neighbour_accuracy_real": "real side",
        "nearest_neighbour_accuracy_samples": "samples side",
        "classifier_accuracy": "network's accuracy",
    }
    return [f"{short.get(n, n)} {found[n].value:.3g}" for n in names if n in found]


def _copy_fault(found: Mapping[str, Estimate]) -> dict[str, list[str]]:
    """Samples that copy the training rows, or the real rows themselves."""
    sides = [found.get(f"nearest_neighbour_accuracy_{side}") for side in ("real", "samples")]
    if "copying" in found and found["copying"].interval[0] > 0.7:
        return {"memorised": _values(found, "copying", "authenticity", "recall")}
    if all(side is not None and side.interval[1] < 0.2 for side in sides):
        names = (f"nearest_neighbour_accuracy_{side}" for side in ("real", "samples"))
        return {"memorised": [*_values(found, *names), "the data themselves are copied"]}
    return {}


def _location_fault(
    found: Mapping[str, Estimate], real: Float[Tensor, "n d"], samples: Float[Tensor, "m d"]
) -> dict[str, list[str]]:
    """The fault of samples that a test separates from the data."""
    recall, density = found["recall"].value, found["density"].value
    sides = ("nearest_neighbour_accuracy_real", "nearest_neighbour_accuracy_samples")
    if density >= 0.7 and recall < 0.8:
        return {"collapsed": _values(found, "recall", "coverage", "precision", *sides)}
    z, t, column = _largest_shift(real, samples)
    moved = z >= 0.25 and t >= 4.5
    if density < 0.85 and (moved or recall < 0.85):
        where = [f"mean of feature {column + 1} off by {z:.2g} sd"] if moved else []
        return {"shifted": [*where, *_values(found, "precision", "recall", *sides)]}
    if density < 0.85:
        return {"blurred": _values(found, "precision", "density", "recall", *sides)}
    where = [f"mean of feature {column + 1} off by {z:.2g} sd"] if moved else []
    p = [f"p {found[n].value:.3g} ({test})" for n, test in TESTS.items() if n in found]
    return {"different": [*where, *p, *_values(found, "classifier_accuracy", *sides)]}


def _largest_shift(
    real: Float[Tensor, "n d"], samples: Float[Tensor, "m d"]
) -> tuple[float, float, int]:
    """The largest shift of a mean, in standard deviations of the data and in standard errors."""
    x, y = real.double() - real.double().mean(0), samples.double() - real.double().mean(0)
    gap, spread = y.mean(0).abs(), x.std(0)
    error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
    # A constant column has no unit and is left out.
    t = torch.where(error > 0, gap / error, 0.0)
    z = torch.where(spread > 0, gap / spread, 0.0)
    # Shifts are ranked by significance: the mean of a sparse column deviates by chance.
    column = int(t.argmax())
    return float(z[column]), float(t[column]), column
