"""The command line `slipstream`: options and their help; the work is in `slipstream.commands`."""

from __future__ import annotations

import signal
import sys
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, Optional

import typer

from runtime.errors import SlipstreamError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
drives = typer.Typer(help="Recorded drives: list, look at, fetch.", no_args_is_help=True)
app.add_typer(drives, name="drives")
engines = typer.Typer(help="Built engines: list, inspect, prune.", no_args_is_help=True)
app.add_typer(engines, name="engines")


class Rule(str, Enum):
    mean = "mean"
    medoid = "medoid"
    guarded = "guarded"


Threads = Annotated[
    Optional[int],  # noqa: UP045 - typer reads the annotation on Python 3.10
    typer.Option(help="Engine threads.", show_default="the number measured to be fastest here"),
]


def _version(wanted: bool) -> None:
    if wanted:
        from slipstream.commands.about import own_version

        typer.echo(f"slipstream {own_version()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run driving VLA planners on the vehicle: drafted, verified, forked."""


ProviderName = Annotated[
    str,
    typer.Option(
        "--provider",
        help="What runs the graphs: cpu, cuda or tensorrt-ep (ONNX Runtime), tensorrt or "
        "tensorrt-rtx (compiled engines; tensorrt:fp16 names their precision).",
    ),
]

Topics = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--topic",
        help="Of a ROS 2 bag: pose=/odom, speed=, intent= or image=; repeat it. The same as "
        "BAG#pose=/odom.",
        show_default="by message type",
    ),
]


@app.command()
def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    drive: Annotated[
        str, typer.Option(help="kitti-00, synthetic, or a path; see `slipstream drives list`.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The report's folder.")],
    decoder: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="ar, ar-scaffold, dflash, ddtree or spectr; repeat it, or join several with "
            "commas. dflash:token names the rule as well.",
            show_default="ar, ar-scaffold and, with a drafter, dflash",
        ),
    ] = None,
    accept: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Rule for sampled drafts: match and coupled give the draws of ar, token for "
            "token; block, token, k-seq, rrs, rrs-wor and traversal give the same distribution.",
            show_default="each decoder's own",
        ),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Width of a drafted block, the anchor included: BLOCK - 1 tokens are drafted.",
            show_default="the cost gate chooses",
        ),
    ] = None,
    nodes: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Budget of a ddtree, its root not counted.", show_default="the cost curve chooses"
        ),
    ] = None,
    paths: Annotated[int, typer.Option(help="Independent paths of spectr.")] = 4,
    rollouts: Annotated[int, typer.Option(help="Trajectories forked from one prefix.")] = 1,
    temperature: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Of the forked part; 0 is greedy.",
            show_default="0 with one rollout, 0.5 with several",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    rule: Annotated[Rule, typer.Option(help="How rollouts become one trajectory.")] = Rule.guarded,
    frames: Annotated[
        str, typer.Option(help="N evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "60",
    seed: Annotated[
        int,
        typer.Option(
            help="Of all randomness. Rules other than match and coupled repeat their outputs only "
            "with --block and --nodes given."
        ),
    ] = 0,
    threads: Threads = None,
    provider: ProviderName = "cpu",
    topic: Topics = None,
) -> None:
    """Replay a drive with several decoders and write one report."""
    from drives.open import with_topics
    from slipstream.commands.run import Request, run_replay

    run_replay(
        Request(
            bundle=bundle,
            drive=with_topics(drive, topic or ()),
            out=out,
            decoders=tuple(decoder or ()),
            accept=accept,
            block=block,
            nodes=nodes,
            paths=paths,
            rollouts=rollouts,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            rule=rule.value,
            frames=frames,
            seed=seed,
            threads=threads,
            provider=provider,
        )
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The report's folder.")] = Path(
        "slipstream-demo"
    ),
    frames: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Evenly spread.", min=1, show_default="as many as a minute allows"),
    ] = None,
    threads: Threads = None,
) -> None:
    """Compare the decoders on a real drive with the shipped planner, in about a minute."""
    from slipstream.demo import run_demo

    run_demo(out, frames, threads)


