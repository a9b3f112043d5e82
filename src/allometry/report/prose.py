"""The analysis in sentences, for the page and the command line."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from allometry._core.estimate import Z95, Estimate
from allometry.report import formatting as fmt
from allometry.report.extrapolation import LargerBudget
from allometry.report.run_groups import Configuration

if TYPE_CHECKING:
    from allometry.report.analysis import Analysis
    from allometry.report.family_fit import FamilyFit


@final
@dataclass(frozen=True)
class Fact:
    """A key number: its name, its value and its details."""

    label: str
    value: str
    detail: str


def plural(token: str) -> str:
    """The plural of what data are counted in."""
    return token if token.endswith("s") else f"{token}s"


def size(configuration: Configuration, token: str) -> str:
    """The size, data and compute of a model: `154K parameters, 4.4M characters, 4 TFLOP`."""
    parts = [fmt.many(configuration.N, "parameter")]
    parts.append(fmt.many(configuration.D, token, plural(token)))
    return ", ".join([*parts, fmt.flops(configuration.C)])


def baseline(configuration: Configuration) -> str:
    """The name of a baseline: `the n-gram baseline of order 7`."""
    name = f"the {fmt.family(configuration.family)}"
    if configuration.family in ("ngram", *fmt.FITTED):
        name += " baseline"
    return _with_shape(name, configuration)


def both(a: float, b: float, *, tied: bool) -> tuple[str, str]:
    """Two losses, with enough digits to see that they differ unless they are tied."""
    for digits in (3, 4, 5, 6):
        first, second = fmt.loss(a, digits), fmt.loss(b, digits)
        if first != second or tied or a == b:
            return first, second
    return f"{a:.9g}", f"{b:.9g}"


def named(configuration: Configuration) -> str:
    """A baseline by its family and shape: `n-gram of order 7`."""
    return _with_shape(fmt.family(configuration.family), configuration)


def _with_shape(name: str, configuration: Configuration) -> str:
    shape = configuration.shape.strip()
    if not shape:
        return name
    return f"{name} of {shape}" if shape.startswith("order ") else f"{name} ({shape})"


def runs_which_cost(n: int) -> str:
    """`this run, which costs` or `these runs, which cost`.

    Example:
        >>> runs_which_cost(1), runs_which_cost(3)
        ('this run, which costs', 'these runs, which cost')
    """
    return "this run, which costs" if n == 1 else "these runs, which cost"


def pass_count(count: float) -> str:
    """`3.2 passes`; 1.02 passes are not rounded to one."""
    text = fmt.significant(count, 2)
    text = fmt.significant(count, 3) if text == "1" else text
    return f"{text} {'pass' if text == '1' else 'passes'}"


def passes(count: float) -> str:
    """`3.2 passes over the data`."""
    return f"{pass_count(count)} over the data"


def verdict(a: Configuration, b: Configuration) -> int:
    """-1 if `a` has the lower loss, 1 if `b` has, 0 if the seeds do not separate them.

    Both are scored on the same data, so the evaluation error is nearly the same for both and does
    not separate them: the spread between seeds decides. One seed has no spread; the evaluation
    error is used instead.
    """
    gap = a.loss.value - b.loss.value
    errors = [c.spread if c.spread is not None else (c.loss.se or 0.0) for c in (a, b)]
    return 0 if abs(gap) <= Z95 * math.hypot(*errors) else (-1 if gap < 0 else 1)


def of_family(family: "FamilyFit", sentence: str) -> str:
    """The sentence, prefixed with the family's name."""
    name = fmt.family(family.name)
    return f"{name[0].upper()}{name[1:]}: {sentence[0].lower()}{sentence[1:]}"


def doubts(analysis: "Analysis") -> list[str]:
    """The notes of the analysis and its families, and the refused claims.

    They name their family if there are several.
    """
    several = len(analysis.families) > 1
    own = [of_family(f, n) if several else n for f in analysis.families for n in f.notes]
    refused = [
        of_family(f, c.text) if several else c.text
        for f in analysis.families
        for c in f.claims
        if not c.supported and c.text not in analysis.headline
    ]
    return list(dict.fromkeys([*analysis.notes, *own, *refused]))


