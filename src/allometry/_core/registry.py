"""The names by which files may ask for classes and functions of this package.

A weights file names the class of its model, a study names its target, a run's key is a hash of
the class that carries it out. All three use *registered names*: labels that stay the same when
code moves, and the only ones a file can name. A name outside this table is never imported on a
file's word, and no attribute is looked up beyond the one that the table gives.

Registered names are labels, not paths. Most spell the place where a class was first defined; if it
moves, `MOVED` says where it is now, and every key, journal and weights file keeps its meaning.
"""

import importlib
from collections.abc import Callable
from typing import Any

from allometry._core.errors import InputError, require

KINDS: dict[str, tuple[str, ...]] = {
    "run": (
        "allometry.study.recipes.autoencoder:AutoencoderRun",
        "allometry.study.recipes.baseline:BaselineRun",
        "allometry.study.recipes.brackets:GeneratorRun",
        "allometry.study.recipes.brackets:TwinRun",
        "allometry.study.recipes.built_runs:BuiltRun",
        "allometry.study.recipes.built_runs:TrainedRun",
        "allometry.study.recipes.chebyshev:ChebyshevRun",
        "allometry.study.recipes.cooled:CooledRun",
        "allometry.study.recipes.density:FlowRun",
        "allometry.study.recipes.discrete_diffusion_runs:DiscreteDiffusionRun",
        "allometry.study.recipes.domains:DomainRun",
        "allometry.study.recipes.expressive:RankRun",
        "allometry.study.recipes.expressive:StackRun",
        "allometry.study.recipes.gan:GanRun",
        "allometry.study.recipes.learning:LearningRun",
        "allometry.study.recipes.moments:MomentsRun",
        "allometry.study.recipes.ngram:NgramRun",
        "allometry.study.recipes.pixels:PixelRun",
        "allometry.study.recipes.quantiser:QuantiserRun",
        "allometry.study.recipes.retried:RetriedRun",
        "allometry.study.recipes.sequence:SequenceRun",
        "allometry.study.recipes.state_space_runs:StateSpaceRun",
        "allometry.study.recipes.transduction:TransductionRun",
        "allometry.study.recipes.transformer:TransformerRun",
        "allometry.study.recipes.transformer_variants:VariantRun",
        "allometry.study.recipes.tuned:TunedRun",
        "allometry.study.recipes.universal:BuiltRun",
        "allometry.study.recipes.universal:LearnerRun",
        "allometry.study.recipes.upstream:UpstreamRun",
    ),
    "target": (
        "allometry.study.recipes.stacks:Stack",
        "allometry.targets.functions:SequenceFunction",
        "allometry.targets.high_rank:inner_power",
        "allometry.targets.high_rank:largest_product",
        "allometry.targets.high_rank:median",
        "allometry.targets.images:Images.array",
        "allometry.targets.images:Images.digits",
        "allometry.targets.images:Images.folder",
        "allometry.targets.languages.stream:Brackets",
        "allometry.targets.points.target:Points",
        "allometry.targets.series:AutoregressiveSeries",
        "allometry.targets.sources:Sources.embedded",
        "allometry.targets.sources:Sources.from_paths",
        "allometry.targets.symbols:Symbols.digits",
        "allometry.targets.symbols:Symbols.series",
        "allometry.targets.symbols:Symbols.tunes",
        "allometry.targets.table:Table",
        "allometry.targets.text:Text.embedded",
        "allometry.targets.text:Text.from_paths",
        "allometry.targets.transduction:Transduction",
    ),
    "density": (
        "allometry.targets.points.mixture:Mixture",
        "allometry.targets.points.mixture:eight_gaussians",
        "allometry.targets.points.mixture:grid",
        "allometry.targets.points.mixture:random_mixture",
        "allometry.targets.points.mixture:ring",
        "allometry.targets.points.shapes:Banana",
        "allometry.targets.points.shapes:Checkerboard",
        "allometry.targets.points.shapes:Funnel",
        "allometry.targets.points.shapes:Rings",
        "allometry.targets.points.shapes:Spirals",
        "allometry.targets.points.shapes:TwoMoons",
    ),
    "model": (
        "allometry.models.convolution:CausalConvolution",
        "allometry.models.convolution:FiniteMemory",
        "allometry.models.diffusion.token_diffusion:DiscreteDiffusion",
        "allometry.models.gan:Discriminator",
        "allometry.models.gan:Generator",
        "allometry.models.linear_attention:LinearAttention",
        "allometry.models.mamba:Mamba",
        "allometry.models.markov:KneserNey",
        "allometry.models.pixels:PixelCNN",
        "allometry.models.recurrent:Recurrent",
        "allometry.study.recipes.autoencoder:made",
        "allometry.study.recipes.density:made",
        "allometry.study.recipes.transformer:decoder",
        "allometry.study.recipes.transformer_variants:variant_decoder",
    ),
}
"""Registered names by what they make."""