@app.command()
def export(
    target: Annotated[Path, typer.Argument(help="The target's checkpoint folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The bundle's folder.")],
    draft: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The drafter's checkpoint folder.", show_default="no drafter"),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The bundle's name.",
            show_default="an earlier bundle's of the same weights, else the folder's",
        ),
    ] = None,
    trunk: Annotated[int, typer.Option(help="Cache rows before the fork.")] = 512,
    branch: Annotated[int, typer.Option(help="Cache rows of each rollout.")] = 256,
    rollouts: Annotated[int, typer.Option(help="Most rollouts.")] = 16,
    max_position: Annotated[int, typer.Option(help="Most positions, prompt and output.")] = 1024,
    data: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="What was trained on: data set and recording, and 'first 80 %' of a part; "
            "replays on it say so. May be repeated.",
            show_default="kept from an earlier bundle of the same weights",
        ),
    ] = None,
    licence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Of weights and data, recorded in the bundle; may be repeated.",
            show_default="kept from an earlier bundle of the same weights",
        ),
    ] = None,
    parity: Annotated[bool, typer.Option(help="Check the graphs against torch.")] = True,
) -> None:
    """Turn checkpoints into a bundle of ONNX graphs."""
    from slipstream.commands.export import run_export

    limits = (trunk, branch, rollouts, max_position)
    run_export(target, draft, out, limits, name, data, licence, parity)


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of verify.json.")] = Path(
        "slipstream-verify"
    ),
    drive: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Where the prompts come from.", show_default="kitti-00 if fetched, else synthetic"
        ),
    ] = None,
    frames: Annotated[
        str, typer.Option(help="N evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "20",
    methods: Annotated[
        str, typer.Option(help="Drafting methods, joined with commas.")
    ] = "dflash,ddtree,spectr",
    temperature: Annotated[float, typer.Option(help="Of the sampled checks.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Outputs drawn for each acceptance rule.")] = 2048,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    threads: Threads = None,
    provider: ProviderName = "cpu",
) -> None:
    """Prove on this machine that drafting changes nothing; exit code 1 if it does."""
    from slipstream.commands.verify import Request, run_verify

    request = Request(
        bundle=bundle,
        out=out,
        drive=drive,
        frames=frames,
        methods=methods,
        temperature=temperature,
        samples=samples,
        seed=seed,
        threads=threads,
        provider=provider,
    )
    raise typer.Exit(run_verify(request))


@app.command()
def sweep(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    drive: Annotated[
        list[str], typer.Option(help="A drive's name or path; repeat it for several drives.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of sweep.json, sweep.png.")],
    rollouts: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Numbers of rollouts, joined with commas.",
            show_default="1,2,4,8,16,32 as far as the bundle goes",
        ),
    ] = None,
    temperature: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Of the forked part, joined with commas; greedy always runs as well.",
            show_default="0.5",
        ),
    ] = None,
    decoder: Annotated[str, typer.Option(help="ar, ar-scaffold, dflash, ddtree, spectr.")] = (
        "dflash"
    ),
    accept: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Rule for sampled drafts.",
            show_default="coupled: more rollouts keep those that fewer have",
        ),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Width of a drafted block, the anchor included.",
            show_default="the cost gate chooses",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    rule: Annotated[Rule, typer.Option(help="How rollouts become one trajectory.")] = Rule.guarded,
    frames: Annotated[
        str, typer.Option(help="N of each drive, evenly spread, or a range: 0:200 or 0:200:4.")
    ] = "60",
    rated: Annotated[
        bool, typer.Option("--rated", help="The frames that raters scored, and all of them.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    threads: Threads = None,
    provider: ProviderName = "cpu",
) -> None:
    """What more rollouts buy and cost: ADE, minADE, spread, RFS and latency, beside greedy."""
    from slipstream.commands.sweep import Request, run_sweep

    run_sweep(
        Request(
            bundle=bundle,
            drives=tuple(drive),
            out=out,
            rollouts=rollouts,
            temperature=temperature,
            decoder=decoder,
            accept=accept,
            block=block,
            top_k=top_k,
            top_p=top_p,
            rule=rule.value,
            frames=frames,
            rated=rated,
            seed=seed,
            threads=threads,
            provider=provider,
        )
    )


@app.command()
def doctor(
    bundle: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The bundle to open and run.", show_default="the shipped one"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print faults alone; for health checks.")
    ] = False,
) -> None:
    """What this machine can run, and what is missing; exit code 1 if no bundle can run here."""
    from slipstream.commands.doctor import run_doctor

    raise typer.Exit(run_doctor(bundle, as_json=as_json, quiet=quiet))


