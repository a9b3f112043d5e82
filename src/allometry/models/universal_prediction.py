"""Universal predictors: asymptotically as good as the best of a large class in hindsight."""

from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import gammaln
from torch import Tensor

from allometry._core.errors import require
from allometry.models.ngram_models import Ids
from allometry.models.ngram_tables import checked, find


@final
class LZ78:
    r"""The predictor of Lempel and Ziv's incremental parsing.

    The text is parsed into the shortest phrases not seen before, which form a tree. The
    probability of a symbol is the fraction of the tree's leaves below its child, $p(x \mid
    \text{node}) = w(\text{child}_x)/w(\text{node})$, where a leaf has weight one. A leaf that is
    reached gets V children. The predictor is adaptive and has no parameters. Its code length per
    symbol converges to the entropy rate of any stationary source.

    Args:
        vocabulary: V, the number of symbols.

    References: `feder1992` Sec. V; `ziv1978`.
    """

    def __init__(self, vocabulary: int) -> None:
        require(vocabulary >= 1, "LZ78.vocabulary", "be at least 1", vocabulary)
        self.vocabulary = vocabulary
        # The children of a node are V consecutive entries from `first`; 0 marks a leaf.
        self._first = [1] + [0] * vocabulary
        self._weight = [vocabulary] + [1] * vocabulary
        self._path = [0]

    @property
    def N(self) -> int:
        """Number of nodes of the tree."""
        return len(self._first)

    def update(self, ids: Ids) -> Float[Tensor, " tokens"]:
        """Read `ids`; returns the log-probability of each token before it was seen."""
        V, first, weight, path = self.vocabulary, self._first, self._weight, self._path
        p = np.empty(len(ids))
        # A loop, because each symbol changes the tree that predicts the next.
        for t, symbol in enumerate(checked(ids, V, "LZ78.update").tolist()):
            node = path[-1]
            child = first[node] + symbol
            p[t] = weight[child] / weight[node]
            if first[child]:
                path.append(child)
                continue
            first[child] = len(first)
            first.extend([0] * V)
            weight.extend([1] * V)
            for parent in path:
                weight[parent] += V - 1
            weight[child] = V
            path = self._path = [0]
        return torch.from_numpy(np.log(p))

    def probabilities(self) -> Float[Tensor, " V"]:
        """The distribution of the next symbol."""
        node = self._path[-1]
        first = self._first[node]
        children = torch.tensor(self._weight[first : first + self.vocabulary])
        return children.double() / self._weight[node]


