"""A small character model in one file, in the style of nanoGPT; prints a line per evaluation.

allometry run --command "python docs/examples/nanogpt_style.py --width {width} --layers {depth}
    --steps {steps} --seed {seed} --lr {lr}"
    --shapes "width=16,32,64; depth=2; steps=200; D=steps*8*32" --rates 0.01
    --metric "val loss ([0-9.]+|nan)" --n-metric "parameters: ([0-9]+)"
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

BATCH, CONTEXT = 8, 32
TEXT = ("the quick brown fox jumps over the lazy dog. " * 200).encode()


class Block(nn.Module):
    """Causal attention and a feed-forward layer, both with a residual path."""

    def __init__(self, width):
        super().__init__()
        self.heads = max(1, width // 16)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """(batch, length, width) to the same shape."""
        b, n, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Model(nn.Module):
    """A decoder over bytes."""

    def __init__(self, width, layers):
        super().__init__()
        self.token, self.place = nn.Embedding(128, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.last, self.readout = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)

    def forward(self, x):
        """Logits of the next byte."""
        x = self.token(x) + self.place.weight[: x.shape[1]]
        return self.readout(self.last(self.blocks(x)))


def main():
    """Train and print the loss."""
    parser = argparse.ArgumentParser()
    for name in ("width", "layers", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, default=0.01)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    data = torch.tensor(list(TEXT))
    train, valid = data[:-1000], data[-1000:]
    model = Model(asked.width, asked.layers)
    print("parameters:", sum(p.numel() for p in model.blocks.parameters()))
    optimiser = torch.optim.AdamW(model.parameters(), lr=asked.lr)

    def loss_of(rows):
        return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def windows(source, starts):
        return torch.stack([source[s : s + CONTEXT + 1] for s in starts])

    for step in range(1, asked.steps + 1):
        starts = torch.randint(len(train) - CONTEXT - 1, (BATCH,))
        loss = loss_of(windows(train, starts.tolist()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % max(1, asked.steps // 4) == 0 or step == asked.steps:
            with torch.no_grad():
                valid_loss = loss_of(windows(valid, range(0, 900, 40)))
            print(f"step {step} val loss {valid_loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
