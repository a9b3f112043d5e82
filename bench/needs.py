"""Run a bench, or say in one sentence what it lacks: public data, or a package."""

import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
"""Public runs beside the project; they are not part of it."""


def run(main, data=None):
    """Call `main`; end with one sentence if a data file or a package is missing.

    Args:
        main: The bench.
        data: Folder or file without which it can do nothing; asking for help works without.
    """
    helped = {"-h", "--help"} & set(sys.argv[1:])
    if data is not None and not helped and not Path(data).exists():
        sys.exit(f"This bench reads public data in {data}, which is absent.")
    try:
        main()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "allometry":
            raise
        sys.exit(f"This bench needs {error.name}, which is not installed.")
    except FileNotFoundError as error:
        if error.filename is None or "data" not in Path(error.filename).parts:
            raise
        sys.exit(f"This bench reads public data in {error.filename}, which is absent.")