@app.command()
def estimate(
    bundle: Annotated[str, typer.Argument(help="A bundle's folder, or a model such as qwen3-4b.")],
    device: Annotated[
        str, typer.Option(help="orin-nano-8gb, orin-nano-8gb-super, orin-nx, agx-orin or thor.")
    ],
    precision: Annotated[
        str, typer.Option(help="fp32, fp16, bf16, int8, fp8, int4 or nvfp4.")
    ] = "fp16",
    rollouts: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Trajectories.", show_default="1, 2, 4, ... up to the bundle's limit"),
    ] = None,
    deadline_ms: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Find the most rollouts that fit it.", show_default="none"),
    ] = None,
    acceptance_length: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Tokens committed per round.", show_default="plain decoding"),
    ] = None,
    report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A report.json: its fastest drafting decoder's acceptance length."),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Width of a drafted block.", show_default="the drafter's"),
    ] = None,
    prompt: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens of the prompt.", show_default="the bundle's"),
    ] = None,
    prefix: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Output tokens before the fork.", show_default="the bundle's"),
    ] = None,
    tail: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Output tokens behind the fork.", show_default="the bundle's"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Estimate memory, latency and rollouts on a Jetson: a roofline, not a measurement."""
    from slipstream.commands.estimate import Request, run_estimate

    run_estimate(
        Request(
            bundle=bundle,
            device=device,
            precision=precision,
            rollouts=rollouts,
            deadline_ms=deadline_ms,
            acceptance_length=acceptance_length,
            report=report,
            block=block,
            prompt=prompt,
            prefix=prefix,
            tail=tail,
            as_json=as_json,
        )
    )


@app.command("compile")
def compile_bundle(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    target: Annotated[
        str, typer.Option(help="cpu, orin, thor, or a compute capability: sm86, sm120.")
    ],
    precision: Annotated[
        str, typer.Option(help="fp32, fp16, bf16; int8 and fp8 of graphs with Q/DQ nodes.")
    ] = "fp32",
    flavour: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="tensorrt or tensorrt-rtx.",
            show_default="tensorrt on the target itself, else tensorrt-rtx",
        ),
    ] = None,
    graph: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="May be repeated.", show_default="all of the bundle's"),
    ] = None,
    profile: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="NAME:DIM=MIN:OPT:MAX,... such as decode:N=1:8:16,S=1:16:32; may be repeated.",
            show_default="from the bundle's limits",
        ),
    ] = None,
    timing_cache: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File to read and write; full TensorRT only.", show_default="none"),
    ] = None,
    error_on_timing_cache_miss: Annotated[
        bool, typer.Option(help="Refuse to time a kernel that the timing cache does not know.")
    ] = False,
    optimization_level: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="0 to 5, trtexec's --builderOptimizationLevel.", show_default="3"),
    ] = None,
    memory_pool: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="NAME:SIZE such as workspace:512M, trtexec's --memPoolSize; may be repeated.",
            show_default="TensorRT's",
        ),
    ] = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="Let fp32 products use TF32.")] = False,
    engines_folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--engines", help="The engines' folder.", show_default="the user's cache"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build what is there again.")] = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Build although memory may not suffice.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show profiles, names and memory; build nothing.")
    ] = False,
) -> None:
    """Build a bundle's TensorRT engines for one GPU."""
    from slipstream.commands.compile import Request, run_compile

    run_compile(
        Request(
            bundle=bundle,
            target=target,
            precision=precision,
            flavour=flavour,
            graphs=graph or (),
            profiles=profile or (),
            timing_cache=timing_cache,
            strict_timing=error_on_timing_cache_miss,
            level=optimization_level,
            pools=memory_pool or (),
            tf32=tf32,
            engines=engines_folder,
            force=force,
            ignore_memory=ignore_memory,
            dry_run=dry_run,
        )
    )


EnginesFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--engines", help="The engines' folder.", show_default="the user's cache"),
]


@engines.command("list")
def engines_list(folder: EnginesFolder = None) -> None:
    """Engines that were built, newest first."""
    from slipstream.commands.engines import list_engines

    list_engines(folder)


@engines.command("inspect")
def engines_inspect(
    name: Annotated[str, typer.Argument(help="A file, or the start of an id or file name.")],
    folder: EnginesFolder = None,
    layers: Annotated[bool, typer.Option("--layers", help="Every layer with its types.")] = False,
) -> None:
    """An engine's key, inputs and outputs, profiles, layers; needs no GPU."""
    from slipstream.commands.engines import inspect_engine

    inspect_engine(name, folder, layers)


@engines.command("prune")
def engines_prune(
    folder: EnginesFolder = None,
    bundle: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Also engines of graphs that this bundle no longer has."),
    ] = None,
    old_versions: Annotated[
        bool, typer.Option("--old-versions", help="Also those of other TensorRT versions.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All engines.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove engines that can't be used any more."""
    from slipstream.commands.engines import prune_engines

    prune_engines(folder, bundle, old_versions, everything, dry_run)


@app.command()
def version() -> None:
    """Versions of slipstream and of what it runs on."""
    from slipstream.commands.about import show_versions

    show_versions()


@drives.command("list")
def drives_list() -> None:
    """Drives known by name."""
    from slipstream.commands.drives import show_drives

    show_drives()


@drives.command("info")
def drives_info(
    path: Annotated[str, typer.Argument(help="A drive's name or path.")],
    topic: Topics = None,
) -> None:
    """What a drive holds, and what in it deserves a second look."""
    from drives.open import with_topics
    from slipstream.commands.drives import show_drive

    show_drive(with_topics(path, topic or ()))


@drives.command("fetch")
def drives_fetch(name: Annotated[str, typer.Argument(help="A name from the list.")]) -> None:
    """Bring a drive that slipstream may not ship into the user's cache."""
    from slipstream.commands.drives import fetch_drive

    fetch_drive(name)


def main() -> None:
    """Entry point: a `SlipstreamError` is one message on stderr and exit code 2."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        app()
    except SlipstreamError as error:
        _leave(error)
    except OSError as error:
        # what no part foresaw, such as a name that is too long or a terminal that went away
        _leave(
            SlipstreamError(
                f"{str(error.filename or 'a file')[:120]} can't be used",
                expected="a path that this user may use, and free space",
                found=error.strerror or str(error),
                fix="check the paths of the command",
            )
        )
    except MemoryError as error:
        _leave(
            SlipstreamError(
                "the memory does not suffice",
                expected="a bundle and a drive that fit this machine",
                found=str(error),
                fix="lower limits when exporting: see `slipstream export --help`",
            )
        )


def _leave(error: SlipstreamError) -> NoReturn:
    sys.stderr.write(f"slipstream: {error}\n")
    sys.exit(error.exit_code)


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, so that nothing half-written stays."""
    raise SystemExit(128 + number)
