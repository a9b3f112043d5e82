"""Check what people read against docs/glossary.md: `python docs/check_words.py [FILES]`.

Reads the prose of Markdown files; in Python files the docstrings, comments, strings and public
names. Exits with 1 if a file uses a word that the glossary replaces, writes a decimal without its
leading zero in prose, or if sentences of the docs have more than 22 words in the mean. `make lint`
runs it over README, docs, changelog and src.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST_MEAN = 22.0

REPLACED = {
    r"(exact|next-symbol|known|true|wanted|any) laws?(?= of| on|;|,|\.|$)": "distribution",
    r"laws? (of|on) (the data|R\^d|a random|the next|the noise|a symbol)": "distribution",
    r"laws by which": "scaling laws",
    r"habits?": "prior",
    r"held(?![- ]out)(?= \d| in| by|\b)": "covered",
    r"holds \d[\d.]* ?%": "covers",
    r"drifts?": "extrapolation error",
    r"best splits?": "compute-optimal allocation",
    r"efficient runs": "runs near the compute-optimal frontier",
    r"for ever": "no irreducible term",
    r"lie on one path": "fixed tokens-per-parameter ratio",
    r"(not|un)told|can't tell|not to be had|(is|are) silent|goes silent": "not identified",
    r"doubts? about": "uncertainty",
    r"(draw|draws|drew) level": "crossover",
    r"made-up": "synthetic",
    r"(tuning|judging) half": "calibration set, held-out set",
    r"one upon the other": "cumulative",
    r"two goes|(by|in) turns|quiet (cores|machine)": "repetitions, interleaved, idle",
    r"told|tells?": "reported, estimated, shown",
    r"on a processor": "on CPU",
    r"a (copy|share) each": "replicated, sharded",
    r"stepped as one": "vectorised",
    r"crowds?|crews?|abreast": "batched trainer, workers",
    r"trunks?|cooled": "stable phase, cool-down",
    r"rooms?|doors?": "subpackage, entry point",
    r"what (the )?(models' )?samples are worth": "evaluation metrics",
    r"spoil(s|ed|ing)?": "corrupt",
    r"by heart": "memorised",
    r"fills? the gaps": "dequantisation noise",
    r"greatest entropy": "maximum entropy",
    r"next passage": "next-sentence prediction",
    r"linear readout": "linear probe",
    r"count models?": "n-gram baseline",
    r"unless told|said to be": "by default, reported",
    r"nobody|somebody|whoever": "name the actor",
    r"no trainings?": "job without gradient training",
}
"""Regular expressions of words with what stands in their place; see the glossary."""

ALLOWED = {
    "docs/glossary.md": "it lists the words",
    "docs/check_words.py": "it lists the words",
}
NAMES = {"cooled", "next passage"}
"""Public names that keep their spelling; in prose they are replaced all the same."""
PATTERN = re.compile("|".join(rf"(?P<w{i}>\b(?:{w})\b)" for i, w in enumerate(REPLACED)), re.I)
BARE_DECIMAL = re.compile(r"(?<![\w.\])/*-])\.\d+(?![\w/])")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that people read, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        blank = _FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
        for number, line in enumerate(blank.splitlines(), 1):
            yield (
                number,
                re.sub(r"`[^`]*`|<code>.*?</code>|\]\([^)]*\)|\$[^$]*\$|<[^>]*>", "` `", line),
            )
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
        if token.type in kinds:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, re.sub(r"`[^`]*`|\$[^$]*\$", "` `", line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.lineno, node.name.replace("_", " ")


def faults(path: Path) -> list[str]:
    """What is wrong in a file, one line for each."""
    name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else ""
    if name in ALLOWED:
        return []
    found = []
    for number, line in prose(path):
        for match in PATTERN.finditer(line):
            before = line[: match.start()][-1:]
            if match[0] in NAMES and (line == match[0] or (before and before in "\"'.")):
                continue
            word = list(REPLACED.values())[int(str(match.lastgroup)[1:])]
            found.append(f"{name or path}:{number}: {match[0]!r}: write {word}")
        if path.suffix == ".md" and (match := BARE_DECIMAL.search(line)):
            found.append(f"{name or path}:{number}: {match[0]!r}: write 0{match[0]}")
    return found


def sentences(path: Path) -> list[int]:
    """The number of words of every sentence of a page, tables and code aside."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    lines = [ln for ln in text.splitlines() if not re.match(r"\s*([|#:!<>]|-{3})", ln)]
    whole = re.sub(r"\n\s*([-*]|\d+\.) ", ".\n", "\n".join(lines))
    parts = re.split(r"(?<=[.!?:])\s+|\n\s*\n", re.sub(r"`[^`]*`", "x", whole))
    return [n for part in parts if (n := len(re.findall(r"[A-Za-z0-9$%]+[\w'.-]*", part))) > 2]


def main() -> None:
    """Print every fault and leave with 1 if there is one."""
    given = [Path(name) for name in sys.argv[1:]]
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files = given or [*pages, *sorted((ROOT / "src").rglob("*.py"))]
    files = [f for p in files for f in (sorted(p.rglob("*.[mp][dy]")) if p.is_dir() else [p])]
    found = [fault for path in files for fault in faults(path)]
    lengths = [n for path in files if path.suffix == ".md" for n in sentences(path)]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    if mean > LONGEST_MEAN:
        found.append(f"Sentences have {mean:.1f} words in the mean; at most {LONGEST_MEAN:g}.")
    print("\n".join(found) or f"{len(files)} files; {mean:.1f} words in a sentence of the docs.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
