"""Draw the pictures of docs/construct.md: `python docs/make_construct.py`."""

from pathlib import Path

import torch

import allometry as al
from allometry.construct.programs import arithmetic, library
from allometry.report import construction_figures, theme

FIGURES = Path(__file__).parent / "figures"


def main() -> None:
    f = al.targets.functions.attention
    made = al.construct.universal(f, d=1, n=2, delta=1 / 8)
    three = al.construct.universal(f, d=1, n=3, delta=1 / 8)
    sizes = (4, 8, 16)
    certificates = {
        "the proof's thin blocks": [
            al.construct.universal(f, d=1, n=3, delta=1 / k).certificate for k in sizes
        ],
        "two wide blocks": [
            al.construct.compact(f, d=1, n=3, delta=1 / k).certificate for k in sizes
        ],
    }
    pictures = {
        "quantised": construction_figures.quantised(made),
        "codes": construction_figures.codes(three, torch.tensor([[0.31, 0.05, 0.84]])),
        "output": construction_figures.output(made),
        "sizes": construction_figures.sizes(certificates),
        "matches": construction_figures.matches(al.construct.dyck(2, 3, 16), "([()])[()]([])"),
        "repetitions": construction_figures.repetitions(
            al.construct.program(library.parity_by_steps(), alphabet="01", n=10), "0110100111"
        ),
        "looks": construction_figures.looks(arithmetic.adder(3), "95+27\n"),
    }
    FIGURES.mkdir(exist_ok=True)
    for name, chart in pictures.items():
        (FIGURES / f"{name}.svg").write_text(theme.on_paper(theme.svg(chart)))


if __name__ == "__main__":
    main()
