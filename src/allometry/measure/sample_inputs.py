"""Inputs of metrics: validated arrays, and files read without unpickling."""

import math
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Num
from numpy import ndarray
from torch import Tensor

from allometry._core.arrays import names_npz, read_npy, read_npz
from allometry._core.delimited import separator_of, table_text
from allometry._core.errors import InputError, require
from allometry._core.files import storage_errors
from allometry._core.number_parsing import decimal_mark, number
from allometry._core.user_files import exists, require_regular, shorten

Array = Num[Tensor, "..."] | Num[ndarray, "..."]
"""Rows are observations: (n, d) features, (n, h, w) or (n, c, h, w) images, or (n,) numbers."""

Map = Callable[[Tensor], Tensor]


def as_tensor(data: Array) -> Num[Tensor, "..."]:
    """`data` as a tensor, sharing memory if possible."""
    if isinstance(data, ndarray):
        # torch needs writable, contiguous memory; otherwise a copy is made.
        return torch.as_tensor(np.require(data, requirements=["C", "W"]))
    return data


def tensor(data: Array, name: str, *, rows: int = 2) -> Float[Tensor, "..."]:
    """`data` as a float tensor, validated: enough rows, no NaN, no infinity.

    float32 stays float32 for speed; other types become float64.
    """
    x = as_tensor(data).detach().cpu()
    require(
        x.ndim >= 1 and len(x) >= rows and x.numel() > 0,
        name,
        f"hold at least {rows} rows",
        tuple(x.shape),
    )
    x = x if x.dtype == torch.float32 else x.to(torch.float64)
    bad = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).sum())
    fix = "Drop those rows, or find their cause."
    require(bad == 0, name, "be finite", f"NaN or infinity in {bad} of {len(x)} rows", fix)
    return x


def matrix(data: Array, name: str, *, rows: int = 2) -> Float[Tensor, "n d"]:
    """`data` as validated rows of numbers; images are flattened."""
    x = tensor(data, name, rows=rows)
    return x.reshape(len(x), -1)


def pair(
    real: Array, samples: Array, *, rows: int = 2, features: Map | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "m d"]]:
    """Both sets as matrices of equal width and dtype, mapped by `features` if given."""
    if features is None:
        x, y = matrix(real, "real", rows=rows), matrix(samples, "samples", rows=rows)
    else:
        x = matrix(features(tensor(real, "real", rows=rows)), "features of real", rows=rows)
        y = tensor(samples, "samples", rows=rows)
        y = matrix(features(y), "features of samples", rows=rows)
    fix = "Both must come from the same kind of data through the same features."
    require(
        x.shape[1] == y.shape[1],
        "samples",
        f"have {x.shape[1]} features like real",
        y.shape[1],
        fix,
    )
    if x.dtype != y.dtype:
        x, y = x.double(), y.double()
    return x, y


def require_spread(x: Float[Tensor, "n d"], name: str) -> None:
    """Refuse a set whose rows are all equal: it has no scale."""
    same = bool((x == x[:1]).all())
    require(
        not same,
        name,
        "vary",
        f"{len(x)} equal rows",
        "A constant has no distribution to compare.",
    )


def require_rank(x: Float[Tensor, "n d"], name: str, fix: str) -> None:
    """Refuse fewer rows than a covariance of full rank needs."""
    n, d = x.shape
    require(n > d, name, f"have more rows than its {d} features", f"{n} rows", fix)


def images(data: Array, name: str) -> Float[Tensor, "n c h w"]:
    """`data` as a batch of images; (n, h, w) has one channel."""
    x = tensor(data, name, rows=1)
    x = x[:, None] if x.ndim == 3 else x
    fix = "Give images as (n, h, w) or (n, c, h, w)."
    require(x.ndim == 4 and min(x.shape[2:]) >= 2, name, "be images", tuple(x.shape), fix)
    return x


def image_pair(
    real: Array, samples: Array
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "m c h w"]]:
    """Two batches of images of one size and one dtype."""
    x, y = images(real, "real"), images(samples, "samples")
    shape = tuple(x.shape[1:])
    require(
        shape == tuple(y.shape[1:]), "samples", f"be images of shape {shape}", tuple(y.shape[1:])
    )
    return (x, y) if x.dtype == y.dtype else (x.double(), y.double())