MOVED: dict[str, str] = {
    "allometry.models.markov:KneserNey": "allometry.models.ngram:KneserNey",
    "allometry.models.pixels:PixelCNN": "allometry.models.pixelcnn:PixelCNN",
    "allometry.study.recipes.autoencoder:AutoencoderRun": (
        "allometry.study.recipes.autoencoder_runs:AutoencoderRun"
    ),
    "allometry.study.recipes.autoencoder:made": (
        "allometry.study.recipes.autoencoder_runs:build_autoencoder"
    ),
    "allometry.study.recipes.baseline:BaselineRun": (
        "allometry.study.recipes.baselines:BaselineRun"
    ),
    "allometry.study.recipes.brackets:GeneratorRun": (
        "allometry.study.recipes.dyck_runs:GeneratorRun"
    ),
    "allometry.study.recipes.brackets:TwinRun": "allometry.study.recipes.dyck_runs:TwinRun",
    "allometry.study.recipes.chebyshev:ChebyshevRun": (
        "allometry.study.recipes.chebyshev_runs:ChebyshevRun"
    ),
    "allometry.study.recipes.cooled:CooledRun": "allometry.study.recipes.cooldown:CooledRun",
    "allometry.study.recipes.density:FlowRun": "allometry.study.recipes.density_runs:FlowRun",
    "allometry.study.recipes.density:made": "allometry.study.recipes.density_runs:build_density",
    "allometry.study.recipes.domains:DomainRun": "allometry.study.recipes.domain_runs:DomainRun",
    "allometry.study.recipes.expressive:RankRun": "allometry.study.recipes.rank_runs:RankRun",
    "allometry.study.recipes.expressive:StackRun": "allometry.study.recipes.rank_runs:StackRun",
    "allometry.study.recipes.gan:GanRun": "allometry.study.recipes.gan_runs:GanRun",
    "allometry.study.recipes.learning:LearningRun": (
        "allometry.study.recipes.polynomial_learning:LearningRun"
    ),
    "allometry.study.recipes.moments:MomentsRun": "allometry.study.recipes.baselines:MomentsRun",
    "allometry.study.recipes.ngram:NgramRun": "allometry.study.recipes.ngram_runs:NgramRun",
    "allometry.study.recipes.pixels:PixelRun": "allometry.study.recipes.pixel_runs:PixelRun",
    "allometry.study.recipes.quantiser:QuantiserRun": (
        "allometry.study.recipes.quantiser_runs:QuantiserRun"
    ),
    "allometry.study.recipes.retried:RetriedRun": "allometry.study.recipes.retry:RetriedRun",
    "allometry.study.recipes.sequence:SequenceRun": (
        "allometry.study.recipes.sequence_runs:SequenceRun"
    ),
    "allometry.study.recipes.stacks:Stack": "allometry.study.recipes.polynomial_stacks:Stack",
    "allometry.study.recipes.transduction:TransductionRun": (
        "allometry.study.recipes.transduction_runs:TransductionRun"
    ),
    "allometry.study.recipes.transformer:TransformerRun": (
        "allometry.study.recipes.transformer_runs:TransformerRun"
    ),
    "allometry.study.recipes.transformer:decoder": (
        "allometry.study.recipes.transformer_runs:decoder"
    ),
    "allometry.study.recipes.tuned:TunedRun": "allometry.study.recipes.rate_search:TunedRun",
    "allometry.study.recipes.universal:BuiltRun": (
        "allometry.study.recipes.universal_approximation:BuiltRun"
    ),
    "allometry.study.recipes.universal:LearnerRun": (
        "allometry.study.recipes.universal_approximation:LearnerRun"
    ),
    "allometry.study.recipes.upstream:UpstreamRun": (
        "allometry.study.recipes.pretraining_tasks:UpstreamRun"
    ),
    "allometry.targets.high_rank:inner_power": "allometry.targets.high_rank_functions:inner_power",
    "allometry.targets.high_rank:largest_product": (
        "allometry.targets.high_rank_functions:largest_product"
    ),
    "allometry.targets.high_rank:median": "allometry.targets.high_rank_functions:median",
    "allometry.targets.languages.stream:Brackets": (
        "allometry.targets.languages.bracket_stream:Brackets"
    ),
    "allometry.targets.points.target:Points": "allometry.targets.points.points_target:Points",
    "allometry.targets.symbols:Symbols.digits": "allometry.targets.symbol_rows:Symbols.digits",
    "allometry.targets.symbols:Symbols.series": "allometry.targets.symbol_rows:Symbols.series",
    "allometry.targets.symbols:Symbols.tunes": "allometry.targets.symbol_rows:Symbols.tunes",
    "allometry.targets.table:Table": "allometry.targets.numeric_table:NumericTable",
}
"""Where a registered name's class is defined now, as `module:name`, if it has moved."""

