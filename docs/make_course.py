"""Execute the lessons and write docs/course: `python docs/make_course.py [NAME ...]`."""

import ast
import contextlib
import io
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch

from allometry.course import lesson
from allometry.course.figure import Figure, Film
from allometry.course.lesson import Lesson
from allometry.report import theme

FOLDER = Path(__file__).parent / "course"


@final
@dataclass
class Executed:
    """What a lesson printed and drew.

    Args:
        outputs: Markdown of the output of each code cell.
        figures: All figures and animations by file name.
        seconds: The runtime of each code cell.
    """

    outputs: list[str] = field(default_factory=list)
    figures: dict[str, Figure | Film] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write the pictures: SVG on light paper, animations as HTML."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in self.figures.items():
            if isinstance(figure, Figure):
                text = theme.on_paper(figure.svg())
            else:
                text = f'<!doctype html><meta charset="utf-8">\n{figure.html()}\n'
            (folder / name).write_text(text, encoding="utf-8")


def execute(lesson: Lesson) -> Executed:
    """Run every code cell in one namespace, as a notebook does."""
    done = Executed()
    space: dict[str, Any] = {"__name__": "__main__"}
    for i, code in enumerate(lesson.code(), 1):
        printed, start = io.StringIO(), time.perf_counter()
        with contextlib.redirect_stdout(printed):
            value = _run(code, space, f"{lesson.name}[{i}]")
        done.seconds.append(time.perf_counter() - start)
        text = printed.getvalue()
        parts = []
        if isinstance(value, Figure | Film):
            if text:
                parts.append(f"```text\n{text.rstrip()}\n```")
            ending = "svg" if isinstance(value, Figure) else "html"
            name = f"{lesson.name}-{len(done.figures) + 1}.{ending}"
            done.figures[name] = value
            mark = "!" if isinstance(value, Figure) else ""
            parts.append(f"{mark}[{value.caption}](figures/{name})")
        else:
            text += "" if value is None else repr(value)
            if text:
                parts.append(f"```text\n{text.rstrip()}\n```")
        done.outputs.append("\n\n".join(parts))
    return done


def _run(code: str, space: dict[str, Any], where: str) -> Any:
    """The value of the last expression, or None."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), space)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), where, "eval"), space)


def main() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    for name in sys.argv[1:] or lesson.names():
        read = lesson.read(name)
        done = execute(read)
        for old in (FOLDER / "figures").glob(f"{name}-*"):
            old.unlink()
        done.write(FOLDER / "figures")
        (FOLDER / f"{name}.md").write_text(lesson.page(read, done.outputs), encoding="utf-8")
        slow = ", ".join(f"{s:.1f}" for s in done.seconds if s > 0.5)
        print(f"{name}: {sum(done.seconds):.1f} s ({slow}); {', '.join(done.figures)}")


if __name__ == "__main__":
    main()
