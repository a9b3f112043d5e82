"""Options on hardware, prices and budgets in money or time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allometry._core.errors import InputError

if TYPE_CHECKING:
    from allometry.laws.hardware import Hardware

HardwareName = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        help="Accelerators, such as 64xH100, for hours, cost, energy and memory; names by "
        "`allometry list accelerators`.",
    ),
]
Mfu = Annotated[
    float,
    typer.Option(
        help="Model FLOPs utilisation: achieved share of the peak FLOP/s; 0.3 to 0.5 is usual."
    ),
]
Price = Annotated[
    str | None,
    typer.Option(help="Price of one accelerator for one hour, such as 2.5/h or €2/h."),
]
Accelerators = Annotated[
    Path | None, typer.Option(help="TOML file that describes further accelerators.")
]
Money = Annotated[
    str | None,
    typer.Option(
        "--money", "--cost", help="Budget in money, such as 50K; needs --hardware and --price."
    ),
]
Days = Annotated[
    float | None,
    typer.Option(help="Budget in days on the hardware; with --money, what ends first."),
]
BatchTokens = Annotated[
    int,
    typer.Option(
        min=1,
        max=10**9,
        help="Tokens that each accelerator processes at once, for the memory of activations.",
    ),
]


def hardware_of(
    name: str | None, mfu: float, price: str | None, accelerators: Path | None
) -> "Hardware | None":
    """The hardware by its options; None if none is named."""
    if name is None:
        if price is not None or accelerators is not None:
            raise InputError(
                "--price and --accelerators must come with --hardware, such as 8xH100."
            )
        return None
    from allometry.laws import hardware

    return hardware.parse(name, mfu=mfu, price=price, table=hardware.accelerators(accelerators))


def compute_budget(
    hardware: "Hardware | None", money: str | None, days: float | None
) -> tuple[float | None, str]:
    """FLOPs of a budget in money or days, and a sentence that states it; None without one."""
    if money is None and days is None:
        return None, ""
    if hardware is None:
        raise InputError(
            "A budget in money or days must come with --hardware, such as --hardware 64xH100."
        )
    from allometry.laws.hardware import parse_money
    from allometry.report.formatting import flops, significant
    from allometry.report.plan_cost_cells import money as written

    amounts: dict[str, float] = {}
    if money is not None:
        value, currency = parse_money(money, hardware.currency)
        if currency != hardware.currency:
            raise InputError(
                f"--money and --price must have one currency; got {currency.strip()} and "
                f"{hardware.currency.strip()}. Write it in both, such as --price {currency}2/h."
            )
        amounts[written(value, currency)] = hardware.compute_for(value)
    if days is not None:
        if not 0 < days < 1e6:
            raise InputError(f"--days must be a positive number of days; got {days:g}.")
        amounts[f"{significant(days)} days"] = hardware.compute_in(days=days)
    least = min(amounts, key=lambda name: amounts[name])
    both = f", which end before {max(amounts, key=lambda n: amounts[n])}" if money and days else ""
    sentence = (
        f"Budget: {least} on {hardware.name} at MFU {hardware.mfu:g}{both} are "
        f"{flops(amounts[least])}."
    )
    return amounts[least], sentence
