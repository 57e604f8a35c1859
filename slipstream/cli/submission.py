"""The command that packs plans for the WOD-E2E challenge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app
from slipstream.cli.options import ProviderName, Rule, Threads


@app.command()
def submission(
    bundle: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the annotation on Python 3.10
        typer.Argument(help="A bundle's folder.", show_default=False),
    ] = None,
    drive: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The folder of WOD-E2E shards, and /CLIP behind it for one clip."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--out", help="Folder of MySubmission/ and MySubmission.tar.gz."),
    ] = None,
    check: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Only check what is there: that folder, or a .tar.gz."),
    ] = None,
    required: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="The challenge's list: test_sequence_frames_for_submission.json, or its .txt.",
            show_default="all frames of the shards",
        ),
    ] = None,
    account: Annotated[str, typer.Option(help="E-mail address registered there.")] = "",
    method_name: Annotated[str, typer.Option(help="Short and unique.")] = "",
    authors: Annotated[str, typer.Option(help="Joined with commas.")] = "",
    affiliation: Annotated[str, typer.Option(help="Of the authors.")] = "",
    description: Annotated[str, typer.Option(help="Of the method, in a few words.")] = "",
    link: Annotated[str, typer.Option(help="To a paper or page.")] = "",
    public_model: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="An openly published language model that it was pre-trained from; repeat it.",
            show_default="none was",
        ),
    ] = None,
    parameters: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Of the model: 8M.", show_default="counted in the bundle"),
    ] = None,
    shards: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Files to write.", show_default="one for each 10,000 frames"),
    ] = None,
    decoder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="ar, ar-scaffold, dflash, ddtree or spectr; dflash:token names the rule as well.",
            show_default="dflash, or ar-scaffold without a drafter",
        ),
    ] = None,
    rollouts: Annotated[int, typer.Option(help="Trajectories forked from one prefix.")] = 1,
    temperature: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Of the forked part; 0 is greedy.",
            show_default="0 with one rollout, 0.5 with several",
        ),
    ] = None,
    rule: Annotated[Rule, typer.Option(help="How rollouts become one trajectory.")] = Rule.guarded,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    threads: Threads = None,
    provider: ProviderName = "cpu",
) -> None:
    """Plan frames of WOD-E2E, also those without a future, and write the challenge's files."""
    from slipstream.commands.submission import Request, run_check, run_submission

    if check is not None:
        run_check(check, required)
        return
    run_submission(
        Request(
            bundle=bundle,
            drive=drive,
            out=out,
            account=account,
            method_name=method_name,
            authors=tuple(name.strip() for name in authors.split(",") if name.strip()),
            affiliation=affiliation,
            description=description,
            link=link,
            public_models=tuple(public_model or ()),
            parameters=parameters,
            required=required,
            shards=shards,
            decoder=decoder,
            rollouts=rollouts,
            temperature=temperature,
            rule=rule.value,
            seed=seed,
            threads=threads,
            provider=provider,
        )
    )
