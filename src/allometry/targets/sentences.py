"""Words and sentences of a text, and text from words."""

import re
from collections.abc import Iterable, Iterator

BOUNDARY = "</s>"
"""The symbol at the end of a sentence."""

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
# The end of a sentence: its closing mark before white space and the next word, or an empty line.
_END = re.compile(r"[.!?。！？][\"'”’)\]]*(?:\s+(?=[\"'“‘(\[]*(\w))|\s*$)|\n[ \t]*\n\s*")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}”’%。，！？")
_NO_SPACE_AFTER = frozenset("([{“‘")


def words(text: str) -> Iterator[str]:
    """The words and punctuation marks of a text, with `BOUNDARY` after each sentence.

    A sentence ends at a full stop, question or exclamation mark if no lower-case letter follows,
    and at an empty line. What is left at the end of the text may be the beginning of a sentence,
    such as a prompt, and gets no boundary unless it has its closing mark.

    Example:
        >>> from allometry.targets.sentences import words
        >>> list(words("It's late, e.g. ten. Go"))
        ["It's", 'late', ',', 'e', '.', 'g', '.', 'ten', '.', '</s>', 'Go']
    """
    start = 0
    for end in _END.finditer(text):
        if end[1] and (end[1].islower() or end[1].isdigit()):
            continue
        found = _WORD.findall(text, start, end.end())
        start = end.end()
        if found:
            yield from found
            yield BOUNDARY
    yield from _WORD.findall(text, start)


def joined(parts: Iterable[str]) -> str:
    r"""The words as text: one sentence a line, no space before punctuation marks.

    Example:
        >>> from allometry.targets.sentences import joined
        >>> joined(["Go", "on", "(", "now", ")", ".", "</s>", "He"])
        'Go on (now).\nHe'
    """
    out: list[str] = []
    attach = True
    for part in parts:
        if part == BOUNDARY:
            out.append("\n")
            attach = True
            continue
        if not attach and part not in _NO_SPACE_BEFORE:
            out.append(" ")
        out.append(part)
        attach = part in _NO_SPACE_AFTER
    return "".join(out)
