"""Exercises of the lesson on games."""

import math
from typing import Any

import numpy as np

from allometry.course.exercise import Exercise

TABLE = ((2.0, -3.0, 1.0), (-1.0, 2.0, 0.5), (0.0, 1.0, -2.0))


def _value() -> float:
    from scipy.optimize import linprog

    # max v subject to x^T A >= v: a linear programme of its own.
    cost = np.array([0.0, 0.0, 0.0, -1.0])
    above = np.hstack([-np.array(TABLE).T, np.ones((3, 1))])
    limits = [(0, 1)] * 3 + [(None, None)]
    found: Any = linprog(cost, above, np.zeros(3), np.array([[1, 1, 1, 0]]), [1], limits)
    return -float(found.fun)


EXERCISES = (
    Exercise(
        "What is the value of the zero-sum game whose first player has the payoffs "
        "`[[2, -3, 1], [-1, 2, 0.5], [0, 1, -2]]`?",
        _value,
        "`minimax` returns the value first.",
        """
import numpy as np
from allometry.train.game import minimax

answer, x, y = minimax(np.array([[2, -3, 1], [-1, 2, 0.5], [0, 1, -2]]))
""",
        tolerance=1e-3,
    ),
    Exercise(
        "On the bilinear game, simultaneous steps of rate 0.05 start at distance 1 from the "
        "equilibrium. After how many steps is the distance larger than 2?",
        lambda: math.floor(math.log(2) / (0.5 * math.log1p(0.05**2))) + 1,
        "Each step multiplies the distance by the same factor, the square root of 1 + 0.05^2.",
        """
import torch
from allometry.train.game import Game, simultaneous
from allometry.train.game.differentiable import play

game = Game((lambda p: (p[0] * p[1]).sum(), lambda p: -(p[0] * p[1]).sum()))
start = (torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64))
_, way = play(game, start, simultaneous(0.05), 700)
answer = next(i for i, (u, v) in enumerate(way) if float(u**2 + v**2) > 4)
""",
        tolerance=0.0,
    ),
    Exercise(
        "The costs are $c_1 = \\theta_1\\theta_2 + \\frac{a}{2}\\theta_1^2$ and "
        "$c_2 = -\\theta_1\\theta_2 + \\frac{a}{2}\\theta_2^2$ with $a = 0.2$. What is the "
        "largest rate $\\eta$ for which simultaneous steps converge to the origin?",
        # |1 - eta (a +- i)|^2 = (1 - eta a)^2 + eta^2 < 1 if and only if eta < 2 a / (1 + a^2).
        lambda: 2 * 0.2 / (1 + 0.2**2),
        "A step multiplies by 1 - eta (a + i); its modulus must be below 1.",
        """
import torch
from allometry.train.game import Game, jacobian

game = Game((lambda p: (p[0] * p[1] + 0.1 * p[0] ** 2).sum(),
             lambda p: (-p[0] * p[1] + 0.1 * p[1] ** 2).sum()))
values = torch.linalg.eigvals(jacobian(game, (torch.zeros(1), torch.zeros(1))))
rates = torch.linspace(0.001, 2, 20_000)
modulus = (1 - rates * values[0]).abs()
answer = float(rates[modulus < 1].max())
""",
        tolerance=2e-3,
    ),
)
