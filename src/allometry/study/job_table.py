"""The jobs that `allometry run` knows by name, and their families. Imports no torch."""

from dataclasses import dataclass
from typing import final

TEXT_FAMILIES = (
    *("transformer", "moe", "mamba", "gla", "retnet"),
    *("mlp", "rnn", "lstm", "gru", "convolution", "ngram"),
    *("masked_diffusion", "uniform_diffusion"),
)
"""Families of a text."""

FLOW = "flow"
"""Stands for the default flows of a density."""

LIKELIHOOD_FAMILIES = (
    *("affine_coupling", "spline_coupling", "masked_autoregressive", "nice"),
    *("inverse_autoregressive", "planar", "radial", "continuous", "glow", "variational_splines"),
    *("discrete", "vae", "beta_vae", "info_vae", "vqvae", "pixelcnn", "diffusion"),
    "flow_matching",
)
"""Families of a density with a likelihood (or a bound on it)."""

RECONSTRUCTION_FAMILIES = (
    *("quantiser", "autoencoder", "linear_autoencoder", "convolutional_autoencoder"),
    *("sparse_autoencoder", "denoising_autoencoder", "contractive_autoencoder"),
)
"""Families of a density whose loss is the squared error of reconstructions."""

GAN_FAMILIES = ("gan", "pacgan2", "pacgan3", "pacgan4", "unrolled_gan", "wgan")
"""Families of a density whose loss is a distance of samples."""

DENSITY_FAMILIES = (FLOW, *LIKELIHOOD_FAMILIES, *RECONSTRUCTION_FAMILIES, *GAN_FAMILIES)

PRETRAINING_TASKS = ("next symbol", "cloze", "next passage")
TRANSDUCERS = ("encoder-decoder", "decoder")
STACK_NAMES = ("T_2", "T_3", "T_4", "T_e", "T_e wide", "T_e power", "T_33222")
RANK_FORMS = ("network", "multi", "hadamard", "narrow")
BUILT_TASKS = ("parity", "majority", "copy", "sorting", "induction", "dyck", "addition")
MIXER_FORMS = ("linear", "quadratic", "cubic", "gelu", "attention", "multi")


@final
@dataclass(frozen=True)
class Job:
    """One job of `allometry run`.

    Args:
        name: As on the command line.
        target: What the models learn.
        families: That `--family` accepts; empty if the job has a fixed set.
        ladder: Smallest size, largest size and number of sizes by default; `None` if the sizes
            are fixed.
        tokens: Training tokens, examples or points by default; empty if they depend on the data.
        unit: Of the loss; empty if it depends on the data.
    """

    name: str
    target: str
    families: tuple[str, ...]
    ladder: tuple[float, float, int] | None
    tokens: tuple[float, ...]
    unit: str


_POINTS = ((1e3, 1e5, 6), (32_000, 64_000, 256_000), "nats")
_GAN = ((1e3, 3e4, 4), (1e5, 3e5), "sliced Wasserstein distance")
_SEQUENCES = ((1e3, 1e5, 5), (1e5, 2e5, 4e5))

JOBS: dict[str, Job] = {
    name: Job(name, *columns)
    for name, columns in {
        "embedded": (
            "the English prose in Python's library",
            TEXT_FAMILIES,
            (1e3, 3.4e5, 8),
            (),
            "nats per character",
        ),
        "moons": ("two interleaved half circles", DENSITY_FAMILIES, *_POINTS),
        "rings": ("concentric circles", DENSITY_FAMILIES, *_POINTS),
        "checkerboard": ("the dark squares of a checkerboard", DENSITY_FAMILIES, *_POINTS),
        "spirals": ("two spiral arms", DENSITY_FAMILIES, *_POINTS),
        "eight_gaussians": ("eight wide Gaussians on a circle", DENSITY_FAMILIES, *_POINTS),
        "mixture": ("Gaussians at random positions", DENSITY_FAMILIES, *_POINTS),
        "funnel": ("Neal's funnel", DENSITY_FAMILIES, *_POINTS),
        "banana": ("a Gaussian bent along a parabola", DENSITY_FAMILIES, *_POINTS),
        "digits": (
            "scikit-learn's 8 x 8 handwritten digits",
            DENSITY_FAMILIES,
            (4352, 1e5, 6),
            (12_800, 25_600, 51_200),
            "bits per dimension",
        ),
        "ring": ("Gaussians on a circle", DENSITY_FAMILIES, *_GAN),
        "grid": ("25 Gaussians on a square grid", DENSITY_FAMILIES, *_GAN),
        "domains": (
            "text, digits, tunes and a series",
            (),
            (1e3, 1e5, 5),
            (5e4, 1e5, 2e5),
            "of the entropy of a symbol",
        ),
        "tasks": ("six sources of text", PRETRAINING_TASKS, *_SEQUENCES, "nats per window"),
        "reversal": ("reverse a word", TRANSDUCERS, *_SEQUENCES, "nats per symbol"),
        "sorting": ("sort the letters of a word", TRANSDUCERS, *_SEQUENCES, "nats per symbol"),
        "transliteration": (
            "transliterate a word to Cyrillic",
            TRANSDUCERS,
            *_SEQUENCES,
            "nats per symbol",
        ),
        "universal": (
            "attention over three tokens as a function",
            (),
            (300, 2e4, 5),
            (3e4, 1.2e5),
            "distance per sequence",
        ),
        "dyck": ("brackets nested 2, 4 and 8 deep", (), None, (9e5,), "nats per symbol"),
        "degree": (
            "polynomials and functions of eight variables",
            STACK_NAMES,
            None,
            (192_000,),
            "relative squared error",
        ),
        "rank": ("polynomial networks and attention", RANK_FORMS, None, (192_000,), "rank"),
        "mixer": ("MLP-Mixers and attention", MIXER_FORMS, None, (192_000,), "rank"),
        "built-against-trained": (
            "tasks that programs solve exactly",
            BUILT_TASKS,
            None,
            (2_000_000,),
            "share of wrong words",
        ),
    }.items()
}
"""Jobs by name."""

THEORY_JOBS = ("degree", "rank", "mixer", "built-against-trained")
"""Jobs that answer a question of theory."""


def theory_families() -> dict[str, list[str]]:
    """Families of each of `THEORY_JOBS`."""
    return {name: list(JOBS[name].families) for name in THEORY_JOBS}
