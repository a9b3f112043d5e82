r"""What a plan takes in the world's units: time, money, energy, memory, data and inference.

Inference over the model's life costs $2 N T$ FLOPs for $T$ tokens. At equal loss a smaller model
trained on more data may cost less in total: the plan minimises $6 N D + 2 N T$.

References:
    `sardana2024` section 2; `kaplan2020` section 2.1.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from allometry._core.errors import UnidentifiedError, require
from allometry._core.estimate import Estimate
from allometry.laws.hardware import Hardware
from allometry.laws.inverse import budget
from allometry.laws.memory import Memory, inference_compute, training_memory
from allometry.laws.plan import Plan

if TYPE_CHECKING:
    from allometry.laws.law import Law


@final
@dataclass(frozen=True)
class Usage:
    """What some compute takes on some hardware.

    Args:
        compute: FLOPs.
        hours: Wall-clock hours.
        accelerator_hours: Hours of one accelerator.
        cost: Money, if the price is known.
        energy: kWh at rated power, if the power is known.
    """

    compute: Estimate
    hours: Estimate
    accelerator_hours: Estimate
    cost: Estimate | None
    energy: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """The amounts as JSON."""
        return {
            "compute": self.compute.to_dict(),
            "hours": self.hours.to_dict(),
            "accelerator_hours": self.accelerator_hours.to_dict(),
            "cost": None if self.cost is None else self.cost.to_dict(),
            "energy_kwh": None if self.energy is None else self.energy.to_dict(),
        }


def usage(compute: Estimate | float, hardware: Hardware) -> Usage:
    """Hours, cost and energy of so many FLOPs; an interval of the compute carries over.

    Example:
        >>> from allometry.laws import hardware
        >>> used = usage(1e22, hardware.parse("64xH100", price=2.5))
        >>> f"{used.hours.value:.1f} h, {used.cost.value:.0f}, {used.energy.value:.0f} kWh"
        '109.7 h, 17554, 4915 kWh'
    """
    total = compute if isinstance(compute, Estimate) else Estimate(compute, exact=True)
    energy = hardware.energy(1.0)
    return Usage(
        total,
        _times(total, hardware.hours(1.0)),
        _times(total, hardware.accelerator_hours(1.0)),
        None if hardware.price is None else _times(total, hardware.cost(1.0)),
        None if energy is None else _times(total, energy),
    )


def _times(estimate: Estimate, factor: float) -> Estimate:
    def scaled(x: float | None) -> float | None:
        return None if x is None else x * factor

    return replace(
        estimate,
        value=estimate.value * factor,
        se=scaled(estimate.se),
        lo=scaled(estimate.lo),
        hi=scaled(estimate.hi),
    )


@final
@dataclass(frozen=True)
class Fit:
    """Whether a training fits into the memory of the accelerators.

    Args:
        memory: What the training needs; by recomputing all activations if it needs to.
        recompute: `"attention"` or `"full"`.
        available: Bytes of one accelerator, if known.
        least: Least number of accelerators on which it fits, or None if activations alone
            exceed one accelerator.
    """

    memory: Memory
    recompute: str
    available: float | None
    least: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the share of one accelerator is smaller than its memory."""
        return None if self.available is None else self.memory.per_accelerator <= self.available

    def to_dict(self) -> dict[str, Any]:
        """The memory in bytes as JSON."""
        return {
            **self.memory.to_dict(),
            "recompute": self.recompute,
            "available_per_accelerator": self.available,
            "fits": self.fits,
            "least_accelerators": self.least,
        }


