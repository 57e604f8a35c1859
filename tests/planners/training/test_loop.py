"""An interrupted run that goes on equals one that was never interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from planners.training.loop import train
from planners.training.schedule import Schedule
from planners.training.watch import Watch
from runtime.errors import SlipstreamError

SCHEDULE = Schedule(steps=7, peak=0.05, warmup=0.2, average=0.8)


class Tied(nn.Module):
    """Two layers and a weight used twice, as embeddings are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.tanh(self.first(x)))
        return out


def run(
    folder: Path,
    until: int | None = None,
    schedule: Schedule = SCHEDULE,
    save_every: int | None = None,
    watch: Watch | None = None,
) -> Tied:
    module = Tied()

    def loss_of_step(step: int) -> tuple[Tensor, dict[str, float]]:
        x = torch.randn(8, 4)  # from the step's own seed
        loss = (module(x) - x.flip(-1)).square().mean()
        return loss, {"loss": loss.item()}

    train(
        module,
        loss_of_step,
        schedule,
        folder,
        seed=3,
        settings=asdict(schedule),
        every=3,
        save_every=save_every,
        until=until,
        bf16=False,
        watch=watch,
    )
    return module


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    part = run(tmp_path / "part", until=4)
    assert not same(whole, part)
    resumed = run(tmp_path / "part")
    assert same(whole, resumed)


def test_the_log_has_means_of_the_steps_between(tmp_path: Path) -> None:
    run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 7]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        "state.json",
        "state.safetensors",
    ]


def test_the_result_is_the_average(tmp_path: Path) -> None:
    sharp = Schedule(steps=7, peak=0.05, warmup=0.2, average=0.0)
    assert not same(run(tmp_path / "a"), run(tmp_path / "b", schedule=sharp))


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    with pytest.raises(SlipstreamError, match="other settings"):
        run(tmp_path, schedule=Schedule(steps=9, peak=0.05))


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    (tmp_path / "state" / "state.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(SlipstreamError, match="can't be continued"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"step": 3', '"step": -3'), ('"sums"', '"some"'), ('"seconds"', '"s"'), ("{", "[" * 9999)],
)
def test_an_edited_state_is_named(tmp_path: Path, old: str, new: str) -> None:
    run(tmp_path, until=3)
    path = tmp_path / "state" / "state.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SlipstreamError, match=r"can't be continued|is damaged"):
        run(tmp_path)


@pytest.mark.parametrize("part", ["average", "exp_avg", "exp_avg_sq"])
def test_a_tensor_of_the_state_that_is_gone_or_cut_is_named(tmp_path: Path, part: str) -> None:
    run(tmp_path, until=3)
    path = tmp_path / "state" / "state.safetensors"
    tensors, name = load_file(path), f"{part}.first.bias"
    for changed in ({k: v for k, v in tensors.items() if k != name}, {name: torch.ones(1)}):
        save_file({**(tensors if name in changed else {}), **changed}, path)
        with pytest.raises(SlipstreamError, match=r"the state of another network[^~]*first.bias"):
            run(tmp_path)


def test_a_log_that_is_no_text_is_written_anew(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    (tmp_path / "log.jsonl").write_bytes(b"\xff\xfe\n" + b"[" * 100_000 + b"\n")
    run(tmp_path)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6, 7]


def test_a_run_that_diverges_ends_before_its_state_does(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="diverged") as caught:
        run(tmp_path, schedule=Schedule(steps=7, peak=1e30), save_every=1)
    assert "schedule.peak" in caught.value.fix
    state = load_file(tmp_path / "state" / "state.safetensors")
    assert all(value.isfinite().all() for value in state.values())


def test_what_the_log_has_ahead_of_the_state_is_written_anew(tmp_path: Path) -> None:
    """A kill between the line and the state, and one in the middle of a line."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(whole)
    run(part, until=3)
    with (part / "log.jsonl").open("a") as file:
        file.write('{"step": 6, "loss": 9.0}\n{"step": 7, "lo')
    run(part)
    one, other = (
        [{k: v for k, v in json.loads(x).items() if k != "seconds"} for x in log.splitlines()]
        for log in ((folder / "log.jsonl").read_text() for folder in (whole, part))
    )
    assert one == other


def test_the_state_of_another_network_is_named(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    wide = nn.Linear(5, 5)
    with pytest.raises(SlipstreamError, match="the state of another network"):
        train(
            wide,
            lambda step: (wide(torch.ones(5)).sum(), {}),
            SCHEDULE,
            tmp_path,
            seed=3,
            settings=asdict(SCHEDULE),
        )


def test_states_between_the_lines(tmp_path: Path) -> None:
    """Saving more often changes neither the weights nor the log."""

    def lines(folder: Path) -> list[float]:
        return [json.loads(x)["loss"] for x in (folder / "log.jsonl").read_text().splitlines()]

    seen: list[int] = []

    class Seen:
        def begin(self, step: int, steps: int) -> None:
            assert steps == 7
            seen.append(-step)

        def step(self, step: int, figures: Mapping[str, float]) -> None:
            seen.append(step)
            if step == 5 and seen[0] == 0:
                raise KeyboardInterrupt

        def line(self, step: int, figures: Mapping[str, float]) -> None:
            assert {"loss", "gradient", "seconds"} <= figures.keys()

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", save_every=2, watch=Seen())
    assert json.loads((tmp_path / "part/state/state.json").read_text())["step"] == 4
    seen.clear()
    assert same(run(tmp_path / "part", save_every=2, watch=Seen()), whole)
    assert seen == [-4, 5, 6, 7]
    assert lines(tmp_path / "part") == lines(tmp_path / "whole")
