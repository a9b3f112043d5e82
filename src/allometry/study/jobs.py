"""From what a person names on the command line to the study it means."""

import difflib
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec
from allometry.study.density_studies import LAWS, density_study, game_study, vectors
from allometry.study.ladder import ladder
from allometry.study.recipes import (
    built,
    convolution,
    cooled,
    domains,
    gru,
    learner,
    lstm,
    mlp,
    ngram,
    rnn,
    transduction,
    transformer,
    twins,
    upstream,
)
from allometry.study.recipes.domains import Domains
from allometry.study.recipes.pretraining_tasks import TASKS
from allometry.study.recipes.transduction import KINDS as WRITERS
from allometry.study.study import Recipe, Study
from allometry.study.theory_studies import QUESTIONS, question_study
from allometry.targets import Brackets, SequenceFunction, Sources, Text, Transduction, points
from allometry.targets.transduction import KINDS as TRANSDUCTIONS


def study(
    job: str,
    *,
    smallest: float = 1e3,
    largest: float = 3.4e5,
    rungs: int = 8,
    seeds: int | None = None,
    tokens: Sequence[float] | None = None,
    vocabulary: str = "characters",
    context: int = 64,
    families: Sequence[str] = (),
    shared: bool = False,
) -> Study:
    """The study that `allometry run JOB` carries out.

    Args:
        job: A text file, `"embedded"`, `"ring"` or `"grid"` (of Gaussians), `"universal"` (built
            and trained transformers on one function), `"dyck"` (trained twins of the bracket
            networks), `"degree"`, `"rank"` or `"mixer"` (see `question_study`), `"domains"` (the
            same transformer on text, digits, tunes and a series), `"tasks"` (upstream tasks on
            six sources), `"reversal"`, `"sorting"` or `"transliteration"`, a folder of text files
            (sources with control codes), or
            `"FILE.py:function"` where the function, called without arguments, returns a `Study`
            (the other arguments are then its own business).
        smallest: Parameters of the smallest model.
        largest: Parameters of the largest.
        rungs: Sizes.
        seeds: Repetitions; 2 unless told, and 16 for the question of degree.
        tokens: Training tokens; see `default_tokens`.
        vocabulary: Of the text.
        context: Tokens a model sees.
        families: For a text, of `SEQUENCE_FAMILIES` or ngram (transformer and ngram unless told);
            for `"tasks"` which tasks; for a transduction encoder-decoder or decoder;
            for a density which flows, see `density_study`. A density is a name of
            `densities.LAWS` (moons, rings, ...), `"digits"`, a CSV or npy file, or a folder of
            images.
        shared: Whether all budgets of tokens come from one training of a text's models; see
            `recipes.cooled`.
    """
    # Said here in the asker's numbers: studies cut the ladder to what their job needs.
    require(smallest <= largest, "smallest", f"be at most the largest, {largest:g}", smallest)
    if job in QUESTIONS:
        return question_study(job, families=families, seeds=seeds, points=tokens)
    seeds = 2 if seeds is None else seeds
    if job in GAMES and not families:
        sizes = {"smallest": smallest, "largest": largest, "rungs": rungs, "seeds": seeds}
        return game_study(points.Points(LAWS[job]()), examples=tokens, **sizes)  # pyright: ignore
    file, colon, function = job.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(Path(file), function)
    if job == "universal":
        return universal_study(largest=largest, rungs=rungs, seeds=seeds, tokens=tokens)
    if job == "dyck":
        return dyck_study(seeds=seeds, tokens=tokens)
    if job in ORDERED:
        return ordered_study(job, smallest, largest, rungs, seeds, tokens, families)
    texts = _texts(job)
    density = None if texts else vectors(job)
    if density is not None:
        sizes = {"smallest": smallest, "largest": largest, "rungs": rungs, "seeds": seeds}
        return density_study(density, families=families, examples=tokens, **sizes)  # pyright: ignore
    if not texts and job != "embedded":
        _not_misspelt(job)
    recipes = [_text_recipe(name, context) for name in families or ("transformer", "ngram")]
    recipes = [cooled(r) if shared and r is not ngram else r for r in recipes]
    if texts:
        target = Sources(*texts, vocabulary=vocabulary)
    elif job == "embedded":
        target = Text.embedded(vocabulary=vocabulary)
    else:
        target = Text(job, vocabulary=vocabulary)
    return Study(
        target,
        recipes=recipes,
        ladder=ladder(smallest, largest, rungs),
        seeds=seeds,
        tokens=tokens or None,
    )


SEQUENCE_FAMILIES: dict[str, Callable[..., list[Spec]]] = {
    "transformer": transformer,
    "mlp": mlp,
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "convolution": convolution,
}
"""Families that are trained to predict the next symbol of a text."""


