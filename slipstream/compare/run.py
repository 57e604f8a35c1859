"""A comparison from its config: train what is missing, measure, prove, write the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError

from drives.drive import Drive
from drives.machine import this_machine
from drives.open import open_drive
from drives.selection import Selection
from drives.windows import Window, windows
from export.bundle import export_bundle
from runtime.bundle import Limits
from runtime.errors import SlipstreamError
from runtime.files import sha256, write_atomic
from runtime.proof.results import Check, Control
from runtime.proof.suite import Options, Suite
from slipstream.commands.session import own_command
from slipstream.commands.verify import cases_of
from slipstream.compare.config import CompareConfig, EntryConfig, drafter_config
from slipstream.compare.measure import METHOD, Evaluation, measure
from slipstream.compare.results import Budget, Comparison, Entry, Measured, Proven, Study
from slipstream.compare.train import School, Trained, target_key
from slipstream.training.config import DrafterConfig, EagleConfig, SelfDraftConfig
from slipstream.training.said import Bar
from slipstream.training.windows import place

LIMITS = Limits(trunk=512, branch=256, rollouts=16, max_position=1024)
MEASURED, PROVEN = "measured.json", "proven.json"

_Model = TypeVar("_Model", bound=BaseModel)


@contextmanager
def no_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """The bar of a process that has no screen."""
    yield lambda done: None


class _Silent:
    """Nothing of a training is shown: many run beside each other."""

    def begin(self, step: int, steps: int) -> None: ...

    def step(self, step: int, figures: object) -> None: ...

    def line(self, step: int, figures: object) -> None: ...


@dataclass(frozen=True)
class Job:
    """One drafter to train: an entry and a seed."""

    path: Path
    config: CompareConfig
    entry: EntryConfig
    seed: int
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / "drafters" / f"{self.entry.folder}-{self.seed}"

    @cached_property
    def drafter(self) -> DrafterConfig:
        return drafter_config(
            self.path, self.config, self.entry, seed=self.seed, out=self.folder / "drafter"
        )

    def train(self, threads: int) -> Trained:
        """Train, or read what is there; for a process of its own."""
        import torch

        torch.set_num_threads(threads)
        if self.entry.checkpoint is not None:
            return Trained(self.entry.checkpoint, 0.0, self._parameters(self.entry.checkpoint))
        school = School(self.drafter, self.out / "school", no_bar)
        return school.train(self.drafter, self.entry.data, self.drafter.out, _Silent())

    def checkpoints(self, trained: Trained) -> tuple[Path, Path | None]:
        """Target and drafter; a target that drafts for itself is its own."""
        if isinstance(self.drafter, SelfDraftConfig):
            return trained.folder, None
        return self.drafter.target, trained.folder

    def _parameters(self, checkpoint: Path) -> int:
        return 0 if isinstance(self.drafter, SelfDraftConfig) else _parameters(checkpoint)


class Comparing:
    """One comparison and its output folder.

    Args:
        path: of the config, for its errors.
        bar: opens a progress bar with a label and a total.

    Raises:
        SlipstreamError: a held-out drive can't be opened, or an entry's checkpoint not be read.
    """

    def __init__(self, path: Path, config: CompareConfig, out: Path, bar: Bar) -> None:
        self.path, self.config, self.out, self.bar = path, config, out, bar
        self.jobs = [
            Job(path, config, entry, seed, out)
            for seed in config.seeds
            for entry in config.entries
            if entry.checkpoint is None or seed == config.seeds[0]
        ]
        for entry in config.entries:
            if entry.checkpoint is not None:  # found out now, not when the others are trained
                _parameters(entry.checkpoint)
        base = self.jobs[0].drafter
        self.target_key = target_key(base.target)
        self.drives = [open_drive(place(d, base.data.folder)) for d in config.evaluation.drives]
        self.windows = _chosen(self.drives, config.evaluation.frames)

    def run(self, jobs: int, threads: int) -> Comparison:
        """Train with so many processes of so many threads, then measure one by one."""
        school = School(self.jobs[0].drafter, self.out / "school", self.bar)
        school.prepare([job.drafter for job in self.jobs if job.entry.checkpoint is None])
        trained = self._train(jobs, threads)
        with self.bar("measuring drafters", len(self.jobs)) as done:
            measured = []
            for number, (job, each) in enumerate(zip(self.jobs, trained, strict=True)):
                measured.append(self._measure(job, each))
                done(number + 1)
        entries = []
        for entry in self.config.entries:
            own = [i for i, job in enumerate(self.jobs) if job.entry is entry]
            proof = self._prove(self.jobs[own[0]]) if self.config.evaluation.verify else None
            entries.append(_entry(self.jobs[own[0]], [measured[i] for i in own], proof))
        return self._comparison(entries)

    def _train(self, jobs: int, threads: int) -> list[Trained]:
        with self.bar("training drafters", len(self.jobs)) as done:
            if jobs == 1:
                trained = []
                for number, job in enumerate(self.jobs):
                    trained.append(job.train(threads))
                    done(number + 1)
                return trained
            context = get_context("spawn")
            with ProcessPoolExecutor(jobs, mp_context=context) as pool:
                futures = [pool.submit(job.train, threads) for job in self.jobs]
                try:
                    for number, future in enumerate(as_completed(futures)):
                        future.result()
                        done(number + 1)
                except BrokenProcessPool as error:
                    raise SlipstreamError(
                        "a training's process was ended from outside",
                        expected="processes that live until their drafter is trained",
                        found="one that is gone, often for want of memory",
                        fix="give the command again with fewer --jobs; what is trained is kept",
                    ) from error
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                return [future.result() for future in futures]

    def _bundle(self, job: Job) -> Path:
        return job.folder / "bundle"

    def _measure(self, job: Job, trained: Trained) -> Measured:
        """Export and replay, or read what was measured with the same drafter and frames."""
        key = self._key(trained)
        path = job.folder / MEASURED
        if (found := _kept(path, key, Measured)) is not None:
            return found
        bundle = self._bundle(job)
        export_bundle(
            *job.checkpoints(trained),
            bundle,
            limits=LIMITS,
            name=job.entry.name,
            special=job.drafter.special.names(),
        )
        asked = self.config.evaluation
        evaluation = Evaluation(
            self.windows, asked.temperatures, asked.shapes, asked.block, asked.nodes
        )
        measured = measure(
            bundle,
            evaluation,
            seed=job.seed,
            train_s=trained.seconds,
            parameters=trained.parameters,
        )
        _keep(path, key, measured.model_dump(mode="json"))
        return measured

    def _prove(self, job: Job) -> Proven:
        """`slipstream verify` on the job's bundle; read again while the bundle is the same."""
        import slipstream

        bundle, asked = self._bundle(job), self.config.evaluation
        key = f"{sha256(bundle / 'bundle.json')} {asked.samples}"
        path = job.folder / PROVEN
        if (found := _kept(path, key, Proven)) is not None:
            return found
        planner = slipstream.load(bundle, 1)
        methods = tuple(METHOD[shape] for shape in asked.shapes)
        suite = Suite(
            planner.decoder.graphs,
            planner.decoder.curve,
            cases_of(planner, self.windows[:4]),
            Options(methods, samples=asked.samples, nodes=asked.nodes),
            lambda what: None,
        )
        results: list[Check | Control] = []
        with self.bar(f"proving {job.entry.name}", len(suite.efforts)) as done:
            for number, result in enumerate(suite.run()):
                results += result if isinstance(result, list) else [result]
                done(number + 1)
        proven = _proven(results, asked.samples)
        _keep(path, key, proven.model_dump(mode="json"))
        return proven

    def _key(self, trained: Trained) -> str:
        frames = [(window.drive, window.observation.frame) for window in self.windows]
        asked = self.config.evaluation.model_dump(mode="json", exclude={"verify", "samples"})
        weights = [sha256(trained.folder / "model.safetensors"), self.target_key]
        return json.dumps([weights, asked, frames])

    def _comparison(self, entries: Sequence[Entry]) -> Comparison:
        asked, base = self.config.evaluation, self.jobs[0].drafter
        return Comparison(
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=own_command(),
            machine=this_machine(1),
            budget=Budget(
                target=base.target.parent.name + "/" + base.target.name,
                outputs=base.responses.count,
                steps=base.training.schedule.steps,
                batch=base.training.batch,
                anchors=base.training.anchors,
                seeds=list(self.config.seeds),
            ),
            drives=[drive.name for drive in self.drives],
            frames=len(self.windows),
            block=asked.block,
            nodes=asked.nodes,
            entries=list(entries),
            studies=[
                Study(name=s.name, question=s.question, base=s.base, entries=list(s.entries))
                for s in self.config.studies
            ],
        )