@final
class ContextTree:
    r"""Context-tree weighting: the mixture of all context trees up to a depth.

    In every node s of the tree of contexts,
    $$P_w^s = \tfrac12 P_e^s + \tfrac12 \prod_v P_w^{vs},$$
    where $P_e$ is the Dirichlet($\alpha$) mixture of memoryless sources; a tree with few leaves
    costs few bits. Counts are sufficient, so a text is fitted in one pass.

    Args:
        depth: Length of the longest context.
        vocabulary: V, the number of symbols.
        alpha: Dirichlet parameter; 1/2 is the Krichevsky-Trofimov estimator, good for few symbols.

    References: `willems1995` Sec. III and IV; `krichevsky1981`.
    """

    def __init__(self, depth: int, vocabulary: int, alpha: float = 0.5) -> None:
        require(depth >= 0, "ContextTree.depth", "be at least 0", depth)
        require(vocabulary >= 1, "ContextTree.vocabulary", "be at least 1", vocabulary)
        require(alpha > 0, "ContextTree.alpha", "be positive", alpha)
        self.depth = depth
        self.vocabulary = vocabulary
        self.alpha = alpha
        self.code_length = float("nan")
        """Code length of the fitted text in nats, its first `depth` symbols at log V each."""
        self._contexts: list[ndarray] = []
        self._codes: list[ndarray] = []
        self._counts: list[ndarray] = []
        self._totals: list[ndarray] = []
        self._stop: list[ndarray] = []

    @property
    def N(self) -> int:
        """Number of stored counts."""
        return sum(map(len, self._counts))

    def fit(self, ids: Ids) -> "ContextTree":
        """Fit to a text; returns the tree itself."""
        V, D = self.vocabulary, self.depth
        text = checked(ids, V, "ContextTree.fit")
        require(len(text) > D, "ContextTree.fit ids", f"be more than {D}", len(text))
        node = np.zeros(len(text) - D, dtype=np.int64)
        self._contexts, self._codes, self._counts, self._totals = [], [], [], []
        for d in range(D + 1):
            if d > 0:
                # A child is identified by its parent and the symbol one step further back.
                keys, node = np.unique(node * V + text[D - d : -d], return_inverse=True)
                self._contexts.append(keys)
            codes, counts = np.unique(node * V + text[D:], return_counts=True)
            self._codes.append(codes)
            self._counts.append(counts)
            self._totals.append(np.bincount(codes // V, weights=counts))
        self._set_weights()
        self.code_length += D * np.log(V)
        return self

    def _set_weights(self) -> None:
        """From the leaves up: log P_w of each node, and the weight of its own P_e in it."""
        V, a = self.vocabulary, self.alpha
        below: ndarray | None = None
        self._stop = []
        for d in range(self.depth, -1, -1):
            total = self._totals[d]
            own = np.bincount(
                self._codes[d] // V, gammaln(self._counts[d] + a) - gammaln(a), len(total)
            )
            own = own + gammaln(V * a) - gammaln(total + V * a)
            if below is None:
                self._stop.append(np.ones(len(total)))
                weighted = own
            else:
                split = np.bincount(self._contexts[d] // V, below, len(total))
                weighted = np.logaddexp(own, split) - np.log(2)
                self._stop.append(np.exp(own - np.log(2) - weighted))
            below = weighted
        self._stop.reverse()
        assert below is not None
        self.code_length = -float(below[0])

    def log_prob(self, ids: Ids) -> Float[Tensor, " tokens"]:
        """The log-probability of every token of a new text, with the fitted weights."""
        text = checked(ids, self.vocabulary, "ContextTree.log_prob")
        return torch.from_numpy(np.log(self._predict(text, text[:, None])[:, 0]))

    def logits(self, context: Ids) -> Float[Tensor, " V"]:
        """The log-probabilities of the symbol after `context`."""
        text = checked(context, self.vocabulary, "ContextTree.logits")
        # The last entry is a placeholder for the predicted symbol and is not read.
        text = np.append(text[max(0, len(text) - self.depth) :], 0)
        return torch.from_numpy(np.log(self._predict(text, np.arange(self.vocabulary)[None])[-1]))

    def _predict(
        self, text: Int[ndarray, " T"], symbols: Int[ndarray, "_ k"]
    ) -> Float[ndarray, "T k"]:
        """The probability of `symbols` at each position of a text."""
        V, a = self.vocabulary, self.alpha
        require(len(self._codes) > 0, "ContextTree", "be fitted first", "no counts", "Call fit.")
        time = np.arange(len(text))
        node = np.zeros(len(text), dtype=np.int64)
        p = np.zeros((len(text), symbols.shape[1]))
        reach = np.ones(len(text))  # weight that did not stop at a shorter context
        for d in range(self.depth + 1):
            if d > 0:
                child = find(self._contexts[d - 1], node * V + text[np.maximum(time - d, 0)])
                known = (node >= 0) & (child >= 0) & (time >= d)
                # An unseen context: all longer contexts predict uniformly.
                p += np.where((node >= 0) & ~known, reach / V, 0.0)[:, None]
                node = np.where(known, child, -1)
            gram = find(self._codes[d], node[:, None] * V + symbols)
            seen = np.where(gram >= 0, self._counts[d][gram], 0)
            estimate = (seen + a) / (self._totals[d][node] + V * a)[:, None]
            stop = np.where(node >= 0, self._stop[d][node], 0.0)
            p += (reach * stop)[:, None] * estimate
            reach = reach * (1 - stop)
        return p
