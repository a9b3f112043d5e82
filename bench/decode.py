"""Tokens per second of decoding: ours, Hugging Face, nanoGPT, llama.cpp and onnxruntime.

    python bench/decode.py [--nanogpt PATH/TO/model.py] [--repeats 7] [--same]

A decoder of 4 layers, width 128, 4 heads, 128 symbols, context 256, random weights, one thread;
240 new tokens after 16, by plain sampling and by a beam of 4. Runs are interleaved. Ratios are of
medians of seconds, and of minimum CPU seconds, which other work on the machine affects less.

`--same` compares the same weights at batch 1 instead: ours, llama.cpp (`llama-cpp-python`, through
our GGUF export, its own sampler) and onnxruntime (our ONNX export, which has no cache). Their
logits after the prompt must agree with ours. It also prints what one token costs ours: the model's
step, its share of matrix products alone, and the sampling around it. Peers that are not installed
are left out with a sentence.
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import needs
import numpy as np
import torch

from allometry import decode
from allometry.models import Transformer

LAYERS, WIDTH, HEADS, V, CONTEXT, PROMPT, NEW = 4, 128, 4, 128, 256, 16, 240


def ours():
    return Transformer(
        vocabulary=V, width=WIDTH, depth=LAYERS, heads=HEADS, context=CONTEXT
    ).eval()


def hugging_face():
    import transformers

    config = transformers.GPT2Config(
        vocab_size=V,
        n_positions=CONTEXT,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def nanogpt(path):
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=CONTEXT, vocab_size=V, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, dropout=0.0
    )
    return module.GPT(config).eval()


def timed(jobs, repeats):
    """Median seconds and minimum CPU seconds of each job; jobs are interleaved."""
    spent = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            out = job()
            elapsed = (time.perf_counter() - wall, time.process_time() - cpu)
            assert out.shape[-1] in (NEW, NEW + PROMPT), out.shape
            if repeat:  # the first is a warm-up
                spent[name].append(elapsed)
    return {
        name: (statistics.median(wall for wall, _ in times), min(cpu for _, cpu in times))
        for name, times in spent.items()
    }


def llama(model, folder, prompt):
    """Generation by llama.cpp, whose logits after the prompt are checked."""
    import llama_cpp

    from allometry.construct.stock.gguf_file import write_gguf

    write_gguf(model, folder)
    where = str(folder / "model.gguf")
    options = {"n_ctx": CONTEXT, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    options |= {"type_k": 0, "type_v": 0}  # keys and values in float32 too
    checked = llama_cpp.Llama(where, logits_all=True, **options)
    checked.eval(prompt)
    agree("llama.cpp", model, prompt, checked.scores[len(prompt) - 1])
    peer = llama_cpp.Llama(where, **options)

    def run():
        peer.reset()
        plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temp": 1.0, "repeat_penalty": 1.0}
        made = [t for t, _ in zip(peer.generate(prompt, **plain), range(NEW), strict=False)]
        return torch.tensor([made])

    return run


def onnx(model, folder, prompt):
    """Generation by onnxruntime without a cache: the whole text again for every token."""
    import onnxruntime

    from allometry.construct.export import export

    export(model, folder / "model.onnx", "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    agree(
        "onnxruntime", model, prompt, session.run(None, {"tokens": np.array([prompt])})[0][0, -1]
    )
    rng = np.random.default_rng(0)

    def run():
        tokens = list(prompt)
        for _ in range(NEW):
            scores = session.run(None, {"tokens": np.array([tokens])})[0][0, -1]
            weights = np.exp(scores - scores.max())
            tokens.append(int(rng.choice(V, p=weights / weights.sum())))
        return torch.tensor([tokens])

    return run


@torch.no_grad()
def agree(name, model, prompt, found):
    """Stop unless a peer's logits are ours (llama.cpp has the tanh form of GELU)."""
    gap = float(np.abs(model(torch.tensor([prompt]))[0, -1].numpy() - found).max())
    if gap > 1e-2:
        sys.exit(f"The logits of {name} differ from ours by {gap:.2g}: not the same model.")


