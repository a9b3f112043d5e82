"""From the name of a job on the command line to its study."""

import difflib
import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from allometry._core.errors import InputError, require
from allometry.study import recipes
from allometry.study.density_studies import DISTRIBUTIONS, density_study, gan_study, vectors
from allometry.study.job_table import JOBS, PRETRAINING_TASKS, TEXT_FAMILIES, TRANSDUCERS
from allometry.study.recipes.domain_runs import Domains
from allometry.study.size_ladder import ladder
from allometry.study.study import Recipe, Study
from allometry.study.theory_studies import QUESTIONS, question_study
from allometry.targets import Brackets, SequenceFunction, Sources, Text, Transduction, points
from allometry.targets.transduction import KINDS as TRANSDUCTIONS

GAN_JOBS = ("ring", "grid")
"""Distributions with many modes; their default families are adversarial networks."""

SEQUENCE_JOBS = ("domains", "tasks", *TRANSDUCTIONS)
"""Jobs on sequences whose families are not those of a text."""


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
    variant: Mapping[str, Any] | None = None,
) -> Study:
    """The study that `allometry run JOB` carries out.

    Args:
        job: A name in `job_table.JOBS`; a text file, or a folder of text files (sources with
            control codes); a CSV or npy file, or a folder of images (a density); or
            `"FILE.py:function"`, a function without arguments that returns a `Study` (the other
            arguments are then ignored).
        smallest: Parameters of the smallest model.
        largest: Parameters of the largest.
        rungs: Number of sizes.
        seeds: Repetitions. Default: 2, and 16 for degree.
        tokens: Training tokens. Default: `default_tokens`.
        vocabulary: Of the text.
        context: Tokens in a window.
        families: Of the job, see `job_table.JOBS`. Default for a text: transformer and ngram; for
            a density see `density_study`.
        shared: Whether one training of a text's model serves all budgets of tokens; see
            `recipes.cooled`.
        variant: Options of a text's transformer, see `recipes.transformer`.
    """
    # Checked here with the caller's numbers: some jobs restrict the ladder.
    require(smallest <= largest, "smallest", f"be at most the largest, {largest:g}", smallest)
    file, colon, function = job.rpartition(":")
    own_study = bool(colon) and file.endswith(".py")
    _require_text(variant, job, own_study or (job in JOBS and job != "embedded"))
    if job in QUESTIONS:
        return question_study(job, families=families, seeds=seeds, points=tokens)
    seeds = 2 if seeds is None else seeds
    sizes: dict[str, Any] = {"smallest": smallest, "largest": largest, "rungs": rungs}
    if job in GAN_JOBS and not families:
        target = points.Points(DISTRIBUTIONS[job]())
        return gan_study(target, examples=tokens, seeds=seeds, **sizes)
    if own_study:
        return _from_file(Path(file), function)
    if job == "universal":
        return universal_study(largest=largest, rungs=rungs, seeds=seeds, tokens=tokens)
    if job == "dyck":
        return dyck_study(seeds=seeds, tokens=tokens)
    if job in SEQUENCE_JOBS:
        return sequence_study(job, **sizes, seeds=seeds, tokens=tokens, families=families)
    texts = _text_files(job)
    density = None if texts else vectors(job)
    if density is not None:
        _require_text(variant, job, True)
        return density_study(density, families=families, examples=tokens, seeds=seeds, **sizes)
    if not texts and job != "embedded":
        _check_spelling(job)
    usual = ("transformer",) if variant else ("transformer", "ngram")
    decoders = set(families or usual) & {"transformer", "moe"}
    _require_text(variant, job, not decoders)
    only_moe = {"experts", "active_experts"} & set(variant or {})
    fix = "Add --family moe, or leave it out."
    alone = decoders == {"moe"}
    require(not only_moe or alone, next(iter(only_moe), ""), "be for the family moe", usual, fix)
    chosen = [_text_recipe(name, context, variant or {}) for name in families or usual]
    chosen = [recipes.cooled(r) if shared and r is not recipes.ngram else r for r in chosen]
    target = _text(job, texts, vocabulary)
    steps = ladder(smallest, largest, rungs)
    return Study(target, chosen, ladder=steps, seeds=seeds, tokens=tokens or None)


def _require_text(variant: Mapping[str, Any] | None, job: str, other: bool) -> None:
    """Refuse options of a text's transformer for a study that trains none."""
    name = next(iter(variant or {}), "")
    fix = "Leave it out, or give a text and --family transformer or moe."
    require(not (variant and other), name, "be for the transformer of a text", job, fix)


def target(job: str, *, vocabulary: str = "characters") -> Any:
    """The text, points or images of a job that several families can learn.

    Args:
        job: A text file, a folder of texts, `embedded`, or a density.
        vocabulary: Of a text.
    """
    texts = _text_files(job)
    density = None if texts else vectors(job)
    if density is not None:
        return density
    named = job in JOBS and job != "embedded"
    fix = "Try moons, digits or a text file."
    require(not named, "job", "be a text or a density with --all", job, fix)
    return _text(job, texts, vocabulary)


