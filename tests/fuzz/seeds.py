"""Valid files of every kind, as bytes: what mutations start from."""

import functools
import io
import json
import struct
import tempfile

import numpy as np
import safetensors.torch
import torch

SIZES = [1e6, 2e6, 4e6, 8e6, 1.6e7, 3.2e7]
LOSSES = [round(1.7 + 400 / n**0.34, 4) for n in SIZES]


def csv(separator: str = ",", mark: str = ".") -> bytes:
    rows = ["params,tokens,loss,status".replace(",", separator)]
    for n, loss in zip(SIZES, LOSSES, strict=True):
        cells = [f"{n:.0f}", f"{20 * n:.0f}", str(loss).replace(".", mark), "done"]
        rows.append(separator.join(cells))
    return "\n".join(rows).encode() + b"\n"


def jsonl() -> bytes:
    rows = [
        {"params": n, "d": {"tokens": 20 * n}, "loss": x}
        for n, x in zip(SIZES, LOSSES, strict=True)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@functools.cache
def parquet() -> bytes:
    import pandas as pd

    made = io.BytesIO()
    pd.DataFrame({"params": SIZES, "loss": LOSSES, "family": ["a"] * 6}).to_parquet(made)
    return made.getvalue()


def log() -> bytes:
    """One training's curve."""
    rows = [f"{100 * i},{2 + 3 * (100 * i) ** -0.4:.5f}" for i in range(1, 13)]
    return "\n".join(["step,loss", *rows]).encode() + b"\n"


def recipes() -> bytes:
    """Runs of two recipes at the same sizes."""
    rows = ["recipe,params,tokens,loss"]
    for k, name in enumerate(("adamw", "muon")):
        rows += [
            f"{name},{n:.0f},{20 * n:.0f},{x - 0.05 * k:.4f}"
            for n, x in zip(SIZES, LOSSES, strict=True)
        ]
    return "\n".join(rows).encode() + b"\n"


@functools.cache
def law() -> bytes:
    """A law saved by `allometry fit --save`."""
    from allometry import laws

    columns = {"N": SIZES, "D": [20 * n for n in SIZES], "loss": LOSSES}
    with tempfile.TemporaryDirectory() as folder:
        return laws.fit(columns, "power", bootstrap=10).save(f"{folder}/law.json").read_bytes()


def trainer_state() -> bytes:
    log = [
        {"step": i, "eval_loss": x, "num_input_tokens_seen": 1000 * i}
        for i, x in enumerate(LOSSES, 1)
    ]
    return json.dumps({"global_step": 6, "total_flos": 1e15, "log_history": log}).encode()


@functools.cache
def events() -> bytes:
    """A TensorBoard event file: records of length, checksum, data, checksum."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    out = b""
    for i, loss in enumerate(LOSSES):
        value = Summary.Value(tag="loss", simple_value=loss)
        data = Event(
            step=100 * i, wall_time=1.0, summary=Summary(value=[value])
        ).SerializeToString()
        head = struct.pack("<Q", len(data))
        out += head + struct.pack("<I", masked_crc32c(head))
        out += data + struct.pack("<I", masked_crc32c(data))
    return out


def record(i: int) -> dict[str, object]:
    n = SIZES[i % 6]
    return {
        "key": f"{i:016x}", "family": "transformer", "target": "text", "shape": "8 x 1",
        "rung": i % 6, "seed": 0, "N": n, "N_embedding": 0, "D": 20 * n, "D_unique": 1e9,
        "C": 120 * n * n, "C_6ND": 120 * n * n, "loss": LOSSES[i % 6], "loss_se": 0.01,
        "test_loss": LOSSES[i % 6], "test_loss_se": 0.01, "seconds": 1.5, "status": "done",
        "error": None, "versions": {"python": "3.11"}, "measures": [], "sample": "so it goes",
    }  # fmt: skip


def journal() -> bytes:
    return b"".join(json.dumps(record(i)).encode() + b"\n" for i in range(6))


def study() -> bytes:
    target = {"target": "text", "name": "text", "unit": "nats per character", "D_unique": 1e6}
    said = {"target": target | {"fingerprint": "ab" * 32}, "runs": [f"{i:016x}" for i in range(7)]}
    said |= {"ladder": SIZES, "tokens": [1e6], "seeds": 1, "versions": {"python": "3.11"}}
    return json.dumps(said).encode()


def schedule() -> bytes:
    keys = [f"{i:016x}" for i in range(6, 8)]
    how = {"size": 1, "threads": 1}
    return json.dumps(
        {keys[0]: {"keys": keys, "how": how, "work": dict.fromkeys(keys, 2.0)}}
    ).encode()


def npy(dtype: str = "<f8", shape: tuple[int, ...] = (6, 4, 4)) -> bytes:
    made = io.BytesIO()
    np.save(made, (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype))
    return made.getvalue()


def npz() -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, samples=np.arange(12.0).reshape(4, 3), other=np.ones(3, ">i4"))
    return made.getvalue()


def tensors() -> bytes:
    held = {"x": torch.arange(12, dtype=torch.float32).view(4, 3), "y": torch.ones(2).bfloat16()}
    return safetensors.torch.save(held, {"a": "b"})


@functools.cache
def weights() -> bytes:
    from allometry._core.spec import Spec
    from allometry.study.recipes.transformer_runs import decoder
    from allometry.targets.vocabulary import Characters

    vocabulary = Characters('abcdefx \n{}":,0123456789')
    sizes = {"vocabulary": vocabulary.size, "width": 8, "depth": 1, "heads": 2, "context": 8}
    spec = Spec(decoder, **sizes, rng=None)
    about = {"model": json.dumps(spec.to_dict()), "vocabulary": json.dumps(vocabulary.to_dict())}
    about |= {"family": "transformer", "target": "text", "unit": "nats per character"}
    torch.manual_seed(0)
    held = {k: v.detach().contiguous().clone() for k, v in spec().float().state_dict().items()}
    return safetensors.torch.save(held, about)


@functools.cache
def tokenizer() -> bytes:
    from allometry.targets.vocabulary import BPE

    return json.dumps(BPE.trained("so it goes and goes " * 20, 260).to_dict()).encode()


@functools.cache
def picture(kind: str) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    pixels = (np.arange(300).reshape(10, 10, 3) % 256).astype(np.uint8)
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()
