"""Steps of `packed.py` in JAX: `jax.jit(jax.vmap(step))`, with the same arithmetic as ours.

Parameters are dictionaries with the names of our state dicts; each value has the member as its
first axis outside `step`. The optimiser is AdamW without decay, after clipping the global norm.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

LOG_2PI = math.log(2 * math.pi)


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def dense(p, prefix, layers, x):
    """Linear layers with ReLU between."""
    for i, layer in enumerate(layers):
        x = linear(p, f"{prefix}{layer}", jax.nn.relu(x) if i else x)
    return x


def mlp(p, x, y):
    return jnp.mean((dense(p, "layers.", (0, 1, 2), x)[:, 0] - y) ** 2)


def flow(p, x, layers):
    scale = p["transforms.0.log_scale"]
    x, logdet = x * jnp.exp(scale) + p["transforms.0.shift"], jnp.sum(scale)
    for i in range(1, layers + 1):
        given, moved = (x[:, :1], x[:, 1:]) if i % 2 else (x[:, 1:], x[:, :1])
        names = f"transforms.{i}.network.layers."
        raw = dense(p, names, (0, 1, 2), jnp.clip(given, -5.0, 5.0))
        s = 3.0 - 4.5 * jax.nn.sigmoid(math.log(2) - raw[:, :1])
        moved = moved * jnp.exp(s) + raw[:, 1:]
        x = jnp.concatenate([given, moved] if i % 2 else [moved, given], 1)
        logdet = logdet + s[:, 0]
    return -jnp.mean(logdet - 0.5 * jnp.sum(x**2, 1) - 0.5 * x.shape[1] * LOG_2PI)


def vae(p, x, noise):
    mean, log_var = jnp.split(dense(p, "encoder.layers.", (0, 2, 4), x), 2, 1)
    log_var = jnp.clip(log_var, -20, 10)
    z = mean + jnp.exp(0.5 * log_var) * noise
    out, sigma = dense(p, "decoder.layers.", (0, 2, 4), z), p["likelihood.log_sigma"]
    fit = -0.5 * jnp.sum(((x - out) * jnp.exp(-sigma)) ** 2, 1)
    fit = fit - x.shape[1] * (sigma + 0.5 * LOG_2PI)
    return -jnp.mean(fit - 0.5 * jnp.sum(mean**2 + jnp.exp(log_var) - 1 - log_var, 1))


def norm(p, name, x):
    mean = jnp.mean(x, -1, keepdims=True)
    x = (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def rotated(x, turns):
    """Rotary positions: the two halves of a head are the coordinates of its planes."""
    cos, sin = turns
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def transformer(p, tokens, turns, depth, heads, readout_scale):
    x, target = p["table"][tokens[:, :-1]], tokens[:, 1:]
    b, n, width = x.shape
    mask = jnp.tril(jnp.ones((n, n), bool))
    for i in range(depth):
        at = f"blocks.{i}.attention."
        y = norm(p, f"blocks.{i}.attention_norm", x)
        weight = jnp.concatenate([p[at + k] for k in ("query", "key", "value")])
        bias = jnp.concatenate([p[at + k + "_bias"] for k in ("query", "key", "value")])
        qkv = (y @ weight.T + bias).reshape(b, n, 3, heads, -1)
        q, k, v = (jnp.moveaxis(qkv[:, :, j], 1, 2) for j in range(3))
        scores = rotated(q, turns) @ jnp.swapaxes(rotated(k, turns), -1, -2)
        scores = jnp.where(mask, scores * (width // heads) ** -0.5, -jnp.inf)
        y = jnp.moveaxis(jax.nn.softmax(scores, -1) @ v, 1, 2).reshape(b, n, width)
        x = x + y @ p[at + "output"].T + p[at + "output_bias"]
        at = f"blocks.{i}.feed_forward."
        y = norm(p, f"blocks.{i}.feed_forward_norm", x)
        y = jax.nn.gelu(y @ p[at + "inner"].T + p[at + "inner_bias"], approximate=False)
        x = x + y @ p[at + "outer"].T + p[at + "outer_bias"]
    logits = readout_scale * norm(p, "final_norm", x) @ p["readout"].T
    chosen = jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def adam(p, moments, gradient, t, lr, betas, clip):
    """One update of AdamW without decay, written out as in Optax."""
    if clip is not None:
        size = jnp.sqrt(sum(jnp.sum(g**2) for g in gradient.values()))
        scale = jnp.minimum(1.0, clip / (size + 1e-6))
        gradient = {k: g * scale for k, g in gradient.items()}
    b1, b2 = betas
    first = {k: b1 * m + (1 - b1) * gradient[k] for k, m in moments[0].items()}
    second = {k: b2 * v + (1 - b2) * gradient[k] ** 2 for k, v in moments[1].items()}
    step, root = lr / (1 - b1**t), jnp.sqrt(1 - b2**t)
    p = {k: p[k] - step * first[k] / (jnp.sqrt(second[k]) / root + 1e-8) for k in p}
    return p, (first, second)


def generated(p, z):
    return dense(p, "layers.", (0, 2, 4, 6), z)


def logits(p, x, pieces=3):
    for i in range(2):
        parts = jnp.split(linear(p, f"hidden.{i}", x), pieces, 1)
        x = parts[0]
        for part in parts[1:]:
            x = jnp.maximum(x, part)
    return linear(p, "readout", x)[:, 0]


def judge_cost(d, x, made):
    real, fake = jnp.split(logits(d, jnp.concatenate([x, made])), 2)
    return 0.5 * (jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake)))


def maker_cost(g, d, z):
    return jnp.mean(jax.nn.softplus(-logits(d, generated(g, z))))


def gan_step(state, t, lr, x, z, z2):
    """One update of the discriminator, then one of the generator."""
    g, moments_g, d, moments_d = state
    betas = (0.5, 0.999)
    cost, slope = jax.value_and_grad(judge_cost)(d, x, generated(g, z))
    d, moments_d = adam(d, moments_d, slope, t, lr, betas, None)
    _, slope = jax.value_and_grad(maker_cost)(g, d, z2)
    g, moments_g = adam(g, moments_g, slope, t, lr, betas, None)
    return (g, moments_g, d, moments_d), cost


def arrays(models):
    """The parameters of our models, stacked."""
    names = dict(models[0].named_parameters())
    found = [dict(model.named_parameters()) for model in models]
    return {k: jnp.asarray(np.stack([p[k].detach().numpy() for p in found])) for k in names}


def zeros(p):
    return tuple({k: jnp.zeros_like(v) for k, v in p.items()} for _ in range(2))


class Runner:
    """Steps of all members; `batch(step)` gives their stacked arrays."""

    def __init__(self, step, state, batch, rate):
        members = (0, None, None) + (0,) * len(batch(0))
        self.step = jax.jit(jax.vmap(step, in_axes=members), donate_argnums=0)
        self.state, self.batch, self.rate, self.taken = state, batch, rate, 0

    def __call__(self, steps):
        """Take steps; returns the losses of all members before each."""
        losses = []
        for _ in range(steps):
            t, lr = np.float32(self.taken + 1), np.float32(self.rate(self.taken))
            self.state, loss = self.step(self.state, t, lr, *self.batch(self.taken))
            losses.append(loss)
            self.taken += 1
        jax.block_until_ready(self.state)
        return np.stack([np.asarray(loss) for loss in losses])


def training(loss, models, batch, rate, clip=1.0, betas=(0.9, 0.95)):
    """The runner of a loss; `rate(step)` is the learning rate."""

    def step(state, t, lr, *batch):
        p, moments = state
        value, gradient = jax.value_and_grad(loss)(p, *batch)
        return adam(p, moments, gradient, t, lr, betas, clip), value

    p = arrays(models)
    return Runner(step, (p, zeros(p)), batch, rate)


def game(generators, discriminators, batch, rate):
    """The runner of GANs."""
    g, d = arrays(generators), arrays(discriminators)
    return Runner(gan_step, (g, zeros(g), d, zeros(d)), batch, rate)
