r"""Convert compute to time, money and energy on named accelerators, and back.

With peak FLOP/s $p$ of one accelerator, count $n$ and model FLOPs utilisation $u$, a compute $C$
takes $C/(n p u)$ seconds and $C/(3600\, p u)$ accelerator-hours. Cost is accelerator-hours times
their price; energy is accelerator-hours times the rated power.

References:
    `chowdhery2023` Appendix B (model FLOPs utilisation).
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, final

from allometry._core.errors import InputError, require
from allometry._core.user_files import MOST_SMALL, read_text

TABLE = Path(__file__).with_name("accelerators.toml")
"""The accelerators of the package, with sources."""

MFU = 0.4
"""Default model FLOPs utilisation. Large trainings report 0.3 to 0.55."""

_TEXT = re.compile(r"(?:(\d+)\s*(?:[x*×]\s*|\s))?([A-Za-z0-9][\w .+-]*)", re.ASCII)
_CURRENCIES = {"$": "$", "€": "€", "£": "£", "usd": "$", "eur": "€", "gbp": "£", "chf": "CHF "}
_PRICE = re.compile(
    r"([$€£]|[A-Za-z]{3}\s)?\s*(\d[\d_]*\.?\d*|\.\d+)\s*([KMBkmb](?![A-Za-z]))?\s*"
    r"([$€£]|[A-Za-z]{3}(?![A-Za-z]))?\s*((?:/|per)\s*(?:[a-z]+[- ])?(?:h|hr|hour))?"
)
_KEYS = {"peak_flops", "memory_gb", "power_watts", "names", "source", "checked"}


@final
@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    Args:
        name: Its name.
        peak_flops: Peak dense bf16 FLOP/s.
        memory: Memory in bytes, if known.
        power: Rated power in watts, if known.
        source: Where the figures come from.
        checked: What they were compared with: `maker`, its own text; `others`, tables of
            resellers or reviewers; empty if nothing.
    """

    name: str
    peak_flops: float
    memory: float | None = None
    power: float | None = None
    source: str = ""
    checked: str = ""


@final
@dataclass(frozen=True)
class Hardware:
    """Accelerators with their utilisation and price.

    Args:
        accelerator: The accelerator.
        count: Number of accelerators.
        mfu: Model FLOPs utilisation: achieved over peak FLOP/s, above 0 and at most 1.
        price: Price of one accelerator for one hour, if known.
        currency: Currency of the price, as printed before an amount.

    Example:
        >>> hardware = parse("64xH100", mfu=0.4, price=2.5)
        >>> round(hardware.hours(1e22), 2), round(hardware.cost(1e22))
        (109.71, 17554)
        >>> hardware.compute_in(days=1) == 64 * 989e12 * 0.4 * 86400
        True
    """

    accelerator: Accelerator
    count: int = 1
    mfu: float = MFU
    price: float | None = None
    currency: str = "$"

    def __post_init__(self) -> None:
        require(
            isinstance(self.count, int) and 1 <= self.count <= 10_000_000,
            "hardware.count",
            "be a whole number from 1 to 10 000 000",
            self.count,
        )
        require(0 < self.mfu <= 1, "mfu", "be above 0 and at most 1", self.mfu)
        require(
            self.price is None or (self.price > 0 and math.isfinite(self.price)),
            "price",
            "be positive",
            self.price,
        )

    @property
    def name(self) -> str:
        """For example `64xH100`."""
        return f"{self.count}x{self.accelerator.name}"

    @property
    def flops_per_second(self) -> float:
        """Achieved FLOP/s of all accelerators: count times peak times utilisation."""
        return self.count * self.accelerator.peak_flops * self.mfu

    def hours(self, compute: float) -> float:
        """Wall-clock hours for `compute` FLOPs."""
        return compute / self.flops_per_second / 3600.0

    def accelerator_hours(self, compute: float) -> float:
        """Accelerator-hours for `compute` FLOPs; the count cancels."""
        return compute / (self.accelerator.peak_flops * self.mfu) / 3600.0

    def cost(self, compute: float) -> float:
        """Price of `compute` FLOPs.

        Raises:
            InputError: The price of an accelerator-hour is unknown.
        """
        return self.accelerator_hours(compute) * self._price()

    def energy(self, compute: float, pue: float = 1.0) -> float | None:
        """Energy of `compute` FLOPs in kWh at rated power; None if the power is unknown.

        Args:
            compute: FLOPs.
            pue: Power usage effectiveness: energy of the site over that of the accelerators.
        """
        require(pue >= 1, "pue", "be at least 1", pue)
        if self.accelerator.power is None:
            return None
        return self.accelerator_hours(compute) * self.accelerator.power * pue / 1000.0

    def compute_in(self, *, hours: float = 0.0, days: float = 0.0) -> float:
        """FLOPs in so much wall-clock time."""
        time = hours + 24.0 * days
        require(time > 0 and math.isfinite(time), "time", "be positive", time)
        return self.flops_per_second * time * 3600.0

    def compute_for(self, money: float) -> float:
        """FLOPs for so much money, in the currency of the price.

        Raises:
            InputError: The price of an accelerator-hour is unknown.
        """
        require(money > 0 and math.isfinite(money), "money", "be positive", money)
        return money / self._price() * 3600.0 * self.accelerator.peak_flops * self.mfu

    def to_dict(self) -> dict[str, Any]:
        """The hardware as JSON."""
        return {
            "name": self.name,
            "accelerator": self.accelerator.name,
            "count": self.count,
            "peak_flops": self.accelerator.peak_flops,
            "memory_bytes": self.accelerator.memory,
            "power_watts": self.accelerator.power,
            "mfu": self.mfu,
            "price_per_hour": self.price,
            "currency": self.currency.strip(),
            "source": self.accelerator.source,
        }

    def _price(self) -> float:
        if self.price is None:
            raise InputError(
                "hardware must have a price to count money; got none. "
                "Give the price of one accelerator for one hour, such as --price 2.5/h."
            )
        return self.price


