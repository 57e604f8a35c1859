"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from slipstream.commands.request import RAY_HERE


class Rule(str, Enum):
    mean = "mean"
    medoid = "medoid"
    guarded = "guarded"


class WithRay(TyperCommand):
    """A command whose option --ray may stand without its ADDRESS."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; a bare --ray means this machine."""
        following = [*args[1:], "-"][: len(args)]
        given = [
            f"--ray={RAY_HERE}" if word == "--ray" and after.startswith("-") else word
            for word, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, given)


Threads = Annotated[
    Optional[int],  # noqa: UP045 - typer reads the annotation on Python 3.10
    typer.Option(help="Engine threads.", show_default="the number measured to be fastest here"),
]

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

Threshold = Annotated[
    float,
    typer.Option(
        help="Of section-diffusion: values more confident than this are filled in each pass.",
    ),
]

Batch = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        help="Most rollouts decoded at once; the others follow over the same prefix, in the same "
        "memory.",
        show_default="all at once",
    ),
]

EnginesFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--engines", help="The engines' folder.", show_default="the user's cache"),
]
