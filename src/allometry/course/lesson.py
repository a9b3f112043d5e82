"""Lessons: one Markdown source each, from which pages and notebooks are made.

A source has Python blocks, and lines `{exercise 1}` where an exercise stands.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

import orjson

from allometry._core.errors import require
from allometry._core.files import atomic_write
from allometry.course.exercise import find

ORDER = (
    "sampling",
    "flows",
    "autoencoders",
    "latents",
    "quantisation",
    "games",
    "gans",
    "evaluation",
    "autoregression",
    "transformers",
    "expressivity",
    "growth",
)
"""The order of the lessons."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
_EXERCISE = re.compile(r"^\{exercise (\d+)\}$", re.M)
_OUTPUT = re.compile(r"\n```text\n.*?^```\n|\n!?\[[^\]\n]*\]\(figures/[^)\n]*\)\n", re.M | re.S)


@final
@dataclass(frozen=True)
class Cell:
    """A part of a lesson: Markdown or Python code."""

    code: bool
    text: str


@final
@dataclass(frozen=True)
class Lesson:
    """A lesson with its cells, exercises included.

    Args:
        name: Its short name, such as `"flows"`.
        title: Its first heading.
        cells: Text and code in order.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]

    def code(self) -> list[str]:
        """The code cells."""
        return [cell.text for cell in self.cells if cell.code]


def names() -> list[str]:
    """The lessons of this version, in order."""
    here = {f.name.removesuffix(".md") for f in _folder().iterdir() if f.name.endswith(".md")}
    return [name for name in ORDER if name in here]


def read(name: str) -> Lesson:
    """The lesson of a name.

    Example:
        >>> import allometry as al
        >>> al.course.read("games").title
        'Games'
    """
    require(name in names(), "The name of a lesson", f"be one of {', '.join(names())}", name)
    text = (_folder() / f"{name}.md").read_text(encoding="utf-8")
    text = _EXERCISE.sub(lambda m: _question(name, int(m[1])), text)
    cells, at = [], 0
    for block in _BLOCK.finditer(text):
        cells += [Cell(False, text[at : block.start()].strip()), Cell(True, block[1].rstrip())]
        at = block.end()
    cells.append(Cell(False, text[at:].strip()))
    title = text.splitlines()[0].removeprefix("# ").strip()
    return Lesson(name, title, tuple(cell for cell in cells if cell.text))


def notebook(name: str, path: Path | str | None = None) -> Path:
    """Write a lesson as a Jupyter notebook, without outputs.

    Args:
        name: Its short name, such as `"flows"`.
        path: The file. Default: the name with `.ipynb` in the current folder.
    """
    lesson = read(name)
    where = Path(f"{name}.ipynb") if path is None else Path(path)
    cells: list[dict[str, Any]] = []
    for i, cell in enumerate(lesson.cells):
        each: dict[str, Any] = {"id": f"{name}-{i}", "metadata": {}}
        each["source"] = cell.text.splitlines(keepends=True)
        if cell.code:
            each |= {"cell_type": "code", "execution_count": None, "outputs": []}
        else:
            each |= {"cell_type": "markdown"}
        cells.append(each)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    book = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    with atomic_write(where, "wb") as file:
        file.write(orjson.dumps(book, option=orjson.OPT_INDENT_2))
    return where


def page(lesson: Lesson, outputs: Sequence[str] = ()) -> str:
    """The page of a lesson in Markdown, with the output of each code cell after it."""
    parts, done = [], 0
    for cell in lesson.cells:
        if not cell.code:
            parts.append(cell.text)
            continue
        parts.append(f"```python\n{cell.text}\n```")
        if done < len(outputs) and outputs[done]:
            parts.append(outputs[done])
        done += 1
    return "\n\n".join(parts) + "\n"


def without_outputs(text: str) -> str:
    """A page without what its code printed and drew: equal for a fresh page and `page(lesson)`."""
    return re.sub(r"\n{3,}", "\n\n", _OUTPUT.sub("\n", text))


def _question(lesson: str, number: int) -> str:
    name = f"{lesson}.{number}"
    text = find(name).question.strip()
    return f'**Exercise {number}.** {text}\n\n```python\nal.course.check("{name}", ...)\n```'


def _folder() -> Any:
    return resources.files("allometry.course") / "lessons"
