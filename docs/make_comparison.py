"""Draw a comparison of all families for the docs: `python docs/make_comparison.py NAME=PAGE`.

PAGE is the `families.html` that `allometry run JOB --all` has written. The charts become
docs/figures/families_NAME_*.svg, with samples of every family and budget if they are pictures; the
answer and the tables go to standard output as Markdown.
"""

import html
import re
import sys
from pathlib import Path

from allometry.report import theme

FIGURES = Path(__file__).parent / "figures"
FILES = {"distance": "distance", "likelihood": "loss"}
"""Ending of the file of each chart."""

SIDE, GAP, LEFT, TOP = 90, 8, 130, 26
"""Layout of the sheet of samples in pixels."""

SECTION = r'<section id="(\w+)"[^>]*>(.*?)</section>'


def charts(page: str) -> dict[str, str]:
    """The charts of a page as files that stand alone."""
    found = {}
    for name, body in re.findall(SECTION, page, re.DOTALL):
        picture = re.search(r"<svg.*?</svg>", body, re.DOTALL)
        if name in FILES and picture is not None:
            drawn = re.sub(r"var\(--(\w+)\)", lambda m: theme.LIGHT[m[1]], picture.group())
            found[FILES[name]] = theme.on_paper(drawn)
    return found


def rows(body: str) -> list[list[str]]:
    """The cells of a table."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.DOTALL) for r in body.split("<tr>")]
    return [row for row in cells if row]


def plain(cell: str) -> str:
    """The text of a cell on one line."""
    words = html.unescape(re.sub(r"<[^>]+>", " ", cell)).split()
    return " ".join(words)


def sheet(table: list[list[str]]) -> str:
    """Pictures of samples by family and budget."""
    (_, *budgets), *families = table
    width, height = LEFT + len(budgets) * (SIDE + GAP), TOP + len(families) * (SIDE + GAP)
    paper, ink = theme.LIGHT["paper"], theme.LIGHT["ink"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="{ink}">',
        f'<rect width="{width}" height="{height}" fill="{paper}"/>',
    ]
    for i, budget in enumerate(budgets):
        x = LEFT + i * (SIDE + GAP) + SIDE / 2
        parts.append(f'<text x="{x}" y="16" text-anchor="middle">{plain(budget)}</text>')
    for j, (family, *cells) in enumerate(families):
        y = TOP + j * (SIDE + GAP)
        parts.append(f'<text x="4" y="{y + SIDE / 2}">{html.escape(plain(family))}</text>')
        for i, cell in enumerate(cells):
            source = re.search(r'src="(data:image/png;base64,[^"]+)"', cell)
            if source is not None:
                x = LEFT + i * (SIDE + GAP)
                place = f'x="{x}" y="{y}" width="{SIDE}" height="{SIDE}"'
                parts.append(f'<image {place} href="{source[1]}"/>')
    return "\n".join([*parts, "</svg>"])


def markdown(table: list[list[str]]) -> str:
    """A table of Markdown."""
    head, *body = [[plain(cell) for cell in row] for row in table]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(given: list[str]) -> None:
    for pair in given:
        name, _, file = pair.partition("=")
        page = Path(file).read_text(encoding="utf-8")
        made = charts(page)
        print(f"## {name}")
        for part, body in re.findall(SECTION, page, re.DOTALL):
            table = rows(body)
            if part == "samples" and "data:image/png" in body:
                made["samples"] = sheet(table)
            elif table:
                print(f"### {part}\n\n{markdown(table)}\n")
        for sentence in re.findall(r'<p class="(?:lead|warning)">(.*?)</p>', page, re.DOTALL):
            print(plain(sentence))
        for part, drawn in made.items():
            (FIGURES / f"families_{name}_{part}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
