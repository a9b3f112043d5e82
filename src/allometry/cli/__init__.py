"""The command line. Its functions parse, call the library and print; there is no logic here."""

import signal
import sys
from typing import Annotated, NoReturn

import typer

from allometry import __version__
from allometry._core.errors import AllometryError
from allometry.cli import (
    construct,
    demo,
    fit,
    generate,
    listing,
    measure,
    plan,
    report,
    run,
    status,
)
from allometry.cli.next import next_

app = typer.Typer(
    help="How big a model does this job need, and what will it reach?",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"allometry {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """How big a model does this job need, and what will it reach?

    Data go to standard output (`--json` for machines), progress and messages to standard error.
    Exit code 0: fine. 1: some runs failed. 2: misuse, with a sentence that says what to do.
    """


app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("report")(report.report)
app.command("fit")(fit.fit)
app.command("plan")(plan.plan)
app.command("next")(next_)
app.command("generate")(generate.generate)
app.command("measure")(measure.measure)
app.command("list")(listing.listing)
app.add_typer(construct.app, name="construct")


def _terminate(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a mistake is one line on standard error and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except AllometryError as error:
        print(f"allometry: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    except BrokenPipeError:
        # Whoever read our output has gone; keep Python from complaining about it at exit.
        sys.stderr.close()
        raise SystemExit(0) from None
