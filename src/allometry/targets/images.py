"""Images with integer grey values or colours as a target: learn their distribution.

Letters: n images, c channels, h height, w width.
"""

import hashlib
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from allometry._core.arrays import read_npy
from allometry._core.errors import InputError, require, require_extra
from allometry._core.files import storage_errors
from allometry._core.spec import Spec, identified_by_content
from allometry._core.user_files import files_below, largest_size, shorten
from allometry.targets.row_batches import SPLITS, cut, epoch_rows, same_content

MOST_PIXELS = 64_000_000
"""Largest number of pixels of an image: small files may claim any number."""

MOST_LEVELS = 1 << 16
"""Largest number of values of a pixel: histograms and networks store a number for each."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
"""Formats that Pillow may read, independent of the file name; others run programs or are rare."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


@final
class Images:
    """Images with integer values 0 ... levels - 1, split at random into train, validation, test.

    Args:
        pixels: (n, h, w) or (n, c, h, w), integers.
        levels: Number of values of a pixel. Default: one more than the largest value.
        labels: A class for each image, if any.
        name: Short name.
        splits: Shares of train, validation and test.
        seed: Seed of the split.

    Attributes:
        train: Images (n, c, h, w); likewise `validation`, `test`.
        levels: Number of values of a pixel.
        unit: Unit of the loss.

    Example:
        >>> from allometry.targets import Images
        >>> digits = Images.digits()
        >>> digits.batch(0, size=4, seed=0).shape, digits.levels
        (torch.Size([4, 1, 8, 8]), 17)
    """

    def __init__(
        self,
        pixels: Shaped[ndarray, "n ..."],
        levels: int | None = None,
        labels: Shaped[ndarray, " n"] | None = None,
        name: str = "images",
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
    ) -> None:
        images = _integers(pixels)
        top = int(images.max()) + 1
        self.levels = max(2, top) if levels is None else levels
        require(self.levels >= top, "Images.levels", f"be at least {top}", levels)
        order = np.random.default_rng(seed).permutation(len(images))
        parts = cut(len(images), splits, "Images.splits")
        shuffled = torch.from_numpy(images[order].astype(np.int64))
        self.train, self.validation, self.test = (shuffled[a:b] for a, b in parts)
        classes = None if labels is None else torch.from_numpy(np.asarray(labels)[order].copy())
        self.labels = (
            None
            if classes is None
            else {s: classes[a:b] for s, (a, b) in zip(SPLITS, parts, strict=True)}
        )
        self.name, self.splits, self.seed = name, tuple(splits), seed
        self.shape = tuple(shuffled.shape[1:])
        self.unit = "bits per dimension"
        head = repr((self.levels, self.splits, seed, images.shape)).encode()
        digest = hashlib.sha256(head + np.ascontiguousarray(images).tobytes())
        self.fingerprint = digest.hexdigest()
        self._maker: Any = None
        self._arguments: dict[str, Any] = {}

    @staticmethod
    def digits(splits: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> "Images":
        """scikit-learn's 1,797 handwritten digits, 8 x 8, values 0 to 16, with their classes."""
        # Read the file directly: importing sklearn.datasets takes a second.
        package = find_spec("sklearn")
        assert package is not None
        assert package.origin is not None
        path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        rows = np.loadtxt(path, delimiter=",")
        images, labels = rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)
        target = Images(images.astype(np.int64), 17, labels, "digits", splits, seed)
        return target._from(Images.digits, {"splits": list(splits), "seed": seed})

    @staticmethod
    @identified_by_content("path", since=("fingerprint",))
    def array(
        path: str,
        levels: int | None = None,
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> "Images":
        """A `.npy` file of images (n, h, w) or (n, c, h, w), or (n, h, w, 3)."""
        file = Path(path).expanduser().absolute()
        target = Images(read_npy(file), levels, name=file.stem, splits=splits, seed=seed)
        arguments = {"path": str(file), "levels": levels, "splits": list(splits), "seed": seed}
        return target._from(Images.array, arguments, fingerprint)

    @staticmethod
    @identified_by_content("path", since=("fingerprint",))
    def folder(
        path: str,
        size: int = 32,
        grey: bool = False,
        levels: int = 256,
        splits: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        fingerprint: str | None = None,
    ) -> "Images":
        """Every image file below a folder, cropped to its central square and resized.

        Args:
            path: The folder.
            size: Side length in pixels.
            grey: Convert to grey values.
            levels: Number of values of a pixel, at most 256.
            splits: See `Images`.
            seed: See `Images`.
            fingerprint: Expected fingerprint: a study resumes only on the same images.
        """
        require_extra("PIL", "images")
        folder = Path(path).expanduser().absolute()
        require(folder.is_dir(), "Images.folder", "be a folder", path)
        require(2 <= levels <= 256, "Images.levels", "be from 2 to 256", levels)
        require(1 <= size <= 4096, "Images.size", "be from 1 to 4096", size)
        files = list(files_below(folder, lambda name: name.lower().endswith(SUFFIXES)))
        require(
            len(files) > 0, f"the folder {path}", f"hold images ({', '.join(SUFFIXES)})", "none"
        )
        # Two copies of 8-byte integers: before and after the split.
        most = largest_size() // (16 * size**2 * (1 if grey else 3))
        fix = "Use a smaller size, or fewer images."
        require(
            len(files) <= most,
            f"the folder {path}",
            f"hold {most} images at most",
            len(files),
            fix,
        )
        pixels = []
        for file in files:
            with storage_errors("read", file):
                pixels.append(_square(file, size, "L" if grey else "RGB"))
        stack = np.stack(pixels).astype(np.int64) * levels // 256
        stack = stack if grey else stack.transpose(0, 3, 1, 2)
        target = Images(stack, levels, name=folder.name, splits=splits, seed=seed)
        arguments: dict[str, Any] = {"path": str(folder), "size": size, "grey": grey}
        arguments |= {"levels": levels, "splits": list(splits), "seed": seed}
        return target._from(Images.folder, arguments, fingerprint)

    def _from(
        self, maker: Any, arguments: dict[str, Any], fingerprint: str | None = None
    ) -> "Images":
        same_content("Images", self.name, self.fingerprint, fingerprint)
        self._maker, self._arguments = maker, arguments
        return self

    @property
    def spec(self) -> Spec:
        """The spec that recreates this target in another process."""
        fix = "Save the array as .npy and use Images.array."
        require(
            self._maker is not None, "Images", "come from a file to be studied", self.name, fix
        )
        content = {"fingerprint": self.fingerprint} if "path" in self._arguments else {}
        return Spec(self._maker, **self._arguments, **content)

    @property
    def dim(self) -> int:
        """Number of values in an image."""
        return math.prod(self.shape)

    @property
    def D_unique(self) -> int:
        """Number of training images."""
        return len(self.train)

    def split(self, name: str) -> Int[Tensor, "n c h w"]:
        """The images of `"train"`, `"validation"` or `"test"`."""
        require(name in SPLITS, "split", "be train, validation or test", name)
        return getattr(self, name)

    def batch(self, step: int, *, size: int, seed: int) -> Int[Tensor, "{size} c h w"]:
        """The images of a training step: a pure function of its arguments."""
        return self.train[epoch_rows(len(self.train), step, size, seed)]

    def histogram_bits(self, split: str = "test") -> float:
        """Bits per dimension of per-pixel histograms with Laplace smoothing: a baseline."""
        return self.histogram_bits_each(split).mean().item()

    def histogram_bits_each(self, split: str) -> Float[Tensor, " n"]:
        """`histogram_bits` of each image of a split."""
        counts = torch.nn.functional.one_hot(self.train, self.levels).sum(0) + 1.0
        log_p = (counts / counts.sum(-1, keepdim=True)).log2()
        x = self.split(split).unsqueeze(-1)
        return -log_p.expand(len(x), *log_p.shape).gather(-1, x).flatten(1).mean(1)

    def describe(self) -> dict[str, Any]:
        """A description of the target for the journal, in plain values."""
        return {
            "target": self.name,
            "name": self.name,
            "kind": "images",
            **self._arguments,
            "shape": list(self.shape),
            "levels": self.levels,
            "images": {s: len(self.split(s)) for s in SPLITS},
            "D_unique": self.D_unique,
            "unit": self.unit,
            "token": "image",
            "histogram_bits": self.histogram_bits("validation"),
            "fingerprint": self.fingerprint,
        }

    def __repr__(self) -> str:
        c, h, w = self.shape
        return f"Images({self.name}: {self.D_unique:,} training images, {c} x {h} x {w})"


def _square(path: Path, size: int, mode: str) -> Shaped[ndarray, "..."]:
    """The central square of an image file; only `FORMATS` are read."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata, and sizes below our own limit
            with Image.open(path, formats=FORMATS) as image:
                w, h = image.size
                if w * h > MOST_PIXELS:
                    raise InputError(
                        f"{path} must have at most {MOST_PIXELS:,} pixels; got {w} x {h}."
                    )
                return np.asarray(ImageOps.fit(image.convert(mode), (size, size)))
    except (InputError, OSError):
        raise
    except Image.DecompressionBombError:  # Pillow's own limit is above ours
        raise InputError(
            f"{path} must have at most {MOST_PIXELS:,} pixels; got far more."
        ) from None
    except Exception as error:  # Pillow raises many kinds of errors on damaged files
        raise InputError(f"{path} must be an image; it is damaged ({shorten(error)}).") from error


def _integers(pixels: Shaped[ndarray, "n ..."]) -> Shaped[ndarray, "n c h w"]:
    """Pixels as (n, c, h, w); refuses anything but nonnegative integers."""
    require(pixels.ndim in (3, 4), "Images.pixels", "be (n, h, w) or (n, c, h, w)", pixels.shape)
    require(len(pixels) >= 3, "Images.pixels", "hold at least 3 images", len(pixels))
    require(pixels.size > 0, "Images.pixels", "have pixels", pixels.shape)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    require(pixels.dtype.kind in "biuf", "Images.pixels", "be numbers", str(pixels.dtype))
    fix = "Multiply shares of 1 by 255 and round."
    finite = np.isfinite(pixels)
    valid = bool(finite.all() and (pixels == np.floor(pixels)).all() and pixels.min() >= 0)
    invalid = ~finite | (pixels != np.floor(pixels)) | (pixels < 0)
    first = None if valid else pixels[invalid][0].item()
    require(valid, "Images.pixels", "be whole numbers from 0", first, fix)
    top = pixels.max().item()
    require(top < MOST_LEVELS, "Images.pixels", f"be below {MOST_LEVELS:,}", top)
    return pixels.astype(np.int64)
