"""Programs that generate, by name, for the command line."""

import inspect
import re
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

PROMPTS = {
    "counter": (r"\d{K} ", "be a number of K digits and a space"),
    "increment": (r"[01]{1,K}\n", "be a binary number of at most K digits"),
    "adder": (r"\d{1,K}\+\d{1,K}\n", "be a sum of two numbers of at most K digits"),
    "calculator": (r"\d{1,K}[-+*]\d{1,K}\n", "be two numbers of at most K digits and +, - or *"),
    "long_addition": (r"\d{1,K}\+\d{1,K}=", "be a sum of two numbers of at most K digits"),
    "long_multiplication": (
        r"\d{1,K}\*\d{1,K}=",
        "be a product of two numbers of at most K digits",
    ),
}
"""What a generator answers, K being its size: other prompts continue to something else."""


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


def check_prompt(name: str, size: int | None, prompt: Sequence[Any]) -> None:
    """Refuse a prompt that is longer or other than what a named generator is for.

    Args:
        name: The name.
        size: As for `named`.
        prompt: The tokens.
    """
    if name not in PROMPTS:
        return
    if size is None:
        size = next(iter(inspect.signature(NAMED[name]).parameters.values())).default
    pattern, what = (text.replace("K", str(size)) for text in PROMPTS[name])
    written = "".join(map(str, prompt))
    fix = "Give --size the number of digits."
    require(re.fullmatch(pattern, written) is not None, "prompt", what, written, fix)


def text_of(made: Generator, new: Sequence[Any]) -> str:
    """Generated tokens as text."""
    single = all(len(str(t)) == 1 for t in made.alphabet)
    return ("" if single else " ").join(map(str, new))
