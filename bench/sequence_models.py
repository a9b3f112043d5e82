"""Mamba, linear attention, experts, text diffusion: speed of training, rates over four sizes.

    python bench/sequence_models.py speed            # needs transformers
    python bench/sequence_models.py rates [mamba gla retnet moe muon masked_diffusion ...]
        [--sizes 1e3 2.5e3 6e3 16e3]

speed  CPU seconds of a training step at length 256, interleaved with `transformers`' slow path of
       Mamba (no CUDA kernels) with the same weights; the smallest of five repetitions counts.
rates  Validation loss of one seed at four learning rates and four sizes, 20 tokens a parameter, on
       the embedded text: whether one rate fits all sizes.
"""

import argparse
import functools
import time

import needs
import torch
from torch.nn import functional as F

from allometry.models import LinearAttention, Mamba, Transformer
from allometry.study import recipes
from allometry.targets import Text

SLOW = "transformers' mamba"
SIZES = (1e3, 2.5e3, 6e3, 16e3)
RATES = (0.004, 0.008, 0.016, 0.032)
FAMILIES = {
    "mamba": recipes.mamba,
    "gla": recipes.gla,
    "retnet": recipes.retnet,
    "moe": recipes.moe,
    "muon": functools.partial(recipes.transformer, optimizer="muon"),
    "masked_diffusion": recipes.masked_diffusion,
    "uniform_diffusion": recipes.uniform_diffusion,
}


def seconds(model, tokens, logits=lambda out: out):
    """CPU seconds of one forward and backward pass."""
    started = time.process_time()
    loss = F.cross_entropy(logits(model(tokens)).flatten(0, 1), tokens.flatten())
    loss.backward()
    return time.process_time() - started


def same_weights(theirs, ours):
    """Copy the weights of transformers' Mamba."""
    names = {"backbone.embeddings.weight": "table", "lm_head.weight": "readout"}
    state = {}
    for name, weight in theirs.state_dict().items():
        new = names.get(name, name).replace("backbone.layers", "blocks")
        state[new.replace("backbone.norm_f", "final_norm")] = weight
    ours.load_state_dict(state)


def speed():
    """Tokens per CPU second at length 256, batch 8, width 64."""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=65, hidden_size=64, num_hidden_layers=4, layer_norm_epsilon=1e-6,
        tie_word_embeddings=False, residual_in_fp32=False, use_cache=False,
    )  # fmt: skip
    theirs, ours = MambaForCausalLM(config), Mamba(65, 64, 4)
    same_weights(theirs, ours)
    tokens = torch.randint(65, (8, 256))
    difference = (ours(tokens) - theirs(tokens).logits).abs().max()
    print(f"largest difference of logits {difference:.2g}")
    models = {
        "mamba": (ours, lambda out: out),
        SLOW: (theirs, lambda out: out.logits),
        "gla": (LinearAttention(65, 64, 2, 2, "gla"), lambda out: out),
        "retnet": (LinearAttention(65, 64, 2, 2, "retnet"), lambda out: out),
        "transformer": (Transformer(65, 64, 2, 4, 256, positions="rotary"), lambda out: out),
        "moe": (
            Transformer(65, 64, 2, 4, 256, positions="rotary", experts=8, active_experts=2,
                        hidden=128),
            lambda out: out,
        ),
    }  # fmt: skip
    best = dict.fromkeys(models, float("inf"))
    for _ in range(5):
        for name, (model, logits) in models.items():
            best[name] = min(best[name], seconds(model, tokens, logits))
    for name, took in best.items():
        print(f"{name:20} {tokens.numel() / took:9.0f} tokens/s")
    print(f"ratio of the two mambas: {best[SLOW] / best['mamba']:.0f}")


def rates(names, sizes):
    """Losses by family, size and rate."""
    text = Text.embedded()
    for name in names:
        for size in sizes:
            losses = {}
            for lr in RATES:
                (spec,) = FAMILIES[name](text, [size], tokens=[20 * size], seeds=1, lr=lr)
                losses[lr] = spec().training().alone().loss.value
            best = min(losses, key=losses.get)
            row = " ".join(f"{loss:.3f}" for loss in losses.values())
            print(f"{name:8} {spec().budget().N:6.0f}: {row}  best {best}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("speed", "rates"))
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    speed() if given.part == "speed" else rates(given.families, given.sizes)


if __name__ == "__main__":
    needs.run(main)
