"""Writes docs/gallery.md: every picture of the docs as a card that links to its code.

Run `.venv/bin/python docs/make_gallery.py` after pictures were added; a test compares the page.
"""

import re
from pathlib import Path
from urllib.parse import quote

from markdown.extensions.toc import slugify

DOCS = Path(__file__).parent
HEAD = """# Gallery

Every picture was made by code of this site. A card leads to the section with that code.
"""
PICTURE = re.compile(r"!\[([^\]]+)\]\(((?:\.\./)?figures/[\w-]+\.svg)\)")


def cards(page: Path) -> list[str]:
    """A card for each picture of a page: the picture, linked to its section, and its caption."""
    made, section, inside = [], "", False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside ^= line.startswith("```")
        if not inside and line.startswith("#"):
            section = slugify(re.sub(r"`|\\\(|\\\)", "", line.lstrip("# ")), "-")
        for caption, source in PICTURE.findall(line):
            path = (page.parent / source).resolve().relative_to(DOCS.resolve()).as_posix()
            there = f"{page.relative_to(DOCS).as_posix()}#{quote(section)}"
            made.append(f"- [![{caption}]({path})]({there})\n\n    {caption}")
    return made


def page() -> str:
    """The whole page, a section for each source."""
    parts = [HEAD]
    sources = [*sorted((DOCS / "course").glob("*.md")), *sorted(DOCS.glob("*.md"))]
    for source in sources:
        made = [] if source.name in ("gallery.md", "index.md") else cards(source)
        if made:
            title = source.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            parts += [f"## {title}", '<div class="gallery" markdown>', *made, "</div>"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")
