"""Hide warnings that libraries address to programmers."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from allometry._core.errors import AllometryWarning


@contextlib.contextmanager
def hide_library_warnings() -> Iterator[None]:
    """Show this package's warnings as one line each and hide those of libraries.

    `python -W` and `PYTHONWARNINGS` show all of them.
    """
    if sys.warnoptions:
        yield
        return
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", AllometryWarning)
        warnings.showwarning = _show
        logging.disable(max(before, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(before)


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"allometry: {' '.join(str(message).split())}\n")