@torch.no_grad()
def parts(model):
    """CPU ms of a token: the model's step, and its matrix products alone."""
    cache = model.new_cache()
    model(torch.randint(V, (1, PROMPT)), cache=cache)
    started = time.process_time()
    for _ in range(NEW):
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)
    step = (time.process_time() - started) / NEW
    x, wide = torch.randn(1, WIDTH), torch.randn(1, 4 * WIDTH)
    a, b = torch.randn(WIDTH, 4 * WIDTH), torch.randn(4 * WIDTH, WIDTH)
    weights = [
        (x, torch.randn(WIDTH, 3 * WIDTH)),
        (x, torch.randn(WIDTH, WIDTH)),
        (x, a),
        (wide, b),
    ]
    started = time.process_time()
    for _ in range(NEW):
        for _ in range(LAYERS):
            for left, right in weights:
                torch.mm(left, right)
    products = (time.process_time() - started) / NEW
    print(f"ours, a token: step {1e3 * step:.3f} ms, of which products {1e3 * products:.3f} ms")


def same(repeats):
    """The same weights in ours, llama.cpp and onnxruntime, batch 1."""
    model = ours().float()
    prompt = torch.randint(V, (PROMPT,)).tolist()
    rows = torch.tensor([prompt])
    jobs = {"allometry": lambda: decode.sample(model, rows, decode.plain, n=NEW)}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in {"llama.cpp": llama, "onnxruntime": onnx}.items():
            try:
                jobs[name] = make(model, Path(folder), prompt)
            except ImportError as error:
                print(f"Left out: {name} ({error.name} is not installed).")
        show("the same weights, batch 1", timed(jobs, repeats), 1)
    parts(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, help="model.py of a nanoGPT checkout")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--same", action="store_true", help="llama.cpp and onnxruntime, batch 1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    if arguments.same:
        same(arguments.repeats)
        return
    try:
        import transformers
    except ImportError:
        sys.exit("The peer of this bench is Hugging Face: pip install transformers.")
    transformers.logging.set_verbosity_error()
    mine, theirs = ours(), hugging_face()
    nano = nanogpt(arguments.nanogpt) if arguments.nanogpt else None

    def generate(prompt, **options):
        return theirs.generate(
            prompt,
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            pad_token_id=0,
            use_cache=True,
            **options,
        )

    for batch in (1, 32):
        prompt = torch.randint(V, (batch, PROMPT))
        jobs = {
            "allometry": lambda p=prompt: decode.sample(mine, p, decode.plain, n=NEW),
            "hugging face": lambda p=prompt: generate(p, do_sample=True, top_k=0),
        }
        if nano is not None and batch == 1:
            jobs["nanoGPT"] = lambda p=prompt: nano.generate(p, NEW)
        show(f"sampling, batch {batch}", timed(jobs, arguments.repeats), batch)
    prompt = torch.randint(V, (1, PROMPT))
    jobs = {
        "allometry": lambda: decode.beam(mine, prompt[0], n=NEW, width=4)[0].tokens[None],
        "hugging face": lambda: generate(prompt, num_beams=4, do_sample=False),
    }
    show("beam of 4, batch 1", timed(jobs, arguments.repeats), 1)


def show(title, seconds, batch):
    print(title)
    wall, cpu = seconds["allometry"]
    for name, (s, c) in seconds.items():
        print(
            f"  {name:13s} {s:7.3f} s  {batch * NEW / s:8.0f} tokens/s  {s / wall:5.2f} x ours;"
            f"  CPU {c:7.3f} s  {batch * NEW / c:8.0f} tokens/s  {c / cpu:5.2f} x ours"
        )


if __name__ == "__main__":
    needs.run(main)
