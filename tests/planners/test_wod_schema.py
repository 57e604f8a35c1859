"""The language class can say what Fast-dDrive says on WOD-E2E."""

from __future__ import annotations

from planners.language import Choice, Language, Number, Section, Text
from planners.tokens import Tokenizer
from runtime.scaffold import VALUE


def wod_e2e_language() -> Language:
    """The output of Fast-dDrive for WOD-E2E (arXiv 2605.23163): 280 value tokens."""
    objects = ["car", "truck", "bus", "bicycle", "pedestrian", "animal", "cone", "sign"]
    objects += ["light", "barrier", "gap", "lane"]
    yes_no = Choice(options=("y", "n"), width=1)  # the tiny tokenizer splits "yes"
    metres = Number(digits=3, decimals=2, dot_is_value=True)
    ahead = Choice(options=("keep speed", "slow down", "stop", "speed up"), width=3)
    aside = Choice(options=("straight", "left", "right", "go left"), width=3)
    return Language(
        name="wod-e2e",
        sections=(
            Section(
                name="critical_objects",
                template='{"critical_objects": {'
                + ", ".join(f'"{name}": "<{name}>"' for name in objects)
                + "}, ",
                slots=dict.fromkeys(objects, yes_no),
            ),
            Section(
                name="explanation",
                template='"explanation": "<text>", ',
                slots={"text": Text(width=192)},
            ),
            Section(
                name="future_meta_behavior",
                template='"future_meta_behavior": '
                '{"longitudinal": "<longitudinal>", "lateral": "<lateral>"}, ',
                slots={"longitudinal": ahead, "lateral": aside},
            ),
            Section(
                name="trajectory",
                template='"trajectory": ['
                + ", ".join(f"[<x{k}>, <y{k}>]" for k in range(1, 6))
                + "]}",
                slots={f"{axis}{k}": metres for k in range(1, 6) for axis in "xy"},
            ),
        ),
    )


def test_the_schema_of_fast_ddrive(tokenizer: Tokenizer) -> None:
    language = wod_e2e_language()
    scaffold = language.compile(tokenizer)
    count = {s.name: int(scaffold.is_value[s.start : s.stop].sum()) for s in scaffold.sections}
    assert count == {
        "critical_objects": 12,
        "explanation": 192,
        "future_meta_behavior": 6,
        "trajectory": 70,
    }
    said: dict[str, dict[str, str | float]] = {
        "critical_objects": {
            name: "y" if name == "bus" else "n" for name in language.sections[0].slots
        },
        "explanation": {"text": "The bus ahead is slowing; follow it at a distance."},
        "future_meta_behavior": {"longitudinal": "slow down", "lateral": "go left"},
        "trajectory": {f"{a}{k}": -1.25 * k for k in range(1, 6) for a in "xy"},
    }
    tokens = language.encode(said, tokenizer)
    assert language.parse(tokens, tokenizer) == said
    dot = next(s for s in language.compiled(tokenizer).slots if s.name == "x1").start + 4
    assert scaffold.tokens[dot] == VALUE
    assert tokens[dot] == tokenizer.single(".")
