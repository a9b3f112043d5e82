"""The command line. Its functions parse, call the library and print; there is no logic here."""

import io
import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

from allometry import __version__
from allometry._core.errors import AllometryError
from allometry._core.library_warnings import hide_library_warnings
from allometry.cli import (
    construct,
    demo,
    fit,
    generate,
    list_names,
    measure,
    plan,
    report,
    run,
    status,
)
from allometry.cli.console import complain
from allometry.cli.error_messages import asked, plainly
from allometry.cli.help_examples import epilog
from allometry.cli.next import next_

DEFECT = 70
"""Exit code of a failure that nobody foresaw (EX_SOFTWARE in sysexits.h)."""

# Typer has a copy of click of its own from some version on; this is the base of its errors.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

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


@app.callback(epilog=epilog(""))
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """How big a model does this job need, and what will it reach?

    Data go to standard output (`--json` for machines), progress and messages to standard error.
    Exit code 0: fine. 1: some runs failed. 2: misuse, with a sentence that says what to do.
    70: a defect of allometry.
    """


app.command("demo", epilog=epilog("demo"))(demo.demo)
app.command("run", epilog=epilog("run"))(run.run)
app.command("status", epilog=epilog("status"))(status.status)
app.command("report", epilog=epilog("report"))(report.report)
app.command("fit", epilog=epilog("fit"))(fit.fit)
app.command("plan", epilog=epilog("plan"))(plan.plan)
app.command("next", epilog=epilog("next"))(next_)
app.command("generate", epilog=epilog("generate"))(generate.generate)
app.command("measure", epilog=epilog("measure"))(measure.measure)
app.command("list", epilog=epilog("list"))(list_names.listing)
app.add_typer(construct.app, name="construct")


def _terminate(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a mistake is one line on standard error and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    _escape_what_cannot_be_written()
    with hide_library_warnings():
        _main()


def _main() -> None:
    try:
        code = app(standalone_mode=False)
    except AllometryError as error:
        complain(plainly(str(error), asked(typer.main.get_command(app), sys.argv[1:])))
        raise SystemExit(2) from None
    except _ClickException as error:
        raise SystemExit(_misused(error)) from None
    except BrokenPipeError:
        # Whoever read our output has gone; keep Python from complaining about it at exit.
        sys.stderr.close()
        raise SystemExit(0) from None
    except MemoryError:
        complain("This needs more memory than there is. Ask for less, or use a larger machine.")
        raise SystemExit(2) from None
    except Exception as error:
        if os.environ.get("ALLOMETRY_TRACEBACK"):
            raise
        complain(
            f"Unexpected {type(error).__name__}: {str(error)[:300]}. This is a defect of "
            "allometry. Please report it with what the same command prints after "
            "ALLOMETRY_TRACEBACK=1 is set in the environment."
        )
        raise SystemExit(DEFECT) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _misused(error: Any) -> int:
    """Say what is wrong with the arguments; the exit code."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)  # noqa: T201 - the help itself
    else:
        path = context.command_path if context is not None else "allometry"
        complain(f"{message.rstrip('.')}. See `{path} --help`.")
    return 2


def _escape_what_cannot_be_written() -> None:
    """Let no character that the terminal's encoding lacks end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
