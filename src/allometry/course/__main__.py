"""Write lessons as notebooks into the current folder: `python -m allometry.course [NAME ...]`."""

import sys

from allometry._core.errors import AllometryError
from allometry.course.lesson import names, notebook


def main(given: list[str]) -> int:
    """Write the named lessons, or all; returns the exit code."""
    try:
        for name in given or names():
            sys.stdout.write(f"{notebook(name)}\n")
    except AllometryError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
