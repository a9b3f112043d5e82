"""The command line. Its functions parse options, call the library and print; no logic is here."""

import importlib.util
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
    compare_command,
    construct_command,
    demo_command,
    export_command,
    fit_command,
    generate_command,
    list_command,
    mcp_command,
    measure_command,
    plan_command,
    report_command,
    run_command,
    schema_command,
    serve_command,
    status_command,
    watch_command,
)
from allometry.cli.console import complain, one_line, write_json
from allometry.cli.error_messages import asked, plainly
from allometry.cli.help_examples import epilog
from allometry.cli.next_command import next_
from allometry.cli.refusal_codes import refusal, refusal_code

DEFECT = 70
"""Exit code of an unexpected error (EX_SOFTWARE in sysexits.h)."""

TRAINING_LIBRARIES = ("torch", "pandas", "sklearn", "safetensors", "tokenizers")
"""Modules that the extra `train` installs."""

# Newer versions of typer contain a copy of click; this is the base class of its errors.
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

    Data go to standard output (`--json` for scripts), progress and messages to standard error.
    Exit codes: 0 success, 1 some runs failed, 2 invalid input or a missing dependency (a
    one-sentence message says what to do), 70 a defect of allometry. With `--json` a refusal is
    also an object with a stable code (docs/json.md).
    """


app.command("demo", epilog=epilog("demo"))(demo_command.demo)
app.command("run", epilog=epilog("run"))(run_command.run)
app.command("status", epilog=epilog("status"))(status_command.status)
app.command("report", epilog=epilog("report"))(report_command.report)
app.command("watch", epilog=epilog("watch"))(watch_command.watch)
app.command("fit", epilog=epilog("fit"))(fit_command.fit)
app.command("plan", epilog=epilog("plan"))(plan_command.plan)
app.command("next", epilog=epilog("next"))(next_)
app.command("compare", epilog=epilog("compare"))(compare_command.compare)
app.command("serve", epilog=epilog("serve"))(serve_command.serve)
app.command("generate", epilog=epilog("generate"))(generate_command.generate)
app.command("measure", epilog=epilog("measure"))(measure_command.measure)
app.command("export", epilog=epilog("export"))(export_command.export)
app.command("list", epilog=epilog("list"))(list_command.listing)
app.command("mcp", epilog=epilog("mcp"))(mcp_command.mcp)
app.command("schema", epilog=epilog("schema"))(schema_command.schema)
app.add_typer(construct_command.app, name="construct")


def _terminate(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; invalid input gives one line on standard error and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    _escape_unencodable_characters()
    with hide_library_warnings():
        _main()


def _main() -> None:
    try:
        code = app(standalone_mode=False)
    except AllometryError as error:
        message = plainly(str(error), asked(typer.main.get_command(app), sys.argv[1:]))
        _refuse(refusal_code(error), message)
    except _ClickException as error:
        raise SystemExit(_misused(error)) from None
    except BrokenPipeError:
        # The reader of our output has exited; keep Python from printing an error at exit.
        sys.stderr.close()
        raise SystemExit(0) from None
    except MemoryError:
        _refuse(
            "out_of_memory",
            "This needs more memory than available. Reduce it, or use a larger machine.",
        )
    except Exception as error:
        library = _missing_library() if isinstance(error, ImportError) else None
        if library is not None:
            _refuse(
                "missing_dependency",
                f"This command needs {library}: pip install 'allometry[train]'.",
            )
        if os.environ.get("ALLOMETRY_TRACEBACK"):
            raise
        _refuse(
            "defect",
            f"Unexpected {type(error).__name__}: {str(error)[:300]}. This is a defect of "
            "allometry. Please report it with what the same command prints after "
            "ALLOMETRY_TRACEBACK=1 is set in the environment.",
            DEFECT,
        )
    raise SystemExit(code if isinstance(code, int) else 0)


def _refuse(code: str, message: str, exit_code: int = 2) -> NoReturn:
    """Print the sentence to standard error, with --json an object to standard output; exit."""
    complain(message)
    if "--json" in sys.argv[1:]:
        write_json(refusal(code, one_line(message), exit_code))
    raise SystemExit(exit_code) from None


def _missing_library() -> str | None:
    """The first training library that is not installed; `None` if all are."""
    for module in TRAINING_LIBRARIES:
        try:
            installed = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            installed = False
        if not installed:
            return module
    return None


def _misused(error: Any) -> int:
    """Print what is wrong with the arguments; return the exit code."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)  # noqa: T201 - the help itself
    else:
        path = context.command_path if context is not None else "allometry"
        _refuse("usage", f"{message.rstrip('.')}. See `{path} --help`.")
    return 2


def _escape_unencodable_characters() -> None:
    """Keep characters that the terminal's encoding lacks from ending a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
