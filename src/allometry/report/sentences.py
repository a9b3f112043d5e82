"""The story in words: plain text that the page, the command line and a log can all carry."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from allometry._core.estimate import Z95, Estimate
from allometry.report import words
from allometry.report.judge import Crossing, Reach
from allometry.report.runs import Configuration

if TYPE_CHECKING:
    from allometry.report.story import Family, Story


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


def size(configuration: Configuration) -> str:
    """The size and compute of a trained model in a few words."""
    return f"{words.count(configuration.N)} parameters, {words.flops(configuration.C)}"


def named(configuration: Configuration) -> str:
    """A count model by its family and shape: `n-gram of order 7`."""
    family = words.family(configuration.family)
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


def headline(story: "Story") -> str:
    """The answer in a sentence or two."""
    if story.verdict:
        return story.verdict
    if story.best is None:
        what = words.several(len(story.unfinished), "run")
        if story.total == 0:
            return f"There are no runs on {story.target} yet, so there is nothing to tell."
        return f"No run on {story.target} has finished: {what} diverged or failed, so no law."
    if not story.families:
        best = story.best
        return (
            f"On {story.target}, the best {named(best)} reaches "
            f"{words.estimated(best.loss, words.loss, story.unit)}. No trained family has a "
            "finished run to set beside it."
        )
    if story.target == "domains":
        return _domains(story)
    family = story.families[0]
    return f"{_standing(story, family)} {_outlook(story, family)}".strip()


def _domains(story: "Story") -> str:
    """Domains are not rivals: what is left of each."""
    each = [f"{words.loss(f.best.loss.value)} for {words.family(f.name)}" for f in story.families]
    return (
        f"One transformer on {words.small(len(each))} kinds of data: where counting single "
        f"symbols has a loss of 1, the best of each has {words.listed(each)}."
    )


def _standing(story: "Story", family: "Family") -> str:
    best, rival = family.best, story.rival
    who = f"the best {words.family(family.name)} ({size(best)})"
    if len(story.families) > 1:
        many = words.small(len(story.families))
        who = f"the best of {many} trained families, {words.family(family.name)} ({size(best)}),"
    start = f"On {story.target}, {who} reaches {words.loss(best.loss.value)} {story.unit}"
    if rival is None:
        return f"{start}."
    other = f"{named(rival)}"
    which = verdict(best, rival)
    if which < 0:
        return f"{start} and beats {untrained(rival)} {other} at {_plain(rival)}."
    if which > 0:
        return (
            f"{start}; {_article(rival)} {other} reaches {_plain(rival)} and is the better model "
            "at this budget."
        )
    return (
        f"{start}, level with {_article(rival)} {other} at {_plain(rival)}: the spread between "
        "seeds can't tell them apart."
    )


def untrained(rival: Configuration) -> str:
    """What kind of model without training this is, read before its name."""
    if rival.family == "ngram":
        return "the best count model, a plain"
    if rival.family in words.FITTED:
        return "the simplest model, a fitted"
    return "the best that was built without training,"


def _article(rival: Configuration) -> str:
    if rival.family == "ngram":
        return "a plain"
    return "a fitted" if rival.family in words.FITTED else "the built"


def _plain(configuration: Configuration) -> str:
    return words.loss(configuration.loss.value)


def _outlook(story: "Story", family: "Family") -> str:
    rival, met = story.rival, family.crossing
    name = words.family(family.name)
    if rival is not None and met is not None and verdict(family.best, rival) > 0:
        return f"By its law, the {name} {meets(met, story.token)}."
    first = next((r for r in family.reaches if r.label == "10×"), None)
    if first is not None:
        loss = words.estimated(first.loss, words.loss, story.unit)
        return f"By its law, ten times the compute would reach {loss}."
    if family.law is None:
        return family.notes[0] if family.notes else ""
    return ""


def meets(met: Crossing, token: str) -> str:
    """Where the law meets the rival, read after the family's name."""
    given = f"on {words.count(met.data)} {plural(token)}" if met.data is not None else ""
    rival = words.family(met.rival.family)
    N, C = met.N, met.C
    if N is None and C is None:
        why = f": {met.reasons[0].rstrip('.')}" if met.reasons else ""
        return f"can't be said to meet the {rival} anywhere{why}"
    values = [x.value for x in (N, C) if x is not None]
    if all(not math.isfinite(v) for v in values):
        never = f"levels off above the {rival}: {given} it would not match it at any size"
        return f"{never}{_least(N, C)}".replace("  ", " ").strip()
    parts = []
    if N is not None:
        parts.append(words.estimated(N, words.count, "parameters"))
    if C is not None:
        parts.append(words.estimated(C, words.flops))
    return f"draws level with the {rival} at {' and '.join(parts)} {given}".strip()


