"""The interface of flow layers: an invertible map with its log-determinant.

Shapes: n points, d dimensions, c size of the context; "*event" is d for points and
"channels height width" for images.
"""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

Event = Float[Tensor, "n *event"]
LogDet = Float[Tensor, " n"]
Context = Float[Tensor, "n c"] | None


class Transform(nn.Module, ABC):
    r"""A bijection z = f(x) from data towards noise.

    $\log p_X(x) = \log p_Z(f(x)) + \log |\det \partial f / \partial x|$.
    """

    @abstractmethod
    def forward(self, x: Event, context: Context = None) -> tuple[Event, LogDet]:
        """`(f(x), log |det df/dx|)`."""

    @abstractmethod
    def inverse(self, z: Event, context: Context = None) -> Event:
        """The x with f(x) = z."""

    def initialise(self, x: Event, context: Context = None) -> None:
        """Data-dependent initialisation from a first batch; does nothing in most transforms."""
