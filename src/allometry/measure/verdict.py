"""One sentence about samples, from the measures that were taken, with its reasons.

The rules look at tests first: what no test tells from the data has no fault that could be named.
Then at where samples lie: among the data but not everywhere (collapsed), around the data
(blurred), beside them (shifted), or on the training rows (memorised). Thresholds were chosen on a
ring of eight Gaussians and a table of four columns, seeds 0 to 4, and tried on data and seeds that
nothing was chosen on (`bench/verdicts.py`): 193 of 200 were named rightly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from allometry._core.estimate import Estimate

LEVEL = 0.005
"""p-values at or below it reject: three tests raise a false alarm in at most 1.5 % of cases."""
FEWEST = 50
"""Rows of each set below which nothing is said."""

NEEDED = ("precision", "recall", "density", "coverage", "nearest_neighbour_p_value")
TESTS = {
    "nearest_neighbour_p_value": "nearest neighbours",
    "classifier_p_value": "network",
    "efron_p_value": "energy",
}
KINDS = {
    "good": "no test tells the samples from the data",
    "collapsed": "samples lie among the data but leave parts of them out",
    "blurred": "samples lie around the data, not among them",
    "shifted": "samples lie beside the data",
    "memorised": "samples copy the rows they were trained on",
    "different": "tests tell the samples from the data, by none of the faults known here",
}


@final
@dataclass(frozen=True)
class SampleVerdict:
    """What is wrong with samples, if anything.

    Args:
        kind: One of `KINDS`; the first of `faults`, or `good`.
        reasons: The numbers behind it, in words.
        faults: All that were found.
        notes: What could not be looked for.
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
        """JSON-ready, with the keys of a measure, so that it may stand among them."""
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
    """The verdict, or none where the measures it needs were not taken or rows are too few.

    Args:
        found: Measures by name, as `score` takes them.
        real: Features of the data.
        samples: Features of the samples.
    """
    if min(len(real), len(samples)) < FEWEST or not all(name in found for name in NEEDED):
        return None
    faults = _copies(found)
    p = {name: found[name].value for name in TESTS if name in found}
    if min(p.values()) <= LEVEL:
        faults |= _place(found, real, samples)
    notes = [] if "copying" in found else ["copies were not looked for: give --training"]
    if not faults:
        reasons = [f"p {value:.3g} ({TESTS[name]})" for name, value in p.items()]
        return SampleVerdict("good", [*reasons, *_said(found, "precision", "recall")], [], notes)
    # Few rows copied many times are a collapse first, whatever rows they are.
    order = [kind for kind in KINDS if kind in faults and kind != "different"] or ["different"]
    if "memorised" in order and "collapsed" not in order:
        order = ["memorised", *(kind for kind in order if kind != "memorised")]
    return SampleVerdict(order[0], faults[order[0]], order, notes)


def _said(found: Mapping[str, Estimate], *names: str) -> list[str]:
    short = {
        "nearest_neighbour_accuracy_real": "real side",
        "nearest_neighbour_accuracy_samples": "samples side",
        "classifier_accuracy": "network's accuracy",
    }
    return [f"{short.get(n, n)} {found[n].value:.3g}" for n in names if n in found]


def _copies(found: Mapping[str, Estimate]) -> dict[str, list[str]]:
    """Samples that crowd the training rows, or the real rows themselves."""
    sides = [found.get(f"nearest_neighbour_accuracy_{side}") for side in ("real", "samples")]
    if "copying" in found and found["copying"].interval[0] > 0.7:
        return {"memorised": _said(found, "copying", "authenticity", "recall")}
    if all(side is not None and side.interval[1] < 0.2 for side in sides):
        names = (f"nearest_neighbour_accuracy_{side}" for side in ("real", "samples"))
        return {"memorised": [*_said(found, *names), "the data themselves are copied"]}
    return {}


def _place(
    found: Mapping[str, Estimate], real: Float[Tensor, "n d"], samples: Float[Tensor, "m d"]
) -> dict[str, list[str]]:
    """Where samples lie that a test has told from the data."""
    recall, density = found["recall"].value, found["density"].value
    sides = ("nearest_neighbour_accuracy_real", "nearest_neighbour_accuracy_samples")
    if density >= 0.7 and recall < 0.8:
        return {"collapsed": _said(found, "recall", "coverage", "precision", *sides)}
    z, t, column = _moved(real, samples)
    moved = z >= 0.25 and t >= 4.5
    if density < 0.85 and (moved or recall < 0.85):
        where = [f"mean of feature {column + 1} off by {z:.2g} sd"] if moved else []
        return {"shifted": [*where, *_said(found, "precision", "recall", *sides)]}
    if density < 0.85:
        return {"blurred": _said(found, "precision", "density", "recall", *sides)}
    where = [f"mean of feature {column + 1} off by {z:.2g} sd"] if moved else []
    p = [f"p {found[n].value:.3g} ({said})" for n, said in TESTS.items() if n in found]
    return {"different": [*where, *p, *_said(found, "classifier_accuracy", *sides)]}


def _moved(real: Float[Tensor, "n d"], samples: Float[Tensor, "m d"]) -> tuple[float, float, int]:
    """The largest shift of a mean, in standard deviations of the data and in standard errors."""
    x, y = real.double() - real.double().mean(0), samples.double() - real.double().mean(0)
    gap, spread = y.mean(0).abs(), x.std(0)
    error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
    # A column that never varies has no unit; it is left out.
    t = torch.where(error > 0, gap / error, 0.0)
    z = torch.where(spread > 0, gap / spread, 0.0)
    # Shifts are ranked by how sure they are: a rare column's mean is off by chance.
    column = int(t.argmax())
    return float(z[column]), float(t[column]), column
