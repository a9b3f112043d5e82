"""Parse quantities such as 7B, 300B tokens or 1 ZFLOP."""

import math
import re

from allometry._core.errors import InputError

_COUNTS = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_COUNTS |= {letter.lower(): scale for letter, scale in _COUNTS.items()}
"""Prefixes of parameters and data: the short scale, as in 7B or 7b, and the SI prefix G."""

_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
_PREFIXES |= {"Y": 1e24, "R": 1e27, "Q": 1e30}
"""Prefixes of compute: SI."""

_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_NUMBER = re.compile(
    r"(?P<number>(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<rest>.*)", re.DOTALL | re.ASCII
)
_POWER = re.compile(r"(?:([\d.]+)\s*[×x*]\s*)?10(?:\^|\*\*)?([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|(?<=[\^*])-?\d+)(.*)")
_WORDS = {
    "size": r"(?:parameters?|params?)?",
    "data": r"(?:tokens?|characters?|bytes|examples?|images?|points?|symbols?|sequences?)?",
    "compute": r"(?:FLOPs?|FLOPS)?",
}
_EXAMPLES = {"size": "1e9, 7B or 350M", "data": "1e9, 300B or 12.5M", "compute": "1e21 or 1ZFLOP"}


def quantity(text: str, kind: str, name: str = "it") -> float:
    """Parse a quantity.

    Args:
        text: For example `"7e9"`, `"7B"`, `"1 ZFLOP"` or `"3.4×10²⁵ FLOP"`.
        kind: `"size"` (parameters), `"data"` (tokens) or `"compute"` (FLOPs).
        name: Name of the argument, for the error message.

    Raises:
        InputError: It is not a positive finite number.

    Example:
        >>> quantity("7B", "size"), quantity("1 ZFLOP", "compute")
        (7000000000.0, 1e+21)
    """
    value = _value(text.strip(), kind)
    if value is None or not math.isfinite(value) or value <= 0:
        shown = text if len(text) <= 40 else text[:37] + "..."
        unit = {"size": "of parameters", "data": "of tokens", "compute": "of FLOPs"}[kind]
        raise InputError(
            f"{name} must be a positive number {unit}, such as {_EXAMPLES[kind]}; got {shown!r}."
        )
    return value


def _value(text: str, kind: str) -> float | None:
    scales = _PREFIXES if kind == "compute" else _COUNTS
    power = _POWER.fullmatch(text)
    if power is not None:
        factor, exponent, rest = power.groups()
        try:
            value = float(factor or 1) * 10.0 ** int(exponent.translate(_RAISED))
        except (ValueError, OverflowError):
            return None
        scales = {}
    else:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return None
        value, rest = float(match["number"].replace("_", "")), match["rest"]
    unit = re.fullmatch(rf"\s*([{''.join(scales)}]?)\s*{_WORDS[kind]}", rest) if scales else None
    if scales:
        return None if unit is None else value * scales.get(unit[1], 1.0)
    return value if re.fullmatch(rf"\s*{_WORDS[kind]}", rest) else None
