"""Tokens per second of decoding: ours, Hugging Face's generate, and nanoGPT, in one process.

    python bench/decode.py [--nanogpt PATH/TO/model.py] [--repeats 7]

A decoder of 4 layers, width 128, 4 heads, 128 symbols, context 256, random weights, one thread;
240 new tokens after 16, by plain sampling and by a beam of 4. Runs are interleaved. Ratios are of
medians of seconds, and of minimum CPU seconds, which other work on the machine affects less.
"""

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
import transformers

from allometry import decode
from allometry.models import Transformer

LAYERS, WIDTH, HEADS, V, CONTEXT, PROMPT, NEW = 4, 128, 4, 128, 256, 16, 240


def ours():
    return Transformer(
        vocabulary=V, width=WIDTH, depth=LAYERS, heads=HEADS, context=CONTEXT
    ).eval()


def hugging_face():
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, help="model.py of a nanoGPT checkout")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
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
    main()