def _text_recipe(name: str, context: int) -> Recipe:
    if name == "ngram":
        return ngram
    known = [*SEQUENCE_FAMILIES, "ngram"]
    require(name in known, "family", f"be one of {', '.join(known)} for a text", name)
    return functools.partial(SEQUENCE_FAMILIES[name], context=context)


GAMES = ("ring", "grid")
"""Laws of many modes, on which generators play against discriminators unless told otherwise."""


def demo_study() -> Study:
    """The demo: the embedded prose, eight sizes over 2.5 decades, two seeds, and n-grams."""
    return study("embedded")


def universal_study(
    *,
    largest: float = 3.4e5,
    rungs: int = 8,
    seeds: int = 2,
    tokens: Sequence[float] | None = None,
) -> Study:
    """Built and trained transformers that attend over three tokens: error against size.

    Args:
        largest: Parameters of the largest trained model, 20,000 at most.
        rungs: Sizes, 5 at most.
        seeds: Repetitions of each training.
        tokens: Sequences seen in training; 30,000 and 120,000 if not given.
    """
    return Study(
        SequenceFunction("attention", d=1, n=3),
        recipes=[built, learner],
        ladder=ladder(300, min(largest, 2e4), min(rungs, 5)),
        seeds=seeds,
        tokens=tokens or [3e4, 1.2e5],
    )


def dyck_study(*, seeds: int = 1, tokens: Sequence[float] | None = None) -> Study:
    """Transformers, LSTMs and convolutions of several depths on brackets 2, 4 and 8 deep.

    Args:
        seeds: Repetitions of each training.
        tokens: Symbols seen in training; 900,000 if not given.
    """
    return Study(
        Brackets(k=8, depth=8, length=48),
        recipes=[twins],
        ladder=[1e4],
        seeds=seeds,
        tokens=tokens or [9e5],
    )


def _not_misspelt(job: str) -> None:
    """Refuse what is no file but nearly the name of a job."""
    names = ["embedded", "universal", "dyck", "digits", *QUESTIONS, *GAMES, *ORDERED, *LAWS]
    near = [] if Path(job).exists() else difflib.get_close_matches(job, names, 1, 0.7)
    fix = f"Did you mean {near[0]}?" if near else ""
    require(not near, "job", "be a file, a folder or the name of a job", job, fix)


def _texts(job: str) -> list[Path]:
    """The text files of a folder, where it has some."""
    place = Path(job)
    return sorted(place.glob("*.txt")) if place.is_dir() else []


ORDERED = ("domains", "tasks", *TRANSDUCTIONS)
"""Studies that are asked for by name, whose families are not those of a text."""


def ordered_study(
    job: str,
    smallest: float = 1e3,
    largest: float = 3e4,
    rungs: int = 4,
    seeds: int = 2,
    tokens: Sequence[float] | None = None,
    families: Sequence[str] = (),
) -> Study:
    """Of `ORDERED`: domains, upstream tasks, or one sequence turned into another.

    See `recipes.domains`, `recipes.upstream` and `recipes.transduction`.
    """
    unit, usual = None, [1e5, 2e5, 4e5]
    if job == "domains":
        require(not families, "family", "be left out: domains has one", list(families))
        target, grown, usual = Domains.usual(), [domains], [5e4, 1e5, 2e5]
    elif job == "tasks":
        target, unit = Sources.embedded(), "nats per window"
        grown = [functools.partial(upstream, task=task) for task in families or TASKS]
    else:
        target = Transduction(job)
        grown = [functools.partial(transduction, kind=kind) for kind in families or WRITERS]
    return Study(
        target,
        recipes=grown,
        ladder=ladder(smallest, min(largest, 1e5), min(rungs, 5)),
        seeds=seeds,
        tokens=tokens or usual,
        unit=unit,
    )


_JOB_FILES: set[str] = set()
"""Names of modules that came from job files."""


def _same(module: ModuleType, path: Path) -> bool:
    """Whether a module was imported from this very file."""
    place = getattr(module, "__file__", None)
    return place is not None and Path(place).resolve() == path.resolve()


def _from_file(path: Path, function: str) -> Study:
    if not path.is_file():
        raise InputError(f"{path} must be a Python file; got no such file.")
    # Workers import the file's names too, by the same way: its folder on the path.
    sys.path.insert(0, str(path.parent.absolute()))
    known = sys.modules.get(path.stem)
    if known is not None and path.stem in _JOB_FILES and not _same(known, path):
        del sys.modules[path.stem]  # another job file of that name, imported before
    _JOB_FILES.add(path.stem)
    importlib.invalidate_caches()
    module = importlib.import_module(path.stem)
    require(
        _same(module, path), f"the file {path}", "not have the name of an installed module",
        path.name, "Rename it.",
    )  # fmt: skip
    make = getattr(module, function, None)
    if not callable(make):
        raise InputError(f"{path} must define a function {function!r}; got none.")
    made = make()
    if not isinstance(made, Study):
        raise InputError(f"{path}:{function} must return a Study; got {type(made).__name__}.")
    return made
