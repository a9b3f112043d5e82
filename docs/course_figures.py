"""Charts and animations of the course inside its pages, in colours that follow the scheme."""

import html
import re
from pathlib import Path
from typing import Any

from allometry.report import theme

FIGURES = Path(__file__).parent / "course" / "figures"
IMAGE = re.compile(r'<p><img alt="([^"]*)" src="[^"]*?figures/([a-z]+-\d+)\.svg" ?/?></p>')
FILM = re.compile(r'<p><a href="[^"]*?figures/([a-z]+-\d+)\.html">(.*?)</a></p>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace references to files by their content."""

    def chart(found: re.Match[str]) -> str:
        path = FIGURES / f"{found[2]}.svg"
        if not path.exists():
            return found[0]
        paper = f'fill="{theme.LIGHT["paper"]}"'
        picture = path.read_text(encoding="utf-8").replace(paper, 'fill="none"', 1)
        # The label of the picture is its caption, so the caption is not read out twice.
        picture = theme.inline(picture, found[2], found[1])
        wide = re.search(r'viewBox="0 0 ([\d.]+)', picture)
        if wide is not None:
            picture = picture.replace("<svg ", f'<svg style="max-width:min(100%,{wide[1]}px)" ', 1)
        return f'<figure class="lesson">{picture}<figcaption>{found[1]}</figcaption></figure>'

    def film(found: re.Match[str]) -> str:
        path = FIGURES / f"{found[1]}.html"
        if not path.exists():
            return found[0]
        fragment = path.read_text(encoding="utf-8").split("\n", 1)[1]
        caption = html.escape(html.unescape(found[2]), quote=False)
        return f'<figure class="lesson">{fragment}<figcaption>{caption}</figcaption></figure>'

    return FILM.sub(film, IMAGE.sub(chart, content))
