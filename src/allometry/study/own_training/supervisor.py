"""Run a command and end it, with all it started, when standard input ends.

    python supervisor.py PROGRAM [ARGUMENT ...]

A worker keeps the other end of the input. If the worker exits for any reason, even by SIGKILL, the
input ends and nothing is left running. This file imports nothing of the package, so it starts
fast, and it runs on the interpreter alone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

NOT_STARTED = 127
"""Exit code if the program can't be started, as that of a shell."""


def main() -> None:
    """Run the command and exit with its code; 128 + n if it was killed by signal n."""
    try:
        child = subprocess.Popen(
            sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True, shell=False
        )
    except OSError as error:
        sys.stdout.write(f"{sys.argv[1]}: {error.strerror}\n")
        sys.stdout.flush()
        os._exit(NOT_STARTED)

    def signal_all(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)

    def end_with_input() -> None:
        sys.stdin.buffer.read()
        signal_all(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        signal_all(signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    code = child.wait()
    signal_all(signal.SIGKILL)  # what it started in the background
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
