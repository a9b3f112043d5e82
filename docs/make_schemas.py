"""Write docs/schemas: `python docs/make_schemas.py [--check]`."""

import json
import sys
from pathlib import Path

from allometry.cli.schemas import SCHEMAS, schema

FOLDER = Path(__file__).parent / "schemas"


def files() -> dict[Path, str]:
    """The text of each file."""
    return {FOLDER / f"{name}.json": json.dumps(schema(name), indent=2) + "\n" for name in SCHEMAS}


def main() -> None:
    """Write the files, or say which are out of date."""
    stale = [
        path for path, text in files().items() if not path.is_file() or path.read_text() != text
    ]
    if "--check" in sys.argv:
        sys.exit(f"docs/schemas is out of date: {[p.name for p in stale]}" if stale else 0)
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(files()[path])


if __name__ == "__main__":
    main()