def _text(job: str, texts: list[Path], vocabulary: str) -> Text | Sources:
    if texts:
        return Sources(*texts, vocabulary=vocabulary)
    if job == "embedded":
        return Text.embedded(vocabulary=vocabulary)
    _check_spelling(job)
    return Text(job, vocabulary=vocabulary)


def _text_recipe(name: str, context: int, variant: Mapping[str, Any]) -> Recipe:
    require(
        name in TEXT_FAMILIES, "family", f"be one of {', '.join(TEXT_FAMILIES)} for a text", name
    )
    recipe = getattr(recipes, name)
    if name == "ngram":
        return recipe
    chosen = dict(variant) if name in ("transformer", "moe") else {}
    return functools.partial(recipe, context=context, **chosen)


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
    """Constructed and trained transformers that attend over three tokens: error against size.

    Args:
        largest: Parameters of the largest trained model, at most 20,000.
        rungs: Number of sizes, at most 5.
        seeds: Repetitions of each training.
        tokens: Sequences seen in training. Default: 30,000 and 120,000.
    """
    return Study(
        SequenceFunction("attention", d=1, n=3),
        recipes=[recipes.built, recipes.learner],
        ladder=_ladder("universal", 300, largest, rungs),
        seeds=seeds,
        tokens=tokens or list(JOBS["universal"].tokens),
    )


def dyck_study(*, seeds: int = 1, tokens: Sequence[float] | None = None) -> Study:
    """Transformers, LSTMs and convolutions of several depths on brackets nested 2, 4 and 8 deep.

    Args:
        seeds: Repetitions of each training.
        tokens: Symbols seen in training. Default: 900,000.
    """
    return Study(
        Brackets(k=8, depth=8, length=48),
        recipes=[recipes.twins],
        ladder=[1e4],
        seeds=seeds,
        tokens=tokens or list(JOBS["dyck"].tokens),
    )


def sequence_study(
    job: str,
    smallest: float = 1e3,
    largest: float = 3e4,
    rungs: int = 4,
    seeds: int = 2,
    tokens: Sequence[float] | None = None,
    families: Sequence[str] = (),
) -> Study:
    """One of `SEQUENCE_JOBS`: domains, pretraining tasks, or a transduction.

    See `recipes.domains`, `recipes.upstream` and `recipes.transduction`.
    """
    unit = None
    if job == "domains":
        require(not families, "family", "be left out: domains has one", list(families))
        target, chosen = Domains.usual(), [recipes.domains]
    elif job == "tasks":
        target, unit = Sources.embedded(), JOBS["tasks"].unit
        tasks = families or PRETRAINING_TASKS
        chosen = [functools.partial(recipes.upstream, task=task) for task in tasks]
    else:
        kinds = families or TRANSDUCERS
        target = Transduction(job)
        chosen = [functools.partial(recipes.transduction, kind=kind) for kind in kinds]
    return Study(
        target,
        recipes=chosen,
        ladder=_ladder(job, smallest, largest, rungs),
        seeds=seeds,
        tokens=tokens or list(JOBS[job].tokens),
        unit=unit,
    )


def _ladder(job: str, smallest: float, largest: float, rungs: int) -> list[int]:
    """Sizes within the largest size and number of sizes of the job's default ladder."""
    limits = JOBS[job].ladder
    assert limits is not None
    return ladder(smallest, min(largest, limits[1]), min(rungs, limits[2]))


def _check_spelling(job: str) -> None:
    """Refuse a name that is no file but similar to the name of a job."""
    near = [] if Path(job).exists() else difflib.get_close_matches(job, JOBS, 1, 0.7)
    fix = f"Did you mean {near[0]}?" if near else ""
    require(not near, "job", "be a file, a folder or the name of a job", job, fix)


def _text_files(job: str) -> list[Path]:
    """The text files of a folder, if it has some."""
    folder = Path(job)
    return sorted(folder.glob("*.txt")) if folder.is_dir() else []


_JOB_FILES: set[str] = set()
"""Names of modules imported from job files."""


def _same(module: ModuleType, path: Path) -> bool:
    """Whether a module was imported from this file."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()


def _from_file(path: Path, function: str) -> Study:
    if not path.is_file():
        raise InputError(f"{path} must be a Python file; got no such file.")
    # Workers import the file in the same way: its folder is on the path.
    sys.path.insert(0, str(path.parent.absolute()))
    known = sys.modules.get(path.stem)
    if known is not None and path.stem in _JOB_FILES and not _same(known, path):
        del sys.modules[path.stem]  # an earlier job file of the same name
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
    result = make()
    if not isinstance(result, Study):
        raise InputError(f"{path}:{function} must return a Study; got {type(result).__name__}.")
    return result
