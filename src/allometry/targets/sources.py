"""Text from several sources, each with a control code; lines of unknown symbols are dropped.

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
"""Modules of Python's library whose source code is the embedded text."""

MOST = 80_000
"""Number of characters used of each module."""


@final
class Sources:
    r"""Next-symbol prediction on several texts, conditioned on the source.

    Each source is split into train, validation and test separately, and no window spans two
    sources. With `codes`, a window starts with the control code of its source instead of its first
    symbol, so that one model learns $p(x \mid \text{source})$ for every source.

    The vocabulary has the symbols of the training parts, or the `size` - 1 most frequent of them.
    Almost every symbol of a source in another script may be unknown. A line whose share of unknown
    symbols exceeds `most_unknown` is left out of every split and counted in `dropped`.

    Args:
        *paths: Text files; the stem of a file is the name of its source.
        vocabulary: `"characters"` or `"bpe"`.
        size: Largest number of symbols, without codes.
        splits: Shares of train, validation and test of every source.
        codes: Start each window with the code of its source.
        most_unknown: Largest share of unknown symbols of a line; 1 keeps all lines.
        fingerprint: Expected fingerprint: a study resumes only on the same texts.

    Attributes:
        names: Names of the sources.
        train: Concatenated symbols of all sources; likewise `validation`, `test`.
        dropped: Number of lines left out of each source.
        unknown: Number of unknown symbols of each split.

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
        files = [Path(path).expanduser().absolute() for path in paths]
        texts = {file.stem: str(read(file, "characters")) for file in files}
        require(len(texts) == len(files), "Sources.paths", "have different names", list(texts))
        arguments = {"paths": [str(file) for file in files], "vocabulary": vocabulary}
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
        """`Sources(*paths, ...)` with keyword arguments only, for a `Spec`."""
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
        """Sources from texts in memory, by name."""
        target = object.__new__(Sources)
        arguments = {"texts": texts, "name": name, "vocabulary": vocabulary, "size": size}
        arguments |= {"splits": list(splits), "codes": codes, "most_unknown": most_unknown}
        target._build(texts, name, Sources.from_strings, arguments)
        return target

    @staticmethod
    def embedded(
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        codes: bool = False,
    ) -> "Sources":
        """The source code of six modules of Python's library, 80,000 characters of each.

        It differs between Python versions; compare losses only for equal fingerprints.
        """
        texts = {}
        for module in MODULES:
            spec = importlib.util.find_spec(module)
            if spec is None or spec.origin is None:
                raise InputError(f"{module} must be part of this Python; it is not.")
            text = Path(spec.origin).read_text(encoding="utf-8")
            texts[module.removeprefix("_py")] = text[:MOST]
        target = object.__new__(Sources)
        arguments: dict[str, Any] = {"vocabulary": "characters", "size": None}
        arguments |= {"splits": list(splits), "codes": codes, "most_unknown": 1.0}
        target._build(texts, "modules", Sources.embedded, arguments)
        target.arguments = {"splits": list(splits), "codes": codes}
        return target

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
        training = "".join(
            t[: cut(len(t), shares, "Sources.splits")[0][1]] for t in texts.values()
        )
        learn = BPE.trained if kind == "bpe" else Characters.counted
        base = learn(training, arguments["size"])
        self.dropped: dict[str, int] = {}
        kept = {n: self._filtered(n, text, base, share) for n, text in texts.items()}
        self.vocabulary = Marked(base, self.names) if self.codes else base
        self._parts = {split: [] for split in SPLITS}
        for text in kept.values():
            for split, (a, b) in zip(SPLITS, cut(len(text), shares, "Sources"), strict=True):
                self._parts[split].append(torch.from_numpy(base.encode(text[a:b]).astype(int)))
        self.train, self.validation, self.test = (torch.cat(p) for p in self._parts.values())
        unknown = base.unknown
        self.unknown = {
            s: 0 if unknown is None else int((self.split(s) == unknown).sum()) for s in SPLITS
        }
        self.unit = f"nats per {'character' if kind == 'characters' else 'token'}"
        head = [self.vocabulary.to_dict(), list(shares), [len(t) for t in kept.values()]]
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
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
        """The spec that recreates this target in another process."""
        content = {"fingerprint": self.fingerprint} if "paths" in self.arguments else {}
        return Spec(self._maker, **self.arguments, **content)

    @property
    def D_unique(self) -> int:
        """Number of training symbols."""
        return len(self.train)

    def split(self, name: str) -> Int[Tensor, " tokens"]:
        """The symbols of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
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
        """Windows of a training step, each from one source; a pure function of its arguments.

        A source is sampled in proportion to its training symbols, a window uniformly within it.
        """
        self._fits("train", context)
        rng = np.random.default_rng([seed, step, 5])
        parts = self._parts["train"]
        lengths = np.array([len(part) for part in parts])
        which = rng.choice(len(parts), size=size, p=lengths / lengths.sum())
        starts = (rng.random(size) * (lengths[which] - context)).astype(int)
        rows = [parts[s][a : a + context + 1] for s, a in zip(which, starts, strict=True)]
        return self._with_codes(torch.stack(rows), torch.from_numpy(which))

    def labelled(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "b {context}"], Int[Tensor, " b"]]:
        """Non-overlapping windows of a split, without codes, and the source of each."""
        self._fits(split, context)
        parts = self._parts[split]
        rows = [part[: len(part) // context * context].view(-1, context) for part in parts]
        sources = [torch.full((len(r),), i) for i, r in enumerate(rows)]
        return torch.cat(rows), torch.cat(sources)

    def blocks(
        self, split: str, context: int
    ) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """A whole split as `(inputs, targets, mask)`, source by source.

        Every symbol but the first of its source is a target at exactly one position of the mask.
        """
        self._fits(split, context)
        inputs, targets, masks = [], [], []
        for source, part in enumerate(self._parts[split]):
            predicted = len(part) - 1
            index = torch.arange(0, predicted, context)[:, None] + torch.arange(context)
            mask = index < predicted
            index = index.clamp(max=predicted - 1)
            inputs.append(self._with_codes(part[index], torch.full((len(index),), source)))
            targets.append(part[index + 1])
            masks.append(mask)
        return torch.cat(inputs), torch.cat(targets), torch.cat(masks)

    def _with_codes(self, rows: Tensor, sources: Tensor) -> Tensor:
        """Rows that start with the code of their source, if codes are used."""
        if not isinstance(self.vocabulary, Marked):
            return rows
        rows = rows.clone()
        rows[:, 0] = self.vocabulary.base.size + sources
        return rows

    def _fits(self, split: str, context: int) -> None:
        require(split in SPLITS, "split", "be train, validation or test", split)
        shortest = min(len(part) for part in self._parts[split])
        limit = f"be below the shortest source's {shortest} {split} symbols"
        require(1 <= context < shortest, "context", limit, context)

    def __repr__(self) -> str:
        return f"Sources({', '.join(self.names)}: {self.D_unique:,} training symbols)"
