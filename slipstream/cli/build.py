"""Commands that build: export, inspect, compile, engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app
from slipstream.cli.options import EnginesFolder

engines = typer.Typer(help="Built engines: list, inspect, prune.", no_args_is_help=True)
app.add_typer(engines, name="engines")


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
    camera: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="NAME=WIDTHxHEIGHT of a VLM's camera, in the prompt's order; may be repeated.",
            show_default="no cameras: the text decoder alone",
        ),
    ] = None,
    frames: Annotated[
        int, typer.Option(help="Pictures of each camera in a plan; more than one are a video.")
    ] = 1,
    frame_rate: Annotated[float, typer.Option(help="Hz of these pictures.")] = 2.0,
    min_pixels: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Fewest pixels of a resized picture.", show_default="the processor's"),
    ] = None,
    max_pixels: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Most pixels of a resized picture.", show_default="the processor's"),
    ] = None,
    parity: Annotated[bool, typer.Option(help="Check the graphs against torch.")] = True,
    eos: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The token that ends an output, by text or id.",
            show_default="what generation_config.json and tokenizer_config.json say",
        ),
    ] = None,
    null: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The token that pads a slot of the output.",
            show_default="<|NULL|> if there is one",
        ),
    ] = None,
    mask: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The token that stands for what is to be drafted.",
            show_default="|<MASK>| if there is one, else the drafter's",
        ),
    ] = None,
) -> None:
    """Turn checkpoints into a bundle of ONNX graphs."""
    from slipstream.commands.export import rig_options, run_export

    limits = (trunk, branch, rollouts, max_position)
    rig = rig_options(camera or [], frames, frame_rate, min_pixels, max_pixels)
    special = {"null": null, "mask": mask, "eos": eos}
    run_export(target, draft, out, limits, name, data, licence, parity, rig, special)


@app.command()
def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show what is in a bundle: graphs, sizes, tokens, language, limits, provenance."""
    from slipstream.commands.inspect import inspect_bundle

    inspect_bundle(bundle, as_json)


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
