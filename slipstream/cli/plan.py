"""Commands that plan: run, demo, sweep, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app
from slipstream.cli.options import Batch, ProviderName, Rule, Threads, Threshold, Topics, WithRay


@app.command(cls=WithRay)
def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    drive: Annotated[
        list[str],
        typer.Option(
            help="kitti-00, synthetic, or a path; see `slipstream drives list`. Repeat it for "
            "several drives, or give @FILE, a list with one a line, or 'FOLDER/*', all drives, "
            "scenes or clips of a folder."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The report's folder.")],
    decoder: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="ar, ar-scaffold, dflash, ddtree, spectr, scaffold-spec or section-diffusion (not "
            "lossless); repeat it, or join several with commas. dflash:token names the rule too.",
            show_default="ar, ar-scaffold and, with a drafter, dflash",
        ),
    ] = None,
    accept: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Rule for sampled drafts: match and coupled give the draws of ar, token for "
            "token; block, token, k-seq, rrs, rrs-wor and traversal give the same distribution.",
            show_default="of one drive each decoder's own, block for dflash; of several coupled, "
            "which repeats",
        ),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Width of a drafted block, the anchor included: BLOCK - 1 tokens are drafted. Of "
            "scaffold-spec and section-diffusion the values in a block of the schema.",
            show_default="the cost gate chooses; of the schema the drafter's block",
        ),
    ] = None,
    nodes: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Budget of a ddtree, its root not counted.", show_default="the cost curve chooses"
        ),
    ] = None,
    paths: Annotated[int, typer.Option(help="Independent paths of spectr.")] = 4,
    threshold: Threshold = 0.9,
    rollouts: Annotated[int, typer.Option(help="Trajectories forked from one prefix.")] = 1,
    batch: Batch = None,
    deadline_ms: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Latency that a frame may take: rollouts that it has no time for are not begun; "
            "one always is.",
            show_default="none: all rollouts",
        ),
    ] = None,
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
        str,
        typer.Option(
            help="At most N of each drive, evenly spread, or a range of windows: 0:200 or 0:200:4."
        ),
    ] = "60",
    seed: Annotated[
        int,
        typer.Option(
            help="Of all randomness. Rules other than match and coupled repeat their outputs only "
            "with --block and --nodes given."
        ),
    ] = 0,
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Engine threads.",
            show_default="the number measured to be fastest here; with several drives 1",
        ),
    ] = None,
    provider: ProviderName = "cpu",
    topic: Topics = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Processes that share several drives, each with an engine of its own. A report "
            "for each drive and a summary of all; the same command goes on where it was stopped.",
            show_default="1",
        ),
    ] = None,
    rerun: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Also a Rerun recording with the plans, FILE.rrd; of several drives, one beside "
            "each report.",
            metavar="FILE",
        ),
    ] = None,
    mcap: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Also the plans as ROS 2 messages that Foxglove opens, FILE.mcap; of several "
            "drives, one beside each report.",
            metavar="FILE",
        ),
    ] = None,
    clusters: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="WOD-E2E's val_sequence_name_to_scenario_cluster.json: RFS is averaged over "
            "clusters, as the leaderboard does.",
            metavar="FILE",
        ),
    ] = None,
    metrics: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Serve Prometheus metrics while one drive runs: a port, or ADDRESS:PORT.",
            metavar="PORT",
        ),
    ] = None,
    ray: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="[ADDRESS]",
            help="Share the drives out on a Ray cluster; without ADDRESS, on one of this machine. "
            "Bundle and drives lie under the same paths on every node.",
        ),
    ] = None,
) -> None:
    """Replay drives with several decoders and write a report for each."""
    from slipstream.commands.recordings import Recordings
    from slipstream.commands.request import Request
    from slipstream.commands.run import run_drives

    code = run_drives(
        Request(
            bundle=bundle,
            drives=tuple(drive),
            topics=tuple(topic or ()),
            out=out,
            decoders=tuple(decoder or ()),
            accept=accept,
            block=block,
            nodes=nodes,
            paths=paths,
            threshold=threshold,
            rollouts=rollouts,
            batch=batch,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            rule=rule.value,
            frames=frames,
            seed=seed,
            threads=threads,
            provider=provider,
            workers=workers,
            ray=ray,
            metrics=metrics,
            recordings=Recordings(rerun, mcap),
            clusters=clusters,
            deadline_ms=deadline_ms,
        )
    )
    raise typer.Exit(code)


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
    """Compare the decoders on a real drive with the shipped planner, in one to three minutes."""
    from slipstream.demo import run_demo

    run_demo(out, frames, threads)


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
    decoder: Annotated[
        str,
        typer.Option(
            help="ar, ar-scaffold, dflash, ddtree, spectr, scaffold-spec, section-diffusion."
        ),
    ] = "dflash",
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
            help="Width of a drafted block, the anchor included; of scaffold-spec and "
            "section-diffusion the values in a block of the schema.",
            show_default="the cost gate chooses; of the schema the drafter's block",
        ),
    ] = None,
    batch: Batch = None,
    threshold: Threshold = 0.9,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    rule: Annotated[Rule, typer.Option(help="How rollouts become one trajectory.")] = Rule.guarded,
    frames: Annotated[
        str,
        typer.Option(help="At most N of each drive, evenly spread, or a range: 0:200 or 0:200:4."),
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
            batch=batch,
            temperature=temperature,
            decoder=decoder,
            accept=accept,
            block=block,
            threshold=threshold,
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
        str, typer.Option(help="At most N, evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "20",
    methods: Annotated[
        str,
        typer.Option(
            help="Drafting methods, joined with commas: dflash, ddtree, spectr, scaffold-spec."
        ),
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
