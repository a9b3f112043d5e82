"""A Python function `train(shape, tokens, seed) -> loss` as a recipe."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry._core.registry import name_of, resolve
from allometry._core.spec import Spec
from allometry.study.own_training.command_study import OwnTask
from allometry.study.recipes.base import identity
from allometry.study.request import Outcome, Request, RunContext
from allometry.study.study import Study
from allometry.train.budget import Budget
from allometry.train.loop import Progress

RESULTS = ("loss", "N", "D", "C")
"""Keys of the mapping that a function may return in place of a loss."""


@final
@dataclass(frozen=True)
class FunctionRun(Request):
    """One call of a user's function.

    Args:
        function: Its `module:name`.
        shape: Its first argument; `N` in it is the number of parameters.
        tokens: Its second.
        seed: Its third.
        family: Name of the recipe.
        target: Name of the task.
        rung: Index of the shape.
    """

    function: str
    shape: Mapping[str, Any]
    tokens: float
    seed: int
    family: str
    target: str
    rung: int

    @property
    def columns(self) -> dict[str, Any]:
        """Family, target, shape, rung, seed and the values of the shape."""
        text = ", ".join(f"{k} {v}" for k, v in self.shape.items() if k != "N")
        own = {k: v for k, v in self.shape.items() if k not in ("N", "D", "C")}
        return own | identity(self.family, self.target, text, self.rung, self.seed)

    def budget(self) -> Budget:
        """What the shape says; N is 0 if the function is to say it."""
        N = float(self.shape.get("N", 0.0))
        return Budget(round(N), 0, round(self.tokens), 6.0 * N * self.tokens)

    def work(self) -> float:
        """Unknown; larger shapes later."""
        return 1.0 + self.rung

    def __call__(self, context: RunContext) -> Outcome:
        """Call the function."""
        started = time.monotonic()
        result = resolve(self.function)(dict(self.shape), self.tokens, self.seed)
        found = dict(result) if isinstance(result, Mapping) else {"loss": result}
        if "loss" not in found:
            raise InputError(f"{self.function} must return a loss; got {sorted(found)}.")
        loss = float(found["loss"])
        N = float(found.get("N") or self.shape.get("N") or 0)
        fix = "Put N in the shape, or return {'loss': ..., 'N': ...}."
        require(N > 0, f"{self.function}", "say its number of parameters", None, fix)
        D = float(found.get("D") or self.tokens)
        columns = {
            "N": N, "N_embedding": None, "D": D, "D_unique": None,
            "C": float(found.get("C") or 6.0 * N * D), "C_6ND": 6.0 * N * D,
            "loss": loss, "loss_se": None, "seconds": time.monotonic() - started,
        }  # fmt: skip
        more = {k: v for k, v in found.items() if k not in RESULTS}
        outcome = Outcome(more | self.columns | columns)
        context.watch(Progress(1, 1, loss))
        return outcome


@final
@dataclass(frozen=True)
class FunctionRecipe:
    """The runs of a function over shapes; sizes of the ladder are ignored."""

    function: str
    shapes: tuple[Mapping[str, Any], ...]
    family: str
    __name__ = "function"

    def __call__(
        self, target: Any, ladder: Iterable[float], *, tokens: Sequence[float], seeds: int
    ) -> list[Spec]:
        """One request per shape, number of tokens and seed."""
        return [
            Spec(
                FunctionRun, function=self.function, shape=dict(shape), tokens=float(D),
                seed=seed, family=self.family, target=target.name, rung=rung,
            )
            for rung, shape in enumerate(self.shapes)
            for D in tokens
            for seed in range(seeds)
        ]  # fmt: skip


def function_recipe(
    train: Callable[[dict[str, Any], float, int], Any],
    shapes: Sequence[Mapping[str, Any]],
    name: str | None = None,
) -> FunctionRecipe:
    """A recipe of a function `train(shape, tokens, seed)` that returns a loss.

    Args:
        train: Defined at the top level of a module, as workers import it by name. It returns the
            loss, or a mapping with `loss` and, if it knows them, `N`, `D` and `C`.
        shapes: Its first argument, one mapping per size; `N` is the number of parameters.
        name: Name of the family. Default: that of the function.
    """
    place = name_of(train)
    importable = not place.startswith("__main__:") and "<" not in place
    fix = "Move it to the top level of a file that can be imported."
    require(importable, "train", "be importable by worker processes", place, fix)
    require(len(shapes) > 0, "shapes", "have at least one shape", list(shapes))
    return FunctionRecipe(place, tuple(dict(s) for s in shapes), name or train.__name__)


def function_study(
    train: Callable[[dict[str, Any], float, int], Any],
    shapes: Sequence[Mapping[str, Any]],
    *,
    tokens: float | Sequence[float],
    seeds: int = 2,
    name: str | None = None,
) -> Study:
    """The study of one function over shapes, tokens and seeds; see `function_recipe`."""
    recipe = function_recipe(train, shapes, name)
    sizes = [float(shape.get("N") or i + 1) for i, shape in enumerate(shapes)]
    task = OwnTask(recipe.family, f"function:{recipe.function}")
    return Study(task, [recipe], ladder=sizes, seeds=seeds, tokens=tokens)
