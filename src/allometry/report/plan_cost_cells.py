"""What a plan takes in time, money, energy, memory and data, as cells and sentences."""

from collections.abc import Iterator

from allometry._core.estimate import Estimate
from allometry.laws.design import Design
from allometry.laws.hardware import Hardware
from allometry.laws.plan import Plan
from allometry.laws.plan_costs import Fit, Lifetime, Usage, usage
from allometry.report import formatting as fmt
from allometry.report.cells import Cell, Head, Table
from allometry.report.prose import pass_count, plural, runs_which_cost

Row = tuple[Cell, ...]


def money(amount: float, currency: str = "$") -> str:
    """An amount of money.

    Example:
        >>> money(17554.3), money(2.5), money(1.25e7, "€"), money(0.002)
        ('$17,554', '$2.50', '€12.5M', 'under $0.01')
    """
    if 0 < amount < 0.01:
        return f"under {currency}0.01"
    if abs(amount) >= 1e6:
        return f"{currency}{fmt.count(amount)}"
    return f"{currency}{amount:,.0f}" if abs(amount) >= 100 else f"{currency}{amount:.2f}"


def energy(kwh: float) -> str:
    """An energy in kWh, MWh or GWh.

    Example:
        >>> energy(12.34), energy(12902), energy(2.5e6)
        ('12.3 kWh', '12.9 MWh', '2.5 GWh')
    """
    for step, unit in ((1e6, "GWh"), (1e3, "MWh")):
        if kwh >= step:
            return f"{fmt.significant(kwh / step)} {unit}"
    return f"{fmt.significant(kwh)} kWh"


def storage(count: float) -> str:
    """Bytes in decimal units.

    Example:
        >>> storage(1.12e11), storage(3.5e12)
        ('112 GB', '3.5 TB')
    """
    for step, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= step:
            return f"{fmt.significant(count / step)} {unit}"
    return f"{fmt.significant(count / 1e3)} kB"


def time(hours: float) -> str:
    """Wall-clock time: `3 d 4 h`, and years beyond one.

    Example:
        >>> time(76), time(24 * 400)
        ('3 d 4 h', '1.1 years')
    """
    if hours > 24 * 365:
        years = fmt.significant(hours / 24 / 365, 2)
        return f"{years} year" if years == "1" else f"{years} years"
    return fmt.duration(3600 * hours)


def costs(
    plan: Plan,
    hardware: Hardware,
    used: Usage,
    fit: Fit | None,
    life: Lifetime | None = None,
    token: str = "token",
) -> Table:
    """Time, cost, energy and memory of a plan on its hardware."""
    heads = (Head("", kind="tight"), Head(_title(hardware)))
    rows = [*_usage_rows(used, hardware), *_lost_rows(plan, hardware), *_memory_rows(fit)]
    if life is not None:
        rows += _lifetime_rows(life, hardware, token)
    return Table("Cost", heads, tuple(rows))


def _title(hardware: Hardware) -> str:
    price = ""
    if hardware.price is not None:
        price = f", {money(hardware.price, hardware.currency)} per accelerator-hour"
    return f"on {hardware.name} at MFU {hardware.mfu:g}{price}"


def _usage_rows(used: Usage, hardware: Hardware) -> Iterator[Row]:
    yield Cell("time"), Cell(fmt.estimated(used.hours, time))
    hours = fmt.estimated(used.accelerator_hours, fmt.count)
    yield Cell("accelerator-hours"), Cell(hours)
    if used.cost is not None:
        text = fmt.estimated(used.cost, lambda x: money(x, hardware.currency))
        yield Cell("cost"), Cell(text)
    if used.energy is not None:
        yield Cell("energy"), Cell(f"{fmt.estimated(used.energy, energy)} at rated power")


def _lost_rows(plan: Plan, hardware: Hardware) -> Iterator[Row]:
    """What the uncertainty about the allocation costs."""
    if plan.lost is None:
        return
    most = plan.lost.interval[1]
    if hardware.price is not None:
        write = [money(hardware.cost(x), hardware.currency) for x in (plan.lost.value, most)]
    else:
        write = [time(hardware.hours(x)) for x in (plan.lost.value, most)]
    yield (
        Cell("if the plan is wrong"),
        Cell(f"{write[0]} wasted on average over the fits that agree with the runs, {write[1]} "
             "at most (97.5 %)"),
    )  # fmt: skip


