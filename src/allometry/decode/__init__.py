"""Decoding: sampling strategies, beam search and constraints over next-token logits."""

from allometry._core.deprecation import moved
from allometry.decode.beam import Hypothesis, beam, stochastic_beam
from allometry.decode.constrained_sampling import exact_posterior, posterior
from allometry.decode.constraints import Automaton, Constrained, Constraint, constrained
from allometry.decode.grammars import Grammar, json_schema, lark, regex
from allometry.decode.huggingface import HuggingFace
from allometry.decode.mirostat import Mirostat, mirostat
from allometry.decode.penalties import Penalty, frequency, repetition
from allometry.decode.prompt_search import (
    Embedded,
    HardPrompt,
    SoftPrompt,
    hard_prompt,
    soft_prompt,
    surprise,
)
from allometry.decode.prompt_templates import (
    Item,
    Template,
    Variant,
    compare,
    demonstration,
    direct,
    metaprompt,
    opened,
    proxy,
    serialised,
)
from allometry.decode.reader import Cached, DecodingCache, Reader
from allometry.decode.sampling import ENDED, Sampler, Step, best_of, draw, sample, stream
from allometry.decode.strategies import (
    Strategy,
    epsilon,
    eta,
    greedy,
    min_p,
    plain,
    temperature,
    top_a,
    top_k,
    top_p,
    typical,
)
from allometry.decode.strategy_chain import Chain, Ending, Stateful, chain
from allometry.decode.text_statistics import TextStatistics, texture

__all__ = [
    "ENDED",
    "Automaton",
    "Cached",
    "Chain",
    "Constrained",
    "Constraint",
    "DecodingCache",
    "Embedded",
    "Ending",
    "Grammar",
    "HardPrompt",
    "HuggingFace",
    "Hypothesis",
    "Item",
    "Mirostat",
    "Penalty",
    "Reader",
    "Sampler",
    "SoftPrompt",
    "Stateful",
    "Step",
    "Strategy",
    "Template",
    "TextStatistics",
    "Variant",
    "beam",
    "best_of",
    "chain",
    "compare",
    "constrained",
    "demonstration",
    "direct",
    "draw",
    "epsilon",
    "eta",
    "exact_posterior",
    "frequency",
    "greedy",
    "hard_prompt",
    "json_schema",
    "lark",
    "metaprompt",
    "min_p",
    "mirostat",
    "opened",
    "plain",
    "posterior",
    "proxy",
    "regex",
    "repetition",
    "sample",
    "serialised",
    "soft_prompt",
    "stochastic_beam",
    "stream",
    "surprise",
    "temperature",
    "texture",
    "top_a",
    "top_k",
    "top_p",
    "typical",
]

__getattr__ = moved(__name__, {"Memory": "DecodingCache", "Texture": "TextStatistics"})
