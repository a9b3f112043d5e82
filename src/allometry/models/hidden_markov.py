"""Hidden Markov models: exact inference by recursion over time.

Shapes: S states, V symbols, T time.
"""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from allometry._core.errors import require


@final
class HiddenMarkov(nn.Module):
    r"""A Markov chain of states $z_t$ that emits symbols $x_t$.

    $p(x, z) = \pi_{z_1} B_{z_1 x_1} \prod_t A_{z_{t-1} z_t} B_{z_t x_t}$. With the identity for B
    it is a plain Markov chain.

    Args:
        initial: $\pi$, the distribution of the first state.
        transition: A; its rows sum to one.
        emission: B; its rows sum to one.

    References: `rabiner1989`.
    """

    def __init__(
        self,
        initial: Float[Tensor, " S"],
        transition: Float[Tensor, "S S"],
        emission: Float[Tensor, "S V"],
    ) -> None:
        super().__init__()
        given = {"initial": initial[None], "transition": transition, "emission": emission}
        for name, rows in given.items():
            good = bool((rows >= 0).all()) and bool(((rows.sum(-1) - 1).abs() < 1e-6).all())
            require(
                good,
                f"HiddenMarkov.{name}",
                "contain distributions: rows that sum to 1",
                rows.tolist(),
            )
        self.register_buffer("log_initial", initial.double().log())
        self.register_buffer("log_transition", transition.double().log())
        self.register_buffer("log_emission", emission.double().log())
        self.log_initial: Tensor
        self.log_transition: Tensor
        self.log_emission: Tensor

    def forward_messages(self, x: Int[Tensor, " T"]) -> Float[Tensor, "T S"]:
        r"""$\log p(x_1..x_t, z_t)$ for every t and state."""
        require(len(x) > 0, "HiddenMarkov x", "have at least one symbol", len(x))
        emitted = self.log_emission[:, x].T
        out = [self.log_initial + emitted[0]]
        for t in range(1, len(x)):
            out.append((out[-1][:, None] + self.log_transition).logsumexp(0) + emitted[t])
        return torch.stack(out)

    def backward_messages(self, x: Int[Tensor, " T"]) -> Float[Tensor, "T S"]:
        r"""$\log p(x_{t+1}..x_T \mid z_t)$ for every t and state."""
        emitted = self.log_emission[:, x].T
        out = [torch.zeros_like(self.log_initial)]
        for t in range(len(x) - 1, 0, -1):
            out.append((self.log_transition + emitted[t] + out[-1]).logsumexp(1))
        return torch.stack(out[::-1])

    def posterior(self, x: Int[Tensor, " T"]) -> Float[Tensor, "T S"]:
        r"""$p(z_t \mid x_1..x_T)$: forward-backward."""
        return (self.forward_messages(x) + self.backward_messages(x)).softmax(-1)

    def log_prob(self, x: Int[Tensor, " T"]) -> Float[Tensor, " T"]:
        r"""$\log p(x_t \mid x_1..x_{t-1})$ for every t."""
        total = self.forward_messages(x).logsumexp(-1)
        return total.diff(prepend=total.new_zeros(1))

    def viterbi(self, x: Int[Tensor, " T"]) -> tuple[Int[Tensor, " T"], float]:
        """The most likely states (Viterbi) and the joint log-probability with the symbols."""
        require(len(x) > 0, "HiddenMarkov x", "have at least one symbol", len(x))
        emitted = self.log_emission[:, x].T
        score = self.log_initial + emitted[0]
        back: list[Tensor] = []
        for t in range(1, len(x)):
            best, came = (score[:, None] + self.log_transition).max(0)
            score = best + emitted[t]
            back.append(came)
        path = [int(score.argmax())]
        for came in reversed(back):
            path.append(int(came[path[-1]]))
        return torch.tensor(path[::-1]), float(score.max())

    def sample(self, n: int, rng: torch.Generator) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """A sequence of n symbols and its hidden states."""
        require(n >= 1, "HiddenMarkov.sample.n", "be at least 1", n)
        u = torch.rand(2, n, generator=rng, dtype=torch.float64)
        steps = self.log_transition.exp().cumsum(-1)
        start = self.log_initial.exp().cumsum(-1)
        last = len(start) - 1
        states = [min(int(torch.searchsorted(start, u[0, 0], right=True)), last)]
        rows, draws = steps.tolist(), u[0].tolist()
        for t in range(1, n):
            row = rows[states[-1]]
            states.append(next((i for i, c in enumerate(row) if draws[t] < c), last))
        z = torch.tensor(states)
        cdf = self.log_emission.exp().cumsum(-1)[z]
        x = torch.searchsorted(cdf, u[1][:, None], right=True)[:, 0]
        return x.clamp(max=cdf.shape[1] - 1), z

    def stationary(self) -> Float[Tensor, " S"]:
        """The stationary distribution of the states."""
        A = self.log_transition.exp()
        n = len(A)
        lhs = torch.cat([A.T - torch.eye(n, dtype=A.dtype), torch.ones(1, n, dtype=A.dtype)])
        rhs = torch.cat([torch.zeros(n, dtype=A.dtype), torch.ones(1, dtype=A.dtype)])
        return torch.linalg.lstsq(lhs, rhs[:, None]).solution[:, 0]

    def chain_entropy_rate(self) -> float:
        r"""Nats per step of the states, $-\sum_i \mu_i \sum_j A_{ij} \log A_{ij}$."""
        A = self.log_transition.exp()
        return float(self.stationary() @ torch.special.entr(A).sum(-1))
