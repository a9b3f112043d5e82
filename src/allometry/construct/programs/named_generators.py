"""Programs that generate, by name, for the command line."""

from collections.abc import Callable, Sequence
from typing import Any

from allometry._core.errors import InputError, require
from allometry.construct.programs import arithmetic, generators
from allometry.construct.programs.generation import Generator
from allometry.construct.programs.subleq_machine import subleq
from allometry.construct.sequence_functions import from_file

NAMED: dict[str, Callable[..., Generator]] = {
    "counter": generators.counter,
    "increment": generators.increment,
    "adder": arithmetic.adder,
    "calculator": arithmetic.calculator,
    "long_addition": arithmetic.long_addition,
    "long_multiplication": arithmetic.long_multiplication,
    "closing": generators.closing,
    "stack_machine": generators.stack_machine,
    "subleq": subleq,
}
"""Functions whose first argument is the size: digits, bits, tokens, instructions or cells."""


def named(name: str, size: int | None = None) -> Generator:
    """The generator of a name: one of `NAMED`, or `FILE.py:function` that returns one.

    Args:
        name: The name.
        size: Number of digits (bits, tokens, instructions, cells), the first argument of the
            function. Default: the function's own.
    """
    function = from_file(name)
    if function is None:
        names = ", ".join(NAMED)
        require(name in NAMED, "generator", f"be FILE.py:function or one of {names}", name)
        function = NAMED[name]
    made = function() if size is None else function(size)
    if not isinstance(made, Generator):
        raise InputError(
            f"{name} must return a generator; got {type(made).__name__}. Return what "
            "`allometry.construct.generator` returns."
        )
    return made


def prompt_of(made: Generator, text: str) -> Sequence[Any]:
    r"""The tokens of a prompt that was typed.

    `\n` is a newline. Tokens of several characters are separated by spaces. If all known prompts
    of the generator end with the same token, that token may be left out.
    """
    written = text.replace("\\n", "\n")
    single = all(len(str(t)) == 1 for t in made.alphabet)
    prompt = list(written) if single else written.split()
    ends = {p[-1] for p in made.prompts or []}
    last = next(iter(ends)) if len(ends) == 1 else None
    return [*prompt, last] if last is not None and prompt[-1:] != [last] else prompt


def text_of(made: Generator, new: Sequence[Any]) -> str:
    """Generated tokens as text."""
    single = all(len(str(t)) == 1 for t in made.alphabet)
    return ("" if single else " ").join(map(str, new))