_own: dict[str, tuple[str, Callable[..., Any]]] = {}
_kinds = {name: kind for kind, names in KINDS.items() for name in names}
_names = {MOVED.get(name, name): name for name in _kinds}


def register(function: Callable[..., Any], kind: str = "model", name: str | None = None) -> str:
    """Let files name a class or function of your own; gives back the registered name.

    A study saves the weights of a model together with the name of its class. Call this where the
    class is defined, and `study.load`, `generate` and reports can read such files again.

    Args:
        function: A class or function that makes a model, density, target or run.
        kind: `"model"`, `"density"`, `"target"` or `"run"`.
        name: The label that files use; `module:qualname` by default. Choose one that will stay
            when the code moves.

    Example:
        >>> import allometry as al
        >>> from collections import Counter
        >>> al.register(Counter, name="example/Counter")
        'example/Counter'
    """
    require(kind in KINDS, "register.kind", f"be one of {', '.join(KINDS)}", kind)
    place = f"{function.__module__}:{function.__qualname__}"
    name = _names.get(place, place) if name is None else name
    known = _own[name][1] if name in _own else resolve(name, name) if name in _kinds else function
    if known is not function:
        raise InputError(f"register.name must be new; {name!r} names something else already.")
    _own[name] = (kind, function)
    _names[place] = name
    return name


def name_of(function: Callable[..., Any]) -> str:
    """The registered name of `function`, or its `module:qualname` where it has none."""
    place = f"{function.__module__}:{function.__qualname__}"
    return _names.get(place, place)


def kind_of(name: str) -> str | None:
    """What a registered name makes; `None` for a name that is not registered."""
    return _own[name][0] if name in _own else _kinds.get(name)


def lookup(name: object, kind: str) -> Callable[..., Any]:
    """What `name` in a file stands for; refuses names that are not registered as a `kind`."""
    require(kind in KINDS, "lookup.kind", f"be one of {', '.join(KINDS)}", kind)
    if not isinstance(name, str) or kind_of(name) != kind:
        shown = repr(name) if len(repr(name)) <= 80 else repr(name)[:77] + "..."
        raise InputError(
            f"A file must name a registered {kind}; got {shown}. "
            "Register a class of your own with allometry.register."
        )
    return _own[name][1] if name in _own else resolve(name, name)


def resolve(name: str, shown: str = "") -> Any:
    """The class or function of a name that this program wrote itself.

    Names that are not registered are imported, but only what is defined under that very name: what
    a module merely imports is out of reach.

    Args:
        name: Registered, or the `module:qualname` that `name_of` gives.
        shown: How errors call it; `name` by default.
    """
    if name in _own:
        return _own[name][1]
    module, _, qualname = MOVED.get(name, name).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{shown or name} must be importable; got: {error}. "
            "Is its module on the Python path of every worker?"
        ) from error
    if (getattr(found, "__module__", None), getattr(found, "__qualname__", None)) != (
        module,
        qualname,
    ):
        raise InputError(f"{shown or name} must be defined in {module}; it comes from elsewhere.")
    return found
