"""The story in words: plain text that the page, the command line and a log can all carry."""

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
    """One number worth remembering: what it is, the number, and what stands behind it."""

    label: str
    value: str
    detail: str


def plural(token: str) -> str:
    """The plural of what data are counted in."""
    return token if token.endswith("s") else f"{token}s"


def size(configuration: Configuration, token: str) -> str:
    """The size, data and compute of a trained model in a few words."""
    parts = [fmt.many(configuration.N, "parameter")]
    parts.append(fmt.many(configuration.D, token, plural(token)))
    return ", ".join([*parts, fmt.flops(configuration.C)])


def baseline(configuration: Configuration) -> str:
    """A model without training, as one sets it beside trained ones."""
    family, shape = fmt.family(configuration.family), configuration.shape.strip()
    counts = configuration.family in ("ngram", *fmt.FITTED)
    name = f"the {family} baseline" if counts else f"the {family}"
    if not shape:
        return name
    return f"{name} of {shape}" if shape.startswith("order ") else f"{name} ({shape})"


def both(a: float, b: float, *, level: bool) -> tuple[str, str]:
    """Two losses with as many digits as it takes to see that they differ."""
    for digits in (3, 4, 5, 6):
        first, second = fmt.loss(a, digits), fmt.loss(b, digits)
        if first != second or level or a == b:
            return first, second
    return f"{a:.9g}", f"{b:.9g}"


def named(configuration: Configuration) -> str:
    """A count model by its family and shape: `n-gram of order 7`."""
    family = fmt.family(configuration.family)
    shape = configuration.shape.strip()
    if not shape:
        return family
    return f"{family} of {shape}" if shape.startswith("order ") else f"{family} ({shape})"


def verdict(a: Configuration, b: Configuration) -> int:
    """-1 where `a` has the lower loss, 1 where `b` has, 0 where the seeds can't tell.

    Both are scored on the same data, so the error of the evaluation is nearly the same for both
    and says little about which is better: the spread between seeds decides. With one seed alone
    that spread is unknown, and the error of the evaluation stands in for it.
    """
    gap = a.loss.value - b.loss.value
    errors = [c.spread if c.spread is not None else (c.loss.se or 0.0) for c in (a, b)]
    return 0 if abs(gap) <= Z95 * math.hypot(*errors) else (-1 if gap < 0 else 1)


def of_family(family: "FamilyFit", said: str) -> str:
    """A sentence that says whose it is."""
    name = fmt.family(family.name)
    return f"{name[0].upper()}{name[1:]}: {said[0].lower()}{said[1:]}"


def doubts(story: "Analysis") -> list[str]:
    """The notes of the story and of its families, which are named where there are several."""
    several = len(story.families) > 1
    own = [of_family(f, n) if several else n for f in story.families for n in f.notes]
    refused = [
        of_family(f, c.text) if several else c.text
        for f in story.families
        for c in f.claims
        if not c.supported and c.text not in story.headline
    ]
    return list(dict.fromkeys([*story.notes, *own, *refused]))


def trust(family: "FamilyFit", name_it: bool = False) -> str:
    """How well the largest sizes were predicted from the smaller ones."""
    if name_it:
        return of_family(family, trust(family))
    held = family.held_out
    if family.law is None:
        return "No law was fitted, so nothing was predicted."
    if not held or family.error is None:
        return "No size was held out, so the law is untested beyond the runs it was fitted to."
    inside, whole = sum(h.covered for h in held), len(held)
    sizes = len(family.held_sizes)
    which = "size was" if sizes == 1 else f"{fmt.small(sizes)} sizes were"
    if whole == 1:
        covered = "the measured loss lies " + ("inside" if inside else "outside")
    elif inside == whole:
        covered = (
            f"{'both' if whole == 2 else f'all {fmt.small(whole)}'} measured losses lie inside"
        )
    elif inside == 0:
        covered = f"{'neither' if whole == 2 else 'none'} of the measured losses lies inside"
    else:
        covered = f"{fmt.small(inside)} of {fmt.small(whole)} measured losses lie inside"
    return (
        f"The largest {which} predicted from the smaller ones to within "
        f"{fmt.percent(family.error)}; {covered} the 95 % interval."
    )


def facts(story: "Analysis") -> tuple[Fact, ...]:
    """The numbers for the top of the page, the most telling first."""
    made = []
    if story.best is not None:
        best = story.best
        what = named(best) if best in story.counted else f"{fmt.family(best.family)}"
        more = "" if best in story.counted else f" ({size(best, story.token)})"
        known = f"; the entropy is {fmt.loss(story.entropy)}" if story.entropy else ""
        made.append(
            Fact(
                "Best at this budget",
                f"{fmt.loss(best.loss.value)}",
                f"{story.unit}: {what}{more}; {_error_of(best)}{known}",
            )
        )
    for family in story.families[:1]:
        made += _facts(story, family)
    return tuple(made)


def _error_of(configuration: Configuration) -> str:
    if configuration.loss.se is None:
        return "one seed, no interval"
    return f"95 % interval {fmt.span(configuration.loss, fmt.loss)}"


def _facts(story: "Analysis", family: "FamilyFit") -> list[Fact]:
    """The held-out sizes, and what the family's claims say; none that is not supported."""
    made = []
    if family.error is not None:
        value = f"{fmt.percent(family.error)}"
        made.append(Fact("Predicted to within", value, trust(family)))
    for claim in family.claims:
        if claim.kind == "crossover" and story.rival is not None and claim.supported:
            N = claim.values["N"]
            size_ = N.value if isinstance(N, Estimate) else N
            value = fmt.count(size_) if size_ is not None else fmt.UNKNOWN
            detail = f"parameters. {claim.text}" if size_ is not None else claim.text
            made.append(Fact(f"As good as {baseline(story.rival)}", value, detail))
    for reached in family.reaches:
        parts = [f"{story.unit}, 95 % interval {fmt.span(reached.loss, fmt.loss)}"]
        parts.append(budget(reached, story.token))
        label = f"{reached.label} the compute" if "×" in reached.label else "The plan"
        made.append(Fact(label, fmt.loss(reached.loss.value), "; ".join(filter(None, parts))))
    return made


def budget(reached: LargerBudget, token: str) -> str:
    """N, D and the passes over the data of a larger budget."""
    parts = []
    if reached.N is not None:
        parts.append(fmt.many(reached.N.value, "parameter"))
    if reached.D is not None:
        parts.append(fmt.many(reached.D.value, token, plural(token)))
    if reached.passes is not None:
        parts.append(f"{fmt.significant(reached.passes, 2)} passes over the data")
    return fmt.listed(parts)
