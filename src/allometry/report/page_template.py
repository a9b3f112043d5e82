"""HTML pages that load nothing from elsewhere: template, style, script and security policy."""

import base64
import hashlib
import re
from html import escape
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder
from allometry.report import theme

_UNITS = re.compile(r"(\d) (?=(%|[kMGTPEZ]?FLOP|s|min|h|d|parameters|times)\b|%)")


def bound(text: str) -> str:
    """The text with no-break spaces between numbers and their units."""
    return _UNITS.sub("\\1\u00a0", text)


def raised(equation: str) -> Markup:
    """The equation as HTML with superscripts and subscripts: N^α, N^(α/β), N_c."""
    text = re.sub(r"\^(?:\(([^()]*)\)|(-?\w+))", r"<sup>\1\2</sup>", escape(equation))
    return Markup(re.sub(r"_([^\W_]+)", r"<sub>\1</sub>", text))


def _template(name: str) -> str:
    return files("allometry.report").joinpath("templates", name).read_text(encoding="utf-8")


def _style(more: tuple[str, ...]) -> str:
    """The style of every page, followed by more files of the templates folder."""

    def variables(colours: dict[str, str], wash: str) -> str:
        return "".join(f"--{k}:{v};" for k, v in colours.items()) + f"--wash:{wash};"

    return (
        "".join(_template(name) for name in ("page.css", *more))
        .replace("/*LIGHT*/", variables(theme.LIGHT, "#f4f2ec"))
        .replace("/*DARK*/", variables(theme.DARK, "#1e2226"))
    )


def policy(css: str, js: str = "", *, connects: bool = False) -> str:
    """A content security policy that allows this style and script and no external resource.

    Args:
        css: The style.
        js: The script.
        connects: Whether the page may send requests to the server that it came from.
    """

    def sha(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    script = f"script-src 'sha256-{sha(js)}'; " if js else ""
    connect = "connect-src 'self'; " if connects else ""
    return (
        f"default-src 'none'; style-src 'sha256-{sha(css)}'; {script}{connect}"
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def fill(
    name: str,
    *styles: str,
    script: str | tuple[str, ...] = "page.js",
    connects: bool = False,
    **values: Any,
) -> str:
    """A page from a template that extends `base.html`.

    Args:
        name: The template's file.
        styles: Style sheets to add to `page.css`.
        script: The page's script, or several that it runs in order.
        connects: Whether the page may send requests to the server that it came from.
        values: The template's variables.
    """
    names = (script,) if isinstance(script, str) else script
    css, js = _style(styles), "\n".join(_template(each) for each in names)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bound": bound, "raised": raised}
    allowed = policy(css, js, connects=connects)
    shared = {"css": css, "js": js, "policy": allowed, "version": installed("allometry")}
    return environment.get_template(name).render(shared | values)


def html_path(path: Path | str, caller: str) -> Path:
    """The path, which must end in .html; `caller` is named in the error."""
    path = Path(path)
    require(path.suffix.lower() in (".html", ".htm"), f"{caller}.path", "end in .html", str(path))
    return path


def save(path: Path, page: str) -> Path:
    """Write a page, making its folder; an old file stays until the new one is complete."""
    make_folder(path.parent)
    with atomic_write(path) as file:
        file.write(page)
    return path