def _proven(found: Sequence[Check | Control], samples: int) -> Proven:
    checks = [each for each in found if isinstance(each, Check)]
    faults = [each for each in found if isinstance(each, Control)]
    return Proven(
        checks=len(checks),
        failed=[f"{each.name}, {each.decoder}" for each in checks if not each.passed],
        faults=len(faults),
        missed=[f"{each.name}, {each.decoder}" for each in faults if not each.caught],
        samples=samples,
    )


def _entry(job: Job, measured: list[Measured], proof: Proven | None) -> Entry:
    config = job.drafter
    kind, layers, objective = _described(config)
    if job.entry.checkpoint is not None:
        objective = f"trained before: {job.entry.checkpoint.name}"
    return Entry(
        name=job.entry.name,
        kind=kind,
        layers=layers,
        objective=objective,
        data=job.entry.data,
        steps=config.training.schedule.steps,
        seeds=measured,
        proof=proof,
    )


def _described(config: DrafterConfig) -> tuple[str, int, str]:
    """Architecture, layers and objective, in words."""
    if isinstance(config, EagleConfig):
        return config.drafter.kind, 1, f"{config.training.objective}, training-time test"
    gated, layers = "", 0
    if isinstance(config, SelfDraftConfig):
        gated = "gated "
    else:
        layers = config.drafter.layers
    rank = config.drafter.markov_rank
    head = f" + {gated}Markov head, rank {rank}" if rank else ""
    return config.drafter.kind + head, layers, config.training.objective.in_words()


def _chosen(drives: Sequence[Drive], frames: int) -> list[Window]:
    selection = Selection.parse(str(frames))
    return [
        window for drive in drives for window in selection.of(windows(drive).windows, drive.place)
    ]


def _parameters(checkpoint: Path) -> int:
    from safetensors import safe_open

    path = checkpoint / "model.safetensors"
    try:
        with safe_open(path, "pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise SlipstreamError(
            f"{path} can't be read",
            expected="the weights of a trained drafter, as the entry's checkpoint names it",
            found=str(error)[:200],
            fix="change the entry's checkpoint to the folder of a trained drafter",
        ) from error
    total = 0
    for shape in shapes:
        count = 1
        for length in shape:
            count *= length
        total += count
    return total


def _kept(path: Path, key: str, model: type[_Model]) -> _Model | None:
    """The result that was kept under this key; None where there is none, or a damaged one."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return model.model_validate(found["result"]) if found["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError):
        return None


def _keep(path: Path, key: str, result: object) -> None:
    write_atomic(path, json.dumps({"key": key, "result": result}))