def memory_fit(N: float, hardware: Hardware, batch_tokens: float = 4096) -> Fit:
    """The memory to train N parameters, with full recomputation only if it does not fit without.

    Example:
        >>> from allometry.laws import hardware
        >>> made = memory_fit(7e9, hardware.parse("8xH100"))
        >>> made.fits, made.recompute, made.least
        (True, 'attention', 2)
    """
    require(batch_tokens >= 1, "batch_tokens", "be at least 1", batch_tokens)
    room = hardware.accelerator.memory
    made = None
    for recompute in ("attention", "full"):
        need = training_memory(
            N, batch_tokens=batch_tokens, accelerators=hardware.count, recompute=recompute
        )
        local = need.activations / hardware.count
        least = None
        if room is not None and local < room:
            least = math.ceil((need.total - need.activations) / (room - local))
        made = Fit(need, recompute, room, least)
        if made.fits is not False:
            break
    assert made is not None
    return made


@final
@dataclass(frozen=True)
class Lifetime:
    """Training and inference of a plan, against the compute-optimal plan of the same loss.

    Args:
        tokens: Tokens to process after training.
        training: FLOPs of the plan's training.
        inference: FLOPs of its inference.
        other: The compute-optimal plan of the same loss, which ignores inference.
        other_inference: FLOPs of its inference.
    """

    tokens: float
    training: float
    inference: float
    other: Plan | None = None
    other_inference: float = 0.0

    @property
    def total(self) -> float:
        """FLOPs of training and inference."""
        return self.training + self.inference

    @property
    def saved(self) -> float | None:
        """FLOPs saved against the compute-optimal plan of the same loss."""
        if self.other is None:
            return None
        return self.other.compute + self.other_inference - self.total

    def to_dict(self) -> dict[str, Any]:
        """The FLOPs as JSON."""
        other = self.other
        return {
            "tokens": self.tokens,
            "training": self.training,
            "inference": self.inference,
            "total": self.total,
            "saved": self.saved,
            "compute_optimal": None
            if other is None or other.N is None or other.D is None
            else {
                "N": other.N.value,
                "D": other.D.value,
                "training": other.compute,
                "inference": self.other_inference,
                "total": other.compute + self.other_inference,
            },
        }


def lifetime(law: "Law", plan: Plan, tokens: float, unique: float | None = None) -> Lifetime:
    """Training and inference of a plan made with `inference_tokens`.

    Args:
        law: The law.
        plan: Its plan; its compute includes inference.
        tokens: Tokens to process after training.
        unique: Amount of unique data.

    References:
        `sardana2024` Eq. (3).
    """
    require(plan.N is not None, "lifetime.plan", "have a size", plan.form)
    assert plan.N is not None
    used = inference_compute(plan.N.value, tokens)
    made = Lifetime(tokens, plan.compute - used, used)
    try:
        alone = law.plan(budget_to_reach(law, plan.loss.value, unique=unique).value, unique=unique)
    except UnidentifiedError:
        return made
    if alone.N is None:
        return made
    return replace(made, other=alone, other_inference=inference_compute(alone.N.value, tokens))


def budget_to_reach(
    law: "Law", loss: float, *, unique: float | None = None, inference_tokens: float = 0.0
) -> Estimate:
    """The least budget whose plan reaches a loss, inference and repetition of data included.

    Args:
        law: The law.
        loss: The loss to reach.
        unique: Amount of unique data.
        inference_tokens: Tokens to process after training, paid from the same budget.

    Raises:
        UnidentifiedError: No budget reaches the loss.
    """
    alone = budget(law, None, loss)
    both = {"N", "D"} <= set(law.variables)
    if not both or (unique is None and not inference_tokens):
        return alone

    def reached(c: float) -> bool:
        made = law.plan(math.exp(c), unique=unique, inference_tokens=inference_tokens)
        return made.loss.value <= loss

    low = math.log(alone.value)
    high = low
    while not reached(high):
        low, high = high, high + 1.0
        if high > math.log(alone.value) + 25.0:
            raise UnidentifiedError(
                f"The loss to reach must be possible with the unique data; no budget reaches "
                f"{loss:g} by repeating {unique or math.inf:.3g} tokens. Choose a higher loss.",
                alone,
            )
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return _times(alone, math.exp(high) / alone.value)
