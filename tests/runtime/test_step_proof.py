"""`slipstream verify` on a stepwise drafter: every rule passes, every planted fault is caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runtime.proof.cases import Case
from runtime.proof.results import Check, Control
from runtime.proof.suite import Options, Suite
from runtime.settings import RULES
from tests.runtime.stepwise import step_graphs
from tests.runtime.tabular import scaffold_of


def test_the_whole_proof(tmp_path: Path) -> None:
    graphs = step_graphs(tmp_path, vocab=6, known=[0, 1, 2, 3, 5])
    scaffold = scaffold_of("10?2?|3??1??*2?", vocab=6)
    cases = [
        Case(frame, np.random.default_rng(frame).integers(0, 6, 5), scaffold, "tail")
        for frame in range(4)
    ]
    checks: list[Check] = []
    controls: list[Control] = []
    for found in Suite(graphs, None, cases, Options(samples=1200)).run():
        if isinstance(found, Control):
            controls.append(found)
        else:
            checks += found
    assert [check for check in checks if not check.passed] == []
    decoders = {check.decoder for check in checks}
    methods = Options().methods
    assert decoders == {*methods, *(f"{m}:{rule}" for m in methods for rule in RULES[m])}
    assert [control for control in controls if not control.caught] == []
    assert len(controls) == 12
