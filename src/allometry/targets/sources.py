"""Text of several sources: a control code for each, lines of unknown symbols left out.

Letters: b windows, s sources.
"""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.spec import Spec, identified_by_content
from allometry.targets.corpus import read
from allometry.targets.row_batches import SPLITS, cut, same_content
from allometry.targets.vocabulary import BPE, Characters, Marked, Vocabulary

MODULES = ("argparse", "inspect", "subprocess", "tarfile", "typing", "_pydecimal")
"""Modules whose source code is the embedded text of several sources."""

MOST = 80_000
"""Characters taken of each of them."""


@final
class Sources:
    r"""Next-symbol prediction on several texts, each window told where it comes from.

    Each source is cut into train, validation and test by itself, and no window crosses from one to
    another. With `codes` a window begins with the control code of its source instead of its first
    symbol, so that one model learns $p(x \mid \text{source})$ and can be asked for either.

    Symbols known are those of the training parts, or the `size` - 1 most frequent of them. Of a
    source in another script almost every symbol may be unknown; a line with more than the share
    `most_unknown` of them is left out of every split, and counted in `dropped`.

    Args:
        *paths: Text files; the name of a source is its file's.
        vocabulary: `"characters"` or `"bpe"`.
        size: Symbols at most, codes not counted.
        splits: Shares of train, validation and test of every source.
        codes: Begin each window with the code of its source.
        most_unknown: The largest share of unknown symbols that a line may have; 1 keeps all.
        fingerprint: If given, the fingerprint they must have: a study resumes only on the texts
            it began with.

    Attributes:
        names: Of the sources.
        train: Symbols of all sources, one after another; likewise `validation`, `test`.
        dropped: Lines left out of each source.
        unknown: How many symbols of each split are unknown.

    Example:
        >>> from allometry.targets import Sources
        >>> both = Sources.from_strings({"a": "so it goes\n" * 50, "b": "e pur si muove\n" * 50})
        >>> window = both.batch(0, size=1, context=8, seed=0)[0]
        >>> both.vocabulary.decode(window[:1]) in ("<a>", "<b>")
        True

    References: `keskar2019` section 3 for control codes.
    """

    def __init__(
        self,
        *paths: str | Path,
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
        codes: bool = True,
        most_unknown: float | int = 1.0,
        fingerprint: str | None = None,
    ) -> None:
        places = [Path(path).expanduser().absolute() for path in paths]
        texts = {place.stem: str(read(place, "characters")) for place in places}
        require(len(texts) == len(places), "Sources.paths", "have different names", list(texts))
        arguments = {"paths": [str(place) for place in places], "vocabulary": vocabulary}
        arguments |= {"size": size, "splits": list(splits), "codes": codes}
        arguments |= {"most_unknown": most_unknown}
        self._build(texts, "sources", Sources.from_paths, arguments)
        same_content("Sources", ", ".join(texts), self.fingerprint, fingerprint)

    @staticmethod
    @identified_by_content("paths", since=("fingerprint",))
    def from_paths(
        paths: Sequence[str],
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
        codes: bool = True,
        most_unknown: float | int = 1.0,
        fingerprint: str | None = None,
    ) -> "Sources":
        """`Sources(*paths, ...)` with plain arguments by name, for a `Spec`."""
        return Sources(
            *paths,
            vocabulary=vocabulary,
            size=size,
            splits=splits,
            codes=codes,
            most_unknown=most_unknown,
            fingerprint=fingerprint,
        )

    @staticmethod
    def from_strings(
        texts: dict[str, str],
        name: str = "sources",
        vocabulary: str = "characters",
        size: int | None = None,
        splits: Sequence[float] = (0.9, 0.05, 0.05),
        codes: bool = True,
        most_unknown: float | int = 1.0,
    ) -> "Sources":
        """Sources from texts in memory, by their names."""
        made = object.__new__(Sources)
        arguments = {"texts": texts, "name": name, "vocabulary": vocabulary, "size": size}
        arguments |= {"splits": list(splits), "codes": codes, "most_unknown": most_unknown}
        made._build(texts, name, Sources.from_strings, arguments)
        return made

    @staticmethod
    def embedded(
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        codes: bool = False,
    ) -> "Sources":
        """The source code of six modules that every Python carries, 80,000 characters of each.

        Python versions differ in them; compare losses only where the fingerprints agree.
        """
        texts = {}
        for module in MODULES:
            found = importlib.util.find_spec(module)
            if found is None or found.origin is None:
                raise InputError(f"{module} must be part of this Python; it is not.")
            text = Path(found.origin).read_text(encoding="utf-8")
            texts[module.removeprefix("_py")] = text[:MOST]
        made = object.__new__(Sources)
        arguments: dict[str, Any] = {"vocabulary": "characters", "size": None}
        arguments |= {"splits": list(splits), "codes": codes, "most_unknown": 1.0}
        made._build(texts, "modules", Sources.embedded, arguments)
        made.arguments = {"splits": list(splits), "codes": codes}
        return made

    def _build(
        self, texts: dict[str, str], name: str, maker: Any, arguments: dict[str, Any]
    ) -> None:
        kind, share = arguments["vocabulary"], arguments["most_unknown"]
        require(len(texts) >= 2, "Sources", "be at least 2 texts", len(texts), "Or use Text.")
        require(kind in ("characters", "bpe"), "Sources.vocabulary", "be characters or bpe", kind)
        require(0 <= share <= 1, "Sources.most_unknown", "be a share from 0 to 1", share)
        self.name, self.names = name, list(texts)
        self.codes, self._maker, self.arguments = bool(arguments["codes"]), maker, arguments
        shares = arguments["splits"]
        learnt = "".join(t[: cut(len(t), shares, "Sources.splits")[0][1]] for t in texts.values())
        counted = BPE.trained if kind == "bpe" else Characters.counted
        base = counted(learnt, arguments["size"])
        self.dropped: dict[str, int] = {}
        kept = {n: self._filtered(n, text, base, share) for n, text in texts.items()}
        self.vocabulary = Marked(base, self.names) if self.codes else base
        self._parts = {split: [] for split in SPLITS}
        for text in kept.values():
            for split, (a, b) in zip(SPLITS, cut(len(text), shares, "Sources"), strict=True):
                self._parts[split].append(torch.from_numpy(base.encode(text[a:b]).astype(int)))
        self.train, self.validation, self.test = (torch.cat(p) for p in self._parts.values())
        lost = base.unknown
        self.unknown = {
            s: 0 if lost is None else int((self.split(s) == lost).sum()) for s in SPLITS
        }
        self.unit = f"nats per {'character' if kind == 'characters' else 'token'}"
        said = [self.vocabulary.to_dict(), list(shares), [len(t) for t in kept.values()]]
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
        for text in kept.values():
            digest.update(text.encode("utf-8", "surrogatepass"))
        self.fingerprint = digest.hexdigest()

    def _filtered(self, name: str, text: str, base: Vocabulary, most: float) -> str:
        self.dropped[name] = 0
        if base.unknown is None or most >= 1:
            return text
        kept = []
        for line in text.splitlines(keepends=True):
            if float((base.encode(line) == base.unknown).mean()) <= most:
                kept.append(line)
        self.dropped[name] = len(text.splitlines()) - len(kept)
        fix = "Allow a larger share, or leave the source out."
        require(len(kept) > 0, f"the source {name}", "keep at least one line", most, fix)
        return "".join(kept)

    @property
    def spec(self) -> Spec:
        """The request that makes this target again in another process."""
        content = {"fingerprint": self.fingerprint} if "paths" in self.arguments else {}
        return Spec(self._maker, **self.arguments, **content)

    @property
    def D_unique(self) -> int:
        """Training symbols there are."""
        return len(self.train)

    def split(self, name: str) -> Int[Tensor, " tokens"]:
        """The symbols of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def describe(self) -> dict[str, Any]:
        """What a journal should remember of the target, in plain values."""
        shown = {k: v for k, v in self.arguments.items() if k != "texts"}
        return {
            "target": self.name,
            "name": self.name,
            **shown,
            "sources": {n: len(p) for n, p in zip(self.names, self._parts["train"], strict=True)},
            "dropped": dict(self.dropped),
            "unknown": dict(self.unknown),
            "vocabulary_size": self.vocabulary.size,
            "D_unique": self.D_unique,
            "unit": self.unit,
            "fingerprint": self.fingerprint,
        }

    def batch(
        self, step: int, *, size: int, context: int, seed: int
    ) -> Int[Tensor, "{size} {context}+1"]:
        """Windows of one step, each from one source; a pure function of its arguments.

        A source is drawn by its share of the training symbols, a window at random within it.
        """
        self._fits("train", context)
        rng = np.random.default_rng([seed, step, 5])
        parts = self._parts["train"]
        lengths = np.array([len(part) for part in parts])
        which = rng.choice(len(parts), size=size, p=lengths / lengths.sum())
        starts = (rng.random(size) * (lengths[which] - context)).astype(int)
        rows = [parts[s][a : a + context + 1] for s, a in zip(which, starts, strict=True)]
        return self._told(torch.stack(rows), torch.from_numpy(which))

    def labelled(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "b {context}"], Int[Tensor, " b"]]:
        """Windows of a split that do not overlap, without codes, and the source of each."""
        self._fits(split, context)
        parts = self._parts[split]
        rows = [part[: len(part) // context * context].view(-1, context) for part in parts]
        sources = [torch.full((len(r),), i) for i, r in enumerate(rows)]
        return torch.cat(rows), torch.cat(sources)

    def blocks(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """All of a split as `(inputs, targets, mask)`, source after source.

        Every symbol but the first of its source is the target of exactly one place of the mask.
        """
        self._fits(split, context)
        inputs, targets, masks = [], [], []
        for source, part in enumerate(self._parts[split]):
            predicted = len(part) - 1
            index = torch.arange(0, predicted, context)[:, None] + torch.arange(context)
            mask = index < predicted
            index = index.clamp(max=predicted - 1)
            inputs.append(self._told(part[index], torch.full((len(index),), source)))
            targets.append(part[index + 1])
            masks.append(mask)
        return torch.cat(inputs), torch.cat(targets), torch.cat(masks)

    def _told(self, rows: Tensor, sources: Tensor) -> Tensor:
        """Rows that begin with the code of their source, where there are codes."""
        if not isinstance(self.vocabulary, Marked):
            return rows
        rows = rows.clone()
        rows[:, 0] = self.vocabulary.base.size + sources
        return rows

    def _fits(self, split: str, context: int) -> None:
        require(split in SPLITS, "split", "be train, validation or test", split)
        shortest = min(len(part) for part in self._parts[split])
        what = f"be below the shortest source's {shortest} {split} symbols"
        require(1 <= context < shortest, "context", what, context)

    def __repr__(self) -> str:
        return f"Sources({', '.join(self.names)}: {self.D_unique:,} training symbols)"
