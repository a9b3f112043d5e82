"""The Model Context Protocol server: fit, plan, next, compare and explain as tools of an agent.

Each tool runs the command of the same name with `--json` in a process of its own, so the answers
are those of the command line, an endless fit ends at a time limit, and nothing else is written to
the standard output that the protocol uses. Files are read by the importers only, and only below
one folder.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from allometry._core.errors import InputError, require_extra
from allometry._core.version import __version__
from allometry.cli.refusal_codes import MEANINGS, refusal, refusal_code
from allometry.cli.schemas import SCHEMAS

SECONDS = 300
"""Time limit of one call."""

INSTRUCTIONS = (
    "Scaling laws of loss in parameters N, tokens D and compute C, from tables and logs of runs. "
    "Read `codes` before you act on a number: with allocation_not_identified, N and D of a plan "
    "are no optimum. A refusal has error.code and error.do; `explain` says what a code means."
)


def server(root: Path) -> Any:
    """The server whose tools read files below `root`."""
    kind = require_extra("mcp.server.mcpserver", "mcp").MCPServer
    made = kind("allometry", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in _tools(root.resolve()):
        made.add_tool(tool)
    return made


def _tools(root: Path) -> list[Any]:
    """The tools; their docstrings and annotations are what the agent sees."""

    async def fit(runs: str, form: str = "auto", family: str | None = None) -> dict[str, Any]:
        """Fit a scaling law to runs: parameters with 95 % intervals, backtests, warnings.

        Args:
            runs: A file or folder of runs (CSV, JSON lines, logs of common tools).
            form: auto, power, floor, chinchilla or another of `allometry list forms`.
            family: Use only the runs of this family.
        """
        return await run(root, "fit", [runs], form=form, family=family)

    async def plan(
        runs: str,
        compute: float | None = None,
        reach: float | None = None,
        form: str = "auto",
        size: float | None = None,
        tokens: float | None = None,
        unique_tokens: float | None = None,
        inference_tokens: float | None = None,
        hardware: str | None = None,
        price: str | None = None,
    ) -> dict[str, Any]:
        """Plan a budget: compute-optimal N and D, expected loss, hours and cost, with intervals.

        Args:
            runs: A file or folder of runs, or a law that `allometry fit --save` wrote.
            compute: The budget in FLOPs; or give `reach`.
            reach: The loss to reach.
            form: Form of the law.
            size: Fix the number of parameters.
            tokens: Fix the number of training tokens.
            unique_tokens: Number of unique tokens available.
            inference_tokens: Tokens to generate after training, within the same budget.
            hardware: Accelerators, such as 8xH100.
            price: Price of an accelerator-hour, such as 2.5/h.
        """
        return await run(
            root, "plan", [runs], compute=compute, reach=reach, form=form, size=size,
            tokens=tokens, unique_tokens=unique_tokens, inference_tokens=inference_tokens,
            hardware=hardware, price=price,
        )  # fmt: skip

    async def next(  # noqa: A001 - the tool has the name of the command
        runs: str, budget: float, compute: float, form: str = "auto", most: int = 6
    ) -> dict[str, Any]:
        """Choose the next runs that narrow the prediction at a larger compute most.

        Args:
            runs: A file or folder of runs, or a saved law.
            budget: FLOPs to spend on new runs.
            compute: The compute-optimal run of this many FLOPs is to be predicted.
            form: Form of the law.
            most: Largest number of new runs.
        """
        return await run(
            root, "next", [runs], budget=budget, compute=compute, form=form, most=most
        )

    async def compare(
        runs: list[str], by: str | None = None, at: float | None = None
    ) -> dict[str, Any]:
        """Compare recipes: the winner at a scale and the compute multiplier, with intervals.

        Args:
            runs: One file with a column of recipes, or one file for each recipe.
            by: The column of recipes.
            at: The compute in FLOPs at which to compare.
        """
        return await run(root, "compare", runs, by=by, at=at)

    def explain(name: str) -> dict[str, str]:
        """Explain a code of a refusal or warning, a form of a law, or a command's output.

        Args:
            name: Such as not_identified, chinchilla or plan.
        """
        return explained(name)

    return [fit, plan, next, compare, explain]


def explained(name: str) -> dict[str, str]:
    """What a code, a form or a command's output is."""
    from allometry.laws.form_names import MAKERS

    if name in MEANINGS:
        return {"name": name, "kind": "code", "meaning": MEANINGS[name]}
    if name in MAKERS:
        return {"name": name, "kind": "form", "meaning": MAKERS[name]("x").equation}
    if name in SCHEMAS:
        return {"name": name, "kind": "output", "meaning": SCHEMAS[name][0]}
    known = ", ".join([*MEANINGS, *MAKERS, *SCHEMAS])
    raise _refused(InputError(f"name must be one of {known}; got {name[:80]!r}."))


async def run(root: Path, command: str, paths: list[str], **options: Any) -> dict[str, Any]:
    """The JSON of a command.

    Args:
        root: Folder that the paths must be in.
        command: A command of the command line.
        paths: Its arguments.
        **options: Its options; None for the default.
    """
    try:
        inside = [str(_inside(root, path)) for path in paths]
    except InputError as error:
        raise _refused(error) from None
    # With `=` and after `--`, no value is taken for an option.
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in options.items()
        if value is not None
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from allometry.cli import main; main()"),
        *(command, "--json", *flags, "--", *inside),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        raise _refused(
            InputError(f"{command} must end within {SECONDS} s; it did not. Give fewer runs.")
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _tool_error(out.decode() or json.dumps(refusal("defect", "No answer.", 70)))
    return json.loads(out)


def _inside(root: Path, path: str) -> Path:
    """The path, which must be below the root even if it contains links."""
    try:
        found = (root / path).resolve()
    except (OSError, ValueError):  # a NUL, or a loop of links
        raise InputError(f"runs must be a valid path; got {path[:200]!r}.") from None
    if not found.is_relative_to(root):
        raise InputError(
            f"runs must be below {root}; got {path[:200]!r}. Start the server with --root to "
            "allow another folder."
        )
    return found


def _refused(error: BaseException) -> Exception:
    """The error as the same JSON that the command line prints."""
    return _tool_error(json.dumps(refusal(refusal_code(error), str(error))))


def _tool_error(text: str) -> Exception:
    return require_extra("mcp.server.mcpserver.exceptions", "mcp").ToolError(text)