def parse(
    text: str,
    *,
    mfu: float = MFU,
    price: float | str | None = None,
    table: Mapping[str, Accelerator] | None = None,
) -> Hardware:
    """Parse hardware such as `64xH100`, `8 x A100-40GB` or `H200`.

    Args:
        text: Count and name. The count is 1 by default; case and hyphens don't matter.
        mfu: Model FLOPs utilisation.
        price: Price of one accelerator-hour: a number, or a text such as `2.5/h` or `€3/h`.
        table: Accelerators by name. Default: those of the package.

    Raises:
        InputError: The accelerator is unknown, or a number is out of range.

    Example:
        >>> parse("8 x a100-40gb", price="€1.2/h").accelerator.memory
        40000000000.0
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--hardware must be a count and a name, such as 64xH100; got {text!r}.")
    known = dict(accelerators() if table is None else table)
    found = known.get(_plain(match[2])) or known.get(_plain(text))
    if found is None:
        names = ", ".join(sorted({a.name for a in known.values()}))
        raise InputError(
            f"--hardware must name a known accelerator; got {match[2]!r}. Known: {names}. "
            "Describe another in a TOML file and name the file with --accelerators."
        )
    count = 1 if match[1] is None or _plain(text) in known else int(match[1])
    made = Hardware(found, count, mfu)
    if price is None:
        return made
    value, currency = parse_money(price) if isinstance(price, str) else (price, "$")
    return replace(made, price=value, currency=currency)


def parse_money(text: str, currency: str = "$") -> tuple[float, str]:
    """An amount of money or a price per hour, and its currency.

    Args:
        text: For example `2.5/h`, `$50K` or `120000 EUR`.
        currency: The currency if the text has none.

    Example:
        >>> parse_money("2.5/h"), parse_money("€50K"), parse_money("120000 EUR")
        ((2.5, '$'), (50000.0, '€'), (120000.0, '€'))
    """
    match = _PRICE.fullmatch(text.strip())
    unit = "" if match is None else (match[1] or match[4] or "").strip()
    if unit:
        currency = _CURRENCIES.get(unit.lower(), unit.upper() + " ")
    value = 0.0
    if match is not None:
        scale = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}[(match[3] or "").lower()]
        value = float(match[2].replace("_", "")) * scale
    if match is None or not 0 < value < math.inf:
        raise InputError(
            f"An amount of money must be a positive number, such as 2.5/h or $50K; got {text!r}."
        )
    return value, currency


@cache
def accelerators(file: Path | None = None) -> Mapping[str, Accelerator]:
    """Accelerators by name in lower case without hyphens, and by their other names.

    Args:
        file: TOML file with further accelerators, which win over those of the package. Each is a
            table with `peak_flops` and optionally `memory_gb`, `power_watts`, `names`, `source`,
            `checked`.

    Example:
        >>> accelerators()["h100"].peak_flops
        989000000000000.0
    """
    made: dict[str, Accelerator] = {}
    for path in (TABLE, file):
        if path is None:
            continue
        try:
            entries = tomllib.loads(read_text(path, most=MOST_SMALL))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} must be TOML; {error}.") from None
        entries = entries.get("accelerators", entries)
        for name, entry in entries.items():
            accelerator = _accelerator(name, entry, path)
            for other in (name, *entry.get("names", ())):
                made[_plain(str(other))] = accelerator
    return made


def _accelerator(name: str, entry: Any, path: Path) -> Accelerator:
    """One entry of a TOML file, checked."""
    require(
        isinstance(entry, dict) and "peak_flops" in entry and set(entry) <= _KEYS,
        f"{path}: {name}",
        f"have peak_flops and at most {', '.join(sorted(_KEYS))}",
        sorted(entry) if isinstance(entry, dict) else entry,
    )
    for key in ("peak_flops", "memory_gb", "power_watts"):
        value = entry.get(key, 1)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        require(
            good and 0 < value < math.inf, f"{path}: {name}.{key}", "be a positive number", value
        )
    memory, power = entry.get("memory_gb"), entry.get("power_watts")
    return Accelerator(
        name,
        float(entry["peak_flops"]),
        None if memory is None else memory * 1e9,
        None if power is None else float(power),
        str(entry.get("source", path.name)),
        str(entry.get("checked", "")),
    )


def _plain(name: str) -> str:
    """A name for comparison: lower case, without spaces, hyphens and NVIDIA's prefix."""
    plain = re.sub(r"[\s_-]", "", name.lower())
    return plain.removeprefix("nvidia").removeprefix("amd")
