"""Numbers and units written for people: 1.2M parameters, 3.4 TFLOP, 2 min 5 s."""

import math
from collections.abc import Callable

from allometry._core.estimate import Estimate

Writer = Callable[[float], str]

_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_FLOPS = (
    (1e21, "ZFLOP"),
    (1e18, "EFLOP"),
    (1e15, "PFLOP"),
    (1e12, "TFLOP"),
    (1e9, "GFLOP"),
    (1e6, "MFLOP"),
    (1e3, "kFLOP"),
)
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NAMES = {"ngram": "n-gram"} | {
    name.lower().replace("-", ""): name
    for name in ("MLP", "RNN", "LSTM", "GRU", "GAN", "VAE", "VQ-VAE")
}
_NAMES |= {"beta_vae": "beta-VAE", "info_vae": "InfoVAE", "nice": "NICE", "glow": "GLOW"}
_NAMES |= {"pixelcnn": "PixelCNN", "gaussian": "Gaussian"}
BEYOND = "beyond reach"
"""Printed for an infinite amount."""
UNKNOWN = "not identified"
"""Printed for an amount that the runs do not identify."""


def significant(x: float, digits: int = 3, *, trim: bool = True) -> str:
    """`x` with that many significant digits, without an exponent; `trim` drops trailing zeros.

    Example:
        >>> significant(0.0012345), significant(1200.0), significant(12.0)
        ('0.00123', '1200', '12')
    """
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else str(x)
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    text = f"{x:.{places}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def power_of_ten(x: float, digits: int = 2) -> str:
    """`x` as 3.4×10²⁵."""
    exponent = math.floor(math.log10(abs(x)))
    mantissa = significant(x / 10.0**exponent, digits)
    if mantissa == "10":
        mantissa, exponent = "1", exponent + 1
    raised = str(exponent).translate(_RAISED)
    return f"10{raised}" if mantissa == "1" else f"{mantissa}×10{raised}"


def _scaled(x: float, steps: tuple[tuple[float, str], ...], gap: str, digits: int) -> str | None:
    # The rounded value decides: 999,999 is 1M, not 1000K.
    rounded = abs(float(f"{x:.{digits - 1}e}"))
    for step, name in steps:
        if rounded >= step:
            return f"{significant(x / step, digits)}{gap}{name}"
    return None


def count(x: float, digits: int = 3) -> str:
    """A count: 840, 12.3K, 1.2M, 7B, and powers of ten beyond.

    Example:
        >>> count(1234567), count(999_999), count(12), count(float("inf"))
        ('1.23M', '1M', '12', 'beyond reach')
    """
    if math.isnan(x):
        return "unknown"
    if not math.isfinite(x):
        return BEYOND
    if abs(x) >= 1e15:
        return power_of_ten(x)
    return _scaled(x, _COUNTS, "", digits) or significant(x, digits)


def flops(x: float, digits: int = 3) -> str:
    """Compute with its unit.

    Example:
        >>> flops(3.4e12), flops(5e23), flops(1e26)
        ('3.4 TFLOP', '500 ZFLOP', '10²⁶ FLOP')
    """
    if math.isnan(x):
        return "unknown"
    if not math.isfinite(x):
        return BEYOND
    if abs(x) >= 1e24:
        return f"{power_of_ten(x)} FLOP"
    return _scaled(x, _FLOPS, " ", digits) or f"{significant(x, digits)} FLOP"


def duration(seconds: float) -> str:
    """A duration: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 9.95:
        return f"{significant(seconds, 2)} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    for big, small, names in ((60, 1, "min s"), (3600, 60, "h min"), (86400, 3600, "d h")):
        if big == 86400 or total < big * (60 if big == 60 else 24):
            whole, rest = divmod(total, big)
            first, second = names.split()
            return f"{whole} {first}" + (f" {rest // small} {second}" if rest // small else "")
    raise AssertionError("every time fits one of the scales")


def loss(x: float, digits: int = 3) -> str:
    """A loss with that many decimals, or more if it is small."""
    if math.isnan(x):
        return "unknown"
    if not math.isfinite(x):
        return "infinite"
    return f"{x:.{digits}f}" if abs(x) >= 0.1 or x == 0 else significant(x, digits)


def percent(share: float) -> str:
    """A share as a percentage with two significant digits, at least 0.01 %."""
    value = 100 * share
    if math.isnan(value) or math.isinf(value):
        return "unknown"
    if abs(value) < 0.005:
        return "0 %"
    return f"{value:.2f} %" if abs(value) < 0.1 else f"{significant(value, 2)} %"


def span(estimate: Estimate, write: Writer) -> str:
    """The ends of an interval: `1.2M to 3M`, `at least 1.2M, no upper end`, `no interval`."""
    lo, hi = estimate.interval
    if estimate.exact:
        return "exact"
    if math.isfinite(lo) and math.isfinite(hi):
        first, last = write(lo), write(hi)
        unit = last.rpartition(" ")[2]
        # Both ends share one unit: 44.5 to 57.1 TFLOP.
        return f"{first.removesuffix(unit).rstrip() if ' ' in last else first} to {last}"
    if math.isfinite(lo):
        return f"at least {write(lo)}, no upper end"
    if math.isfinite(hi):
        return f"at most {write(hi)}, no lower end"
    return "no interval"


def estimated(estimate: Estimate, write: Writer, unit: str = "") -> str:
    """A value with its unit and interval: `1.2M parameters (95 % interval 0.8M to 3M)`."""
    tail = f" {unit}" if unit else ""
    if estimate.exact:
        return f"{write(estimate.value)}{tail}"
    lo, hi = estimate.interval
    if not math.isfinite(estimate.value):
        floor = f" (95 % interval: at least {write(lo)}{tail})" if math.isfinite(lo) else ""
        return f"{BEYOND}{floor}"
    if not (math.isfinite(lo) or math.isfinite(hi)):
        why = f": {estimate.method}" if estimate.method else ""
        return f"{write(estimate.value)}{tail} (no interval{why})"
    level = significant(100 * estimate.level, 3)
    return f"{write(estimate.value)}{tail} ({level} % interval {span(estimate, write)})"


FITTED = ("gaussian", "histogram")
"""Baselines fitted by moments or counts: neither trained nor constructed."""


def family(name: str) -> str:
    """The family's name for printing."""
    name, comma, more = name.partition(",")  # such as "lstm, nesting 8"
    return _NAMES.get(name, name.replace("_", " ")) + comma + more


def listed(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def small(n: int) -> str:
    """A count as a word up to ten, in digits beyond."""
    return _SMALL[n] if 0 <= n < len(_SMALL) else str(n)


def several(n: int, noun: str, plural: str = "") -> str:
    """`1 run`, `3 runs`."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def many(x: float, noun: str, plural: str = "") -> str:
    """A count with its noun: `1 parameter`, `12.3K parameters`."""
    text = count(x)
    return f"{text} {noun if text == '1' else plural or noun + 's'}"
