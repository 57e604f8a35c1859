"""The config of `slipstream compare`: one base, and entries that change a few fields of it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from planners.training.settings import Positive, Seed
from runtime.errors import SlipstreamError
from slipstream.compare.results import Shape
from slipstream.training.config import DrafterConfig, Place, Strict, Width
from slipstream.training.reading import checked_drafter_config, load_config, validated

DataShare = Annotated[float, Field(gt=0, le=1)]
Heat = Annotated[float, Field(ge=0)]


class EntryConfig(Strict):
    """One drafter.

    Attributes:
        change: fields of the base that differ, nested as there; a drafter of another kind replaces
            `drafter` as a whole, and EAGLE-3 its `training` too.
        data: share of the target's outputs that it learns from.
        checkpoint: a trained drafter's folder, which is measured as it is, once.
    """

    name: str = Field(min_length=1, max_length=40, pattern=r"^[\w.+ -]+$")
    change: dict[str, Any] = Field(default_factory=dict)
    data: DataShare = 1.0
    checkpoint: Place | None = None

    @property
    def folder(self) -> str:
        """Its name, as part of its folders' names."""
        return self.name.replace(" ", "-")


class StudyConfig(Strict):
    """Entries that differ in one thing, compared with `base`."""

    name: str = Field(min_length=1)
    question: str = ""
    base: str
    entries: tuple[str, ...] = Field(min_length=2)


class EvaluationConfig(Strict):
    """The frames that every drafter is measured on, in the loop that drives with it.

    Attributes:
        drives: held-out drives, by name or path as in `data.training`.
        frames: of each drive, evenly spread.
        verify: prove each entry's first seed with `slipstream verify`.
        samples: outputs drawn for each check of the proof.
    """

    drives: tuple[str, ...] = Field(min_length=1)
    frames: Positive = 24
    temperatures: tuple[Heat, ...] = Field(default=(0.0, 0.5, 1.0), min_length=1)
    shapes: tuple[Shape, ...] = Field(default=("chain", "tree"), min_length=1)
    block: Width = 16
    nodes: Annotated[int, Field(ge=1, le=1024)] = 32
    verify: bool = True
    samples: Annotated[int, Field(ge=64)] = 2048

    @model_validator(mode="after")
    def _has_a_chain(self) -> EvaluationConfig:
        if "chain" not in self.shapes:
            raise ValueError("shapes with chain, in which cost is measured")
        if len(set(self.drives)) < len(self.drives):
            raise ValueError("drives that differ: frames that count twice make intervals narrow")
        return self


class CompareConfig(Strict):
    """`slipstream compare`.

    Attributes:
        base: a config of `slipstream train drafter`, without `out`.
        seeds: of the trainings.
    """

    base: dict[str, Any]
    seeds: tuple[Seed, ...] = Field(default=(0, 1, 2), min_length=1)
    entries: tuple[EntryConfig, ...] = Field(min_length=1)
    evaluation: EvaluationConfig
    studies: tuple[StudyConfig, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> CompareConfig:
        names = [entry.name for entry in self.entries]
        if len({entry.folder.casefold() for entry in self.entries}) < len(names):
            raise ValueError("entries with different names, spaces and capitals aside")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("different seeds")
        for study in self.studies:
            if unknown := {study.base, *study.entries} - set(names):
                raise ValueError(f"studies of known entries, unlike {min(unknown)}")
        return self


def read_compare_config(path: Path) -> CompareConfig:
    """Read and check a config, every entry of it.

    Raises:
        SlipstreamError: no such file, neither YAML nor TOML, an unknown key or a bad value.
    """
    config = validated(path, CompareConfig, load_config(path))
    for entry in config.entries:
        try:
            drafter_config(path, config, entry, seed=config.seeds[0], out=Path("out"))
        except SlipstreamError as error:
            raise SlipstreamError(
                f"{error.what}, in base as the entry {entry.name} changes it",
                expected=error.expected,
                found=error.found,
                fix=error.fix,
            ) from error
    return config


def only_entries(path: Path, config: CompareConfig, names: Sequence[str]) -> CompareConfig:
    """The config with these entries alone, and the studies whose base and another entry are left.

    Raises:
        SlipstreamError: an entry that the config does not have.
    """
    known = [entry.name for entry in config.entries]
    if unknown := [name for name in names if name not in known]:
        raise SlipstreamError(
            f"{path} has no entry {unknown[0]}",
            expected=f"one of {', '.join(known)}",
            found=unknown[0],
            fix="change --only",
        )
    studies = [
        study.model_copy(update={"entries": tuple(n for n in study.entries if n in names)})
        for study in config.studies
        if study.base in names
    ]
    return config.model_copy(
        update={
            "entries": tuple(entry for entry in config.entries if entry.name in names),
            "studies": tuple(study for study in studies if set(study.entries) > {study.base}),
        }
    )


def drafter_config(
    path: Path, config: CompareConfig, entry: EntryConfig, *, seed: int, out: Path
) -> DrafterConfig:
    """The base with the entry's changes; raises SlipstreamError for a bad field of them."""
    raw = merged(config.base, entry.change)
    raw["out"] = str(out)
    raw.pop("evaluation", None)  # the loop measures, not the training
    drafter = raw.get("drafter")
    if isinstance(drafter, dict) and drafter.get("block") in range(2, 1025):
        raw["evaluation"] = {"widths": [drafter["block"]]}
    if isinstance(training := raw.setdefault("training", {}), dict):
        training["seed"] = seed
    return checked_drafter_config(path, raw)


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with the fields of `change`; mappings are merged, all else is replaced.

    A mapping with another `kind` is another thing, and an `objective` is a whole: both replace.
    """
    result = deepcopy(base)
    for name, value in change.items():
        old = result.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and _merges(name, old, value):
            result[name] = merged(old, value)
        else:
            result[name] = deepcopy(value)
    return result


def _merges(name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    return name != "objective" and new.get("kind", old.get("kind")) == old.get("kind")