def trust(family: "FamilyFit", name_it: bool = False) -> str:
    """How well the law predicted the largest sizes from the smaller ones."""
    if name_it:
        return of_family(family, trust(family))
    if family.law is None:
        return "No scaling law was fitted."
    if not family.held_out or family.error is None:
        return "No size was held out, so the scaling law is untested beyond its runs."
    sizes = len(family.held_sizes)
    which = "largest size was" if sizes == 1 else f"{fmt.small(sizes)} largest sizes were"
    return (
        f"The {which} predicted from the smaller ones to within {fmt.percent(family.error)}; "
        f"{coverage([h.covered for h in family.held_out])}."
    )


def coverage(covered: list[bool]) -> str:
    """How many of the measured losses their 95 % intervals cover, as a clause."""
    inside, whole = sum(covered), len(covered)
    if whole == 1:
        return f"the 95 % interval {'covers' if inside else 'does not cover'} the measured loss"
    if inside == whole:
        which = "both" if whole == 2 else f"all {fmt.small(whole)}"
    elif inside == 0:
        which = "neither of the" if whole == 2 else "none of the"
    else:
        which = f"{fmt.small(inside)} of {fmt.small(whole)}"
    return f"the 95 % intervals cover {which} measured losses"


def facts(analysis: "Analysis") -> tuple[Fact, ...]:
    """The key numbers for the top of the page, most important first."""
    found = []
    if analysis.best is not None:
        best = analysis.best
        fitted = best in analysis.counted
        which = named(best) if fitted else f"{fmt.family(best.family)}"
        more = "" if fitted else f" ({size(best, analysis.token)})"
        known = f"; the entropy is {fmt.loss(analysis.entropy)}" if analysis.entropy else ""
        detail = f"{analysis.unit}: {which}{more}; {_interval(best)}{known}"
        found.append(Fact("Lowest loss", f"{fmt.loss(best.loss.value)}", detail))
    for family in analysis.families[:1]:
        found += _family_facts(analysis, family)
    return tuple(found)


def _interval(configuration: Configuration) -> str:
    if configuration.loss.se is None:
        return "one seed, no interval"
    return f"95 % interval {fmt.span(configuration.loss, fmt.loss)}"


def _family_facts(analysis: "Analysis", family: "FamilyFit") -> list[Fact]:
    """The error on held-out sizes, and the supported claims of the family."""
    found = []
    if family.error is not None:
        found.append(Fact("Error on held-out sizes", fmt.percent(family.error), trust(family)))
    for claim in family.claims:
        if claim.kind == "crossover" and analysis.rival is not None and claim.supported:
            N = claim.values["N"]
            N = N.value if isinstance(N, Estimate) else N
            value = fmt.count(N) if N is not None else fmt.UNKNOWN
            detail = f"parameters. {claim.text}" if N is not None else claim.text
            found.append(Fact(f"Crossover with {baseline(analysis.rival)}", value, detail))
    for larger in family.reaches:
        parts = [f"{analysis.unit}, 95 % interval {fmt.span(larger.loss, fmt.loss)}"]
        parts.append(budget(larger, analysis.token))
        label = f"{larger.label} the compute" if "×" in larger.label else "The plan"
        found.append(Fact(label, fmt.loss(larger.loss.value), "; ".join(filter(None, parts))))
    return found


def budget(larger: LargerBudget, token: str) -> str:
    """N, D and the passes over the data of a larger budget."""
    parts = []
    if larger.N is not None:
        parts.append(fmt.many(larger.N.value, "parameter"))
    if larger.D is not None:
        parts.append(fmt.many(larger.D.value, token, plural(token)))
    if larger.passes is not None:
        parts.append(passes(larger.passes))
    return fmt.listed(parts)
