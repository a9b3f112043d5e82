"""Feature maps, each with a name that is printed beside every value computed with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from allometry._core.errors import InputError, require, require_extra
from allometry.measure import uncertainty
from allometry.measure.classifier import Classifier, fit_classifier
from allometry.measure.pair_blocks import spans
from allometry.measure.sample_inputs import Array, class_labels, generator, matrix, tensor


@final
@dataclass(frozen=True)
class Features:
    """A map from data to feature rows, with a name; applied a batch at a time.

    Args:
        name: Printed beside every value; values with different names are not comparable.
        apply: Function from a batch of inputs to a batch of outputs of any shape.
        batch: Batch size.
    """

    name: str
    apply: Callable[[Tensor], Tensor]
    batch: int = 1024

    def __call__(self, data: Array) -> Float[Tensor, "n d"]:
        """The features of `data`, flattened to rows."""
        x = tensor(data, "data", rows=1)
        rows = []
        with torch.no_grad():
            for i in spans(len(x), self.batch):
                out = torch.as_tensor(self.apply(x[i]))
                good = out.ndim >= 1 and len(out) == len(x[i])
                require(good, f"features {self.name}", "give one output per row", tuple(out.shape))
                rows.append(out.reshape(len(out), -1))
        return torch.cat(rows)


def identity() -> Features:
    """The data themselves, flattened."""
    return Features("identity", lambda x: x)


def pca(real: Array, k: int = 64) -> Features:
    """Projection on the k leading principal components of the real data.

    References: `jolliffe2002`.
    """
    x = matrix(real, "real").double()
    most = min(x.shape[1], len(x) - 1)
    require(1 <= k <= most, "pca.k", f"lie between 1 and {most}", k)
    mean = x.mean(0)
    a = x - mean
    directions = torch.linalg.eigh(a.T @ a).eigenvectors[:, -k:].flip(1)
    return Features(f"pca({k})", lambda z: (z.reshape(len(z), -1).double() - mean) @ directions)


def random_network(real: Array, width: int = 64, seed: int = 0) -> Features:
    """An untrained convolutional network (dense for rows of numbers).

    References: `naeem2020` for random embeddings.
    """
    x = tensor(real, "real")
    x = x[:, None] if x.ndim == 3 else x
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Classifier(tuple(x.shape[1:]), 2, width).float()
    spread = x.double().std()
    model.standardise(x.double().mean(), spread if float(spread) > 0 else torch.ones(()))
    return Features(f"random network({width}, seed {seed})", model.embed)


def classifier(
    real: Array, labels: Array, *, steps: int = 300, rng: torch.Generator | None = None
) -> tuple[Features, Classifier]:
    """The last hidden layer of a classifier trained on four fifths of the labelled data.

    Its name states the accuracy on the other fifth. The classifier is also returned: the
    inception score and similar metrics use its probabilities.
    """
    x = tensor(real, "real")
    y = class_labels(labels, len(x))
    rng = generator(rng)
    order = torch.randperm(len(x), generator=rng)
    cut = max(1, len(x) // 5)
    model = fit_classifier(
        x[order[cut:]], y[order[cut:]], classes=int(y.max()) + 1, steps=steps, rng=rng
    )
    accuracy = uncertainty.mean(model.correct(x[order[:cut]], y[order[:cut]])).value
    name = f"classifier({model.classes} classes, accuracy {accuracy:.3f})"
    return Features(name, model.embed), model


def module(network: nn.Module, name: str) -> Features:
    """A torch module in evaluation mode, with flattened outputs."""
    network.eval()
    kind = next((p.dtype for p in network.parameters()), None)
    return Features(name, lambda x: network(x if kind is None else x.to(kind)))


def onnx(path: Path | str, name: str | None = None) -> Features:
    """The first output of an ONNX model (Inception, for example), flattened."""
    runtime = require_extra("onnxruntime", "onnx")
    path = Path(path)
    require(path.exists(), "path", "be a file that exists", str(path))
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common narrower base
        raise InputError(f"{path} must be an ONNX model; onnxruntime says: {error}.") from error
    entry = session.get_inputs()[0]
    kind = torch.float64 if "double" in entry.type else torch.float32

    def apply(x: Tensor) -> Tensor:
        return torch.as_tensor(session.run(None, {entry.name: x.to(kind).numpy()})[0])

    return Features(name or f"onnx({path.name})", apply)


def resolve(features: "Features | nn.Module | Callable[[Tensor], Tensor] | None") -> Features:
    """`Features` from a module, a function or None."""
    if features is None:
        return identity()
    if isinstance(features, Features):
        return features
    name = getattr(features, "__name__", type(features).__name__)
    return module(features, name) if isinstance(features, nn.Module) else Features(name, features)