def _memory_rows(fit: Fit | None) -> Iterator[Row]:
    if fit is None:
        return
    need = fit.memory
    states = need.weights + need.gradients + need.optimiser
    yield (
        Cell("memory"),
        Cell(
            f"{storage(states)} for weights, gradients and Adam; activations "
            f"{storage(need.activations / need.accelerators)} per accelerator"
            f"{' if all are recomputed' if fit.recompute == 'full' else ''}"
        ),
    )
    share = f"{storage(need.per_accelerator)} per accelerator, fully sharded"
    if fit.available is None:
        yield Cell(""), Cell(share)
        return
    if fit.fits:
        yield Cell(""), Cell(f"{share}: fits {storage(fit.available)}")
        return
    least = f"; at least {fit.least} would do" if fit.least else ""
    how = least or "; split layers over accelerators (tensor or pipeline parallelism)"
    yield Cell(""), Cell(f"{share}: exceeds {storage(fit.available)}{how}", kind="bad")


def _lifetime_rows(life: Lifetime, hardware: Hardware, token: str) -> Iterator[Row]:
    train, serve = (usage(x, hardware) for x in (life.training, life.inference))

    def amount(used: Usage) -> str:
        if used.cost is not None:
            return money(used.cost.value, hardware.currency)
        return f"{fmt.count(used.accelerator_hours.value)} accelerator-hours"

    text = f"{fmt.many(life.tokens, token, plural(token))}: {fmt.flops(life.inference)}"
    yield Cell("inference"), Cell(f"{text}, {amount(serve)}; training {amount(train)}")


def lifetime_sentence(life: Lifetime, token: str = "token") -> str:
    """The compute-optimal model of the same loss, and what the plan saves against it."""
    other = life.other
    if other is None or other.N is None or other.D is None or life.saved is None:
        return ""
    share = life.saved / (life.total + life.saved)
    return (
        f"The compute-optimal model of the same loss has {fmt.count(other.N.value)} parameters, "
        f"trained on {fmt.many(other.D.value, token, plural(token))}: training and inference take "
        f"{fmt.flops(life.total + life.saved)}. This plan saves {fmt.percent(max(share, 0.0))}."
    )


def data_sentence(plan: Plan, unique: float | None, token: str) -> str:
    """Data needed against data at hand; empty if unknown or if data are repeated."""
    if unique is None or plan.D is None or plan.D.value > unique:
        return ""
    share = fmt.percent(plan.D.value / unique)
    hand = fmt.many(unique, token, plural(token))
    return f"The plan uses {share} of the {hand} at hand, in less than {pass_count(1)}."


def next_table(design: Design, hardware: Hardware | None = None) -> Table | None:
    """The runs that would narrow a prediction, with what they cost; None if there is none."""
    if not design.runs:
        return None
    priced = hardware is not None and hardware.price is not None
    heads = [
        Head("N", kind="num"),
        Head("D", kind="num"),
        Head("compute", kind="num"),
        Head("interval after", kind="num"),
    ]
    if hardware is not None:
        heads.insert(3, Head("cost" if priced else "time", kind="num"))
    rows = []
    for run in design.runs:
        cells = [
            Cell("" if run.N is None else fmt.count(run.N)),
            Cell("" if run.D is None else fmt.count(run.D)),
            Cell(fmt.flops(run.compute)),
            Cell(f"{fmt.percent(run.width)} of the loss"),
        ]
        if hardware is not None:
            text = time(hardware.hours(run.compute))
            if priced:
                text = money(hardware.cost(run.compute), hardware.currency)
            cells.insert(3, Cell(text))
        rows.append(tuple(cells))
    return Table("Next runs that would narrow the prediction", tuple(heads), tuple(rows))


def next_sentence(design: Design, budget: float, hardware: Hardware | None = None) -> str:
    """What the runs achieve, or that no affordable run helps."""
    now = f"The 95 % interval is {fmt.percent(design.now)} of the loss wide"
    if design.runs:
        after = f"{fmt.percent(design.after)} after {runs_which_cost(len(design.runs))}"
        return f"{now} now, and {after} {_amount(design.spent, hardware)}. {design.why}"
    text = f"{now}. No run within {_amount(budget, hardware)} narrows it by 3 % of that or more"
    if design.needed is not None:
        return f"{text}; runs of {_amount(design.needed, hardware)} in all would. {design.why}"
    return f"{text}, nor does any below the compute of the target. {design.why}"


def _amount(compute: float, hardware: Hardware | None) -> str:
    text = fmt.flops(compute)
    if hardware is None:
        return text
    if hardware.price is None:
        return f"{text} ({time(hardware.hours(compute))})"
    return f"{text} ({money(hardware.cost(compute), hardware.currency)})"


def spent(plan: Plan, compute: Estimate) -> Estimate:
    """The plan's compute, with the interval of the budget that reaches a loss."""
    return compute if compute.lo is not None else Estimate(plan.compute, exact=True)