def class_labels(labels: Array, n: int, name: str = "labels") -> Num[Tensor, " n"]:
    """A class index from 0 for each row; other integers are ranked into that range."""
    y = as_tensor(labels).reshape(-1)
    require(len(y) == n, name, f"have one entry for each of the {n} rows", len(y))
    whole = bool((y == y.round()).all()) if y.is_floating_point() else True
    require(whole, name, "be whole numbers", y.dtype, "Number the classes 0, 1, 2, ...")
    classes, ranked = torch.unique(y, return_inverse=True)
    require(len(classes) >= 2, name, "name at least 2 classes", len(classes))
    return ranked


def generator(rng: torch.Generator | None) -> torch.Generator:
    """`rng`, or a new generator with seed 0, so that results are reproducible by default."""
    return torch.Generator().manual_seed(0) if rng is None else rng


def whole_seed(rng: torch.Generator) -> int:
    """An integer seed drawn from `rng`, for libraries that need one."""
    return int(torch.randint(2**31 - 1, (1,), generator=rng))


def subset(x: Tensor, most: int, rng: torch.Generator) -> Tensor:
    """At most `most` rows, drawn without replacement, in random order."""
    return x[torch.randperm(len(x), generator=rng)[:most]]


def halves(x: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random half and the rest."""
    order = torch.randperm(len(x), generator=rng)
    return x[order[: len(x) // 2]], x[order[len(x) // 2 :]]


def load(path: Path | str, key: str | None = None) -> ndarray:
    """The array in a `.npy`, `.npz`, `.csv` or `.safetensors` file.

    Nothing is unpickled: object arrays and `.pt` files are refused. An archive's array is `key`,
    its only array, or the first of `real`, `samples`, `x`, `images`, `data` that it has.

    Args:
        path: The file; `.npy` is memory-mapped.
        key: The array of an archive.
    """
    path = Path(path)
    require(exists(path), "path", "be a file that exists", str(path))
    kind = path.suffix.lower()
    if kind == ".npy":
        return read_npy(path)
    if kind == ".npz":
        name = _chosen(path, names_npz(path), key)
        return read_npz(path, [name])[name]
    if kind == ".csv":
        return _csv(path)
    if kind in (".safetensors", ".pt"):
        return _safetensors(path, key)
    raise InputError(f"{path} must end in .npy, .npz, .csv or .safetensors; got {path.suffix!r}.")


def _chosen(path: Path, names: list[str], key: str | None) -> str:
    usual = [name for name in ("real", "samples", "x", "images", "data") if name in names]
    name = key or (names[0] if len(names) == 1 else (usual or [""])[0])
    require(name in names, f"array of {path.name}", f"be one of {names}", name)
    return name


def _csv(path: Path) -> ndarray:
    """Rows of numbers; a first line with other text is a header of equal width."""
    separator, text, _ = separator_of(table_text(path))
    lines = [line for line in text.splitlines() if line.strip()]
    cells = [line.split(separator) for line in lines[:200]]
    require(len(cells) > 0, f"{path}", "hold rows of numbers", "an empty file")
    if separator != "," and any("," in line for line in lines):
        mark, _ = decimal_mark({str(i): column for i, column in enumerate(zip_longest(*cells))})
        require(mark == ",", f"{path}", "have no thousands separators", lines[0][:40])
        lines = [line.replace(",", ".") for line in lines]
    header = any(cell.strip() and math.isnan(number(cell, ",")) for cell in cells[0])
    if header and len(cells) > 1:
        fix = "Decimal commas need a file separated by semicolons."
        same = len(cells[0]) == len(cells[1])
        require(same, f"{path}", "have as many cells as names", len(cells[1]), fix)
    rows = lines[1:] if header else lines
    require(len(rows) > 0, f"{path}", "hold rows of numbers", "a header and no rows")
    try:
        values = np.loadtxt(rows, delimiter=separator, ndmin=2, comments=None)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path} must hold plain numbers; got {shorten(error, 160)}.") from error
    return values[:, 0] if values.shape[1] == 1 else values


def _safetensors(path: Path, key: str | None) -> ndarray:
    """A tensor as float32 or float64; shorter floats (bfloat16, float8) become float32."""
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    with storage_errors("read", path):
        try:
            with safe_open(path, framework="pt") as file:
                tensor = file.get_tensor(_chosen(path, sorted(file.keys()), key))
        except InputError:
            raise
        # torch raises some of these for impossible shapes.
        except (SafetensorError, RuntimeError, ValueError, OverflowError) as error:
            fix = "Save tensors with safetensors.torch.save_file; pickled files are never read."
            raise InputError(f"{path} must be a safetensors file. {fix}") from error
    require(not tensor.is_complex(), f"{path}", "hold plain numbers", "complex numbers")
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    elif tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        tensor = tensor.to(torch.float64)
    return tensor.numpy()
