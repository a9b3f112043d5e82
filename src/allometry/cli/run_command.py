"""`allometry run`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry._core.errors import require
from allometry.cli import option_types
from allometry.cli import own_training_options as own
from allometry.cli import transformer_options as decoder
from allometry.cli.console import say

Job = Annotated[
    str | None,
    typer.Argument(
        help="The target to learn: a text file or a folder of them; `embedded` (the English prose "
        "in Python's library); a density (`moons`, `rings`, `digits`, ..., a CSV or npy file, a "
        "folder of images); `ring` or `grid` (Gaussians, for adversarial networks); `domains` "
        "(one transformer on text, digits, tunes and a series); `tasks` (pretraining tasks "
        "compared); `reversal`, `sorting` or `transliteration`; `universal` or `dyck` "
        "(constructed networks beside trained ones); `degree`, `rank` or `mixer` (what layers "
        "of degree d can express and learn); `built-against-trained` (compiled programs beside "
        "trained transformers); or FILE.py:function that returns a Study. Left out "
        "with --command."
    ),
]
Folder = Annotated[
    Path | None, typer.Option("--folder", "-o", help="Folder of the runs. Default: runs/JOB.")
]
Smallest = Annotated[
    float, typer.Option(parser=option_types.size, help="Parameters of the smallest model.")
]
Largest = Annotated[
    float,
    typer.Option(parser=option_types.size, help="Parameters of the largest model, such as 350K."),
]
Rungs = Annotated[
    int | None,
    typer.Option(
        max=option_types.LARGEST_COUNT,
        help="Number of sizes from smallest to largest. Default: 8; 4 budgets with --all.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        max=option_types.LARGEST_COUNT,
        help="Runs of each configuration. Default: 2; 16 for `degree`.",
    ),
]
Tokens = Annotated[
    list[float] | None,
    typer.Option(
        parser=option_types.data,
        help="Number of training tokens, such as 2M. Repeat the option for several.",
    ),
]
Vocabulary = Annotated[
    str, typer.Option(help="Vocabulary of a text: characters, bytes, words or bpe.")
]
Context = Annotated[
    int, typer.Option(max=option_types.LARGEST_COUNT, help="Context length in tokens.")
]
Family = Annotated[
    list[str] | None,
    typer.Option(
        help="Model family. For a text: transformer, moe, mamba, gla, retnet, ngram, mlp, rnn, "
        "lstm, gru, convolution, masked_diffusion. For a density: a flow, vae, vqvae, pixelcnn, "
        "diffusion, flow_matching, quantiser, autoencoder, gan, pacgan2, wgan, ... For `degree`: "
        "T_2, T_3, ... For `tasks`: a task. Repeat the option for several."
    ),
]
Shared = Annotated[
    bool,
    typer.Option("--shared", help="Use one training for all numbers of tokens (cool-downs)."),
]
Rates = Annotated[
    list[float] | None,
    typer.Option(
        help="Learning rate to try at the smallest size; the best is used at all sizes. Repeat "
        "the option for several."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Time from now to the report, such as 10min. It determines the largest size; with "
        "--command, which runs are left out."
    ),
]
Flops = Annotated[
    float | None,
    typer.Option(
        parser=option_types.compute,
        help="Total training FLOPs, such as 10TFLOP, instead of a time.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        max=option_types.LARGEST_COUNT, help="Number of worker processes. Default: one per core."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(max=option_types.LARGEST_COUNT, help="Number of threads of each worker."),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        help="What carries the runs out: `local` (processes on this machine), `ray` (a new Ray "
        "instance), `ray:ADDRESS` (a running cluster: `auto`, `host:6379`, "
        "`ray://host:10001`), `torchrun` (all processes train one model, DDP) or "
        "`torchrun:shard` (FSDP2)."
    ),
]
Device = Annotated[str, typer.Option(help="Device of the runs: auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[
    str,
    typer.Option(
        help="Precision of training: float32, bfloat16, float16, or auto for the fastest."
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Give the same digits every time on one machine: no packing, one thread per worker.",
    ),
]
Tensorboard = Annotated[
    bool, typer.Option("--tensorboard", help="Write events to FOLDER/tensorboard as well.")
]
AllFamiliesFlag = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Compare every family that can learn the target (or those of --family) at equal "
        "compute, on one page. --flops is the compute of all runs, --rungs the number of budgets.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only print the runs and their estimated cost.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def run(
    job: Job = None,
    folder: Folder = None,
    smallest: Smallest = 1e3,
    largest: Largest = 3.4e5,
    rungs: Rungs = None,
    seeds: Seeds = None,
    tokens: Tokens = None,
    vocabulary: Vocabulary = "characters",
    context: Context = 64,
    family: Family = None,
    all_families: AllFamiliesFlag = False,
    shared: Shared = False,
    rates: Rates = None,
    activation: decoder.Activation = None,
    norm: decoder.Norm = None,
    key_value_heads: decoder.KeyValueHeads = None,
    qk_norm: decoder.QkNorm = False,
    optimizer: decoder.Optimizer = None,
    experts: decoder.Experts = None,
    active_experts: decoder.ActiveExperts = None,
    budget: Budget = None,
    flops: Flops = None,
    workers: Workers = None,
    threads: Threads = None,
    executor: ExecutorName = "local",
    device: Device = "auto",
    precision: Precision = "float32",
    deterministic: Deterministic = False,
    tensorboard: Tensorboard = False,
    command: own.Command = None,
    metric: own.Metric = "json:loss",
    shapes: own.Shapes = None,
    name: own.Name = None,
    n_metric: own.NMetric = None,
    flops_metric: own.FlopsMetric = None,
    timeout: own.Timeout = "24h",
    retries: own.Retries = 1,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Train models of increasing size on a job, fit a scaling law, write a report.

    The same command again resumes the study in its folder, or extends it.
    """
    from allometry.cli import all_families_run
    from allometry.cli.study_run import StudyRun
    from allometry.study import jobs, recipes
    from allometry.study.execute.executor_names import executor_by_name
    from allometry.train import DeviceSettings

    settings = DeviceSettings(device, precision, deterministic)
    if rates:
        recipes.checked(rates)
    runner = executor_by_name(executor, workers=workers, threads=threads, on=settings)
    variant = decoder.variant(
        activation, norm, key_value_heads, qk_norm, optimizer, experts, active_experts
    )
    if command is not None:
        option = f"--{next(iter(variant), '').replace('_', '-')}"
        require(not variant, option, "be left out with --command", next(iter(variant.values()), 0))
        require(job is None, "job", "be left out with --command", job)
        study = own.study(
            command, shapes, metric=metric, seeds=seeds, rates=rates or (), name=name,
            n_metric=n_metric, flops_metric=flops_metric, timeout=timeout, retries=retries,
        )  # fmt: skip
        fix = "Give a time with --budget, or choose fewer --shapes."
        require(not flops, "flops", "be left out with --command", flops, fix)
        folder = folder or Path("runs") / study.target.name
        study_run = StudyRun(study, folder, runner, dry_run, json, tensorboard)
        study_run.limit(budget, None, deterministic=deterministic)
        own.execute(study_run)
        return
    job = require_job(job)
    if all_families:
        defaults = {
            "--smallest": smallest == 1e3, "--largest": largest == 3.4e5,
            "--tokens": not tokens, "--shared": not shared, "--rates": not rates,
            "--budget": budget is None, "--tensorboard": not tensorboard,
        }  # fmt: skip
        all_families_run.refuse([flag for flag, unused in defaults.items() if not unused])
        all_families_run.run(
            job, family or (), folder, runner, rungs=rungs, seeds=seeds, flops=flops,
            vocabulary=vocabulary, context=context, dry_run=dry_run, json=json,
        )  # fmt: skip
        return
    study = jobs.study(
        job,
        smallest=smallest,
        largest=largest,
        rungs=8 if rungs is None else rungs,
        seeds=seeds,
        tokens=tokens,
        vocabulary=vocabulary,
        context=context,
        families=family or (),
        shared=shared,
        variant=variant,
    )
    folder = folder or Path("runs") / study.target.name
    study_run = StudyRun(study, folder, runner, dry_run, json, tensorboard)
    study_run.limit(budget, flops, deterministic=deterministic)
    # Notes come after all checks: if one fails, its error is the only output.
    for note in (*getattr(study.target, "notes", ()), *study_run.study.notes()):
        say(note)
    study_run.execute(rates or ())


def require_job(job: str | None) -> str:
    """The job; an error if there is neither a job nor a command."""
    fix = "Try `allometry run embedded`, or give --command."
    require(job is not None, "job", "be given", job, fix)
    assert job is not None
    return job