def _least(N: Estimate | None, C: Estimate | None) -> str:
    parts = []
    if N is not None and math.isfinite(N.interval[0]):
        parts.append(f"{words.count(N.interval[0])} parameters")
    if C is not None and math.isfinite(C.interval[0]):
        parts.append(words.flops(C.interval[0]))
    return f", though the 95 % interval allows it from {' and '.join(parts)}" if parts else ""


def of_family(family: "Family", said: str) -> str:
    """A sentence that says whose it is."""
    name = words.family(family.name)
    return f"{name[0].upper()}{name[1:]}: {said[0].lower()}{said[1:]}"


def doubts(story: "Story") -> list[str]:
    """The notes of the story and of its families, which are named where there are several."""
    several = len(story.families) > 1
    own = [of_family(f, n) if several else n for f in story.families for n in f.notes]
    return [*story.notes, *own]


def trust(family: "Family", name_it: bool = False) -> str:
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
    which = "size was" if sizes == 1 else f"{words.small(sizes)} sizes were"
    if whole == 1:
        covered = "the measured loss lies " + ("inside" if inside else "outside")
    elif inside == whole:
        covered = (
            f"{'both' if whole == 2 else f'all {words.small(whole)}'} measured losses lie inside"
        )
    elif inside == 0:
        covered = f"{'neither' if whole == 2 else 'none'} of the measured losses lies inside"
    else:
        covered = f"{words.small(inside)} of {words.small(whole)} measured losses lie inside"
    return (
        f"The largest {which} predicted from the smaller ones to within "
        f"{words.percent(family.error)}; {covered} the 95 % interval."
    )


def facts(story: "Story") -> tuple[Fact, ...]:
    """The numbers for the top of the page, the most telling first."""
    made = []
    if story.best is not None:
        best = story.best
        what = named(best) if best in story.counted else f"{words.family(best.family)}"
        more = "" if best in story.counted else f" ({size(best)})"
        made.append(
            Fact(
                "Best at this budget",
                f"{words.loss(best.loss.value)}",
                f"{story.unit}: {what}{more}; {_error_of(best)}",
            )
        )
    for family in story.families[:1]:
        made += _facts(story, family)
    return tuple(made)


def _error_of(configuration: Configuration) -> str:
    if configuration.loss.se is None:
        return "one seed, no interval"
    return f"95 % interval {words.span(configuration.loss, words.loss)}"


def _facts(story: "Story", family: "Family") -> list[Fact]:
    made = []
    name = words.family(family.name)
    if family.error is not None:
        value = f"{words.percent(family.error)}"
        made.append(Fact("Predicted to within", value, trust(family)))
    if family.crossing is not None:
        made.append(_meeting(name, family.crossing, story.token))
    for reached in family.reaches:
        parts = [f"{story.unit}, 95 % interval {words.span(reached.loss, words.loss)}"]
        parts.append(budget(reached, story.token))
        label = f"{reached.label} the compute" if "×" in reached.label else "The plan"
        made.append(Fact(label, words.loss(reached.loss.value), "; ".join(filter(None, parts))))
    return made


def _meeting(name: str, met: Crossing, token: str) -> Fact:
    label = f"Level with the {words.family(met.rival.family)}"
    if met.already is not None and (met.N is None or not math.isfinite(met.N.value)):
        text = f"parameters: the {name} is below it already, at {size(met.already)}"
        return Fact(label, words.count(met.already.N), text)
    if met.N is None or not math.isfinite(met.N.value):
        known = met.N is not None or met.C is not None
        return Fact(label, words.BEYOND if known else "unknown", f"The {name} {meets(met, token)}")
    text = f"parameters, 95 % interval {words.span(met.N, words.count)}"
    if met.C is not None:
        text += f"; {words.flops(met.C.value)} ({words.span(met.C, words.flops)})"
    if met.passes is not None and met.data is None:
        text += f"; {words.significant(met.passes, 2)} passes over the data"
    if met.already is not None:
        text += f"; the best {name} is below it already"
    return Fact(label, words.count(met.N.value), text)


def budget(reached: Reach, token: str) -> str:
    """N, D and the passes over the data of a larger budget."""
    parts = []
    if reached.N is not None:
        parts.append(f"{words.count(reached.N.value)} parameters")
    if reached.D is not None:
        parts.append(f"{words.count(reached.D.value)} {plural(token)}")
    if reached.passes is not None:
        parts.append(f"{words.significant(reached.passes, 2)} passes over the data")
    return words.listed(parts)
