"""Names with brackets and control characters are shown as they are, by every command."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from drives.open import open_drive
from drives.readers.plain import write_plain
from planners.fields import ParseError
from runtime.errors import SlipstreamError
from runtime.proof.results import Proof
from runtime.visible import visible
from slipstream.commands.proof_table import show_proof
from slipstream.commands.screen import Screen, banner, detailed, titled_table, width_of
from tests.slipstream.command import ROOT, command

BUNDLE = ROOT / "planners/weights/tiny/bundle"
ODD = "yard[/x][bold]$\\x$"  # wrong as markup, and as a formula of the sweep's picture
FAST = ("--frames", "2", "--threads", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drive `odd.csv` and a bundle `odd-bundle` whose files give them odd names."""
    place = tmp_path_factory.mktemp("odd")
    write_plain(open_drive("synthetic"), place / "odd.csv")
    shutil.copytree(BUNDLE, place / "odd-bundle")
    _rename(place / "odd.json", f"\x1b[31m{ODD}")
    _rename(place / "odd-bundle/bundle.json", ODD)
    return place


def _rename(file: Path, name: str) -> None:
    held = json.loads(file.read_text())
    file.write_text(json.dumps({**held, "name": name}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("drives", "info", "odd.csv"), ODD),
        (
            ("run", "odd-bundle", "--drive", "odd.csv", "-o", "o[/b]", "--decoder", "ar", *FAST),
            "report: o[/b]/index.html",
        ),
        (
            ("run", "odd-bundle", "--drive", "odd.csv", "-o", "report", "--decoder", "ar", *FAST),
            f"of [31m{ODD}",
        ),
        (
            ("sweep", "odd-bundle", "--drive", "odd.csv", "-o", "s[/b]", "--rollouts", "1", *FAST),
            "s[/b]/sweep.json",
        ),
        (("estimate", "odd-bundle", "--device", "orin-nx"), ODD),
        (("engines", "list", "--engines", "e[/x]"), "no engines in e[/x]"),
        (("engines", "prune", "--engines", "e[/x]"), "in e[/x]"),
        (("compile", "odd-bundle", "--target", "cpu"), "nothing to build"),
    ],
)
def test_odd_names_are_shown_as_they_are(
    arguments: tuple[str, ...], says: str, place: Path
) -> None:
    done = command(*arguments, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_errors_show_control_characters_and_never_obey_them(tmp_path: Path) -> None:
    done = command("drives", "info", "no\x1b[31m[/x]\nthing", cwd=tmp_path)
    assert done.returncode == 2
    assert "no\\x1b[31m[/x]\\nthing is not a drive\n  expected: " in done.stderr


@pytest.mark.parametrize("part", ["expected", "found", "fix"])
def test_each_part_of_an_error_is_one_line(part: str) -> None:
    odd = "qw\nen\r\t\x1b[2J\x85\u2028é"
    error = SlipstreamError(f"the file {odd}", **{part: odd})
    assert str(error).splitlines()[0] == r"the file qw\nen\r\t\x1b[2J\x85\u2028é"
    lines = 3 if part == "expected" else 2  # what is expected has what was found beside it
    assert len(str(error).splitlines()) == lines
    for each in (error, ParseError("slot", "the place", expected=odd, found=odd)):
        back = pickle.loads(pickle.dumps(each))  # from another process
        assert (type(back), str(back), back.__dict__) == (type(each), str(each), each.__dict__)
    assert getattr(error, part) == r"qw\nen\r\t\x1b[2J\x85\u2028é"


def test_tables_titles_and_styled_texts_are_cleaned() -> None:
    screen, out = Screen(), io.StringIO()
    screen.file = out
    table = Table("head[/h]", title="title[/t]")
    table.add_row("cell[/c]\x1b[2J")
    table.add_row(Text("text[/d]\x07\x9b"))
    screen.print(banner("LABEL[/l]", "means\r[/m]"), table)
    for part in ("head[/h]", "title[/t]", "cell[/c][2J", "text[/d]", " LABEL[/l]  means[/m]"):
        assert part in out.getvalue()
    assert visible(out.getvalue()) == out.getvalue()


def test_the_sentence_of_a_proof_names_the_drive_as_it_is() -> None:
    proof = Proof(
        created="", command="", versions={}, bundle="", bundle_key="", drive=f"\x1b{ODD}",
        engine_threads=1, seed=0, frames=2, temperature=1.0, samples=64, alpha=0.01,
        threshold=0.001, probes=[], checks=[], controls=[], seconds=1.0,
    )  # fmt: skip
    screen, out = Screen(width=400), io.StringIO()
    screen.file = out
    show_proof(proof, screen)
    assert f"2 frames of {ODD}, temperature" in out.getvalue()


def test_visible_keeps_lines_tabs_and_all_letters() -> None:
    assert visible("é\tß\n中\x1b\x00\x7f\x85") == "é\tß\n中"


def test_every_command_prints_on_a_screen() -> None:
    bare = re.compile(r"(?<!class Screen\()\bConsole\((?!\):)|from_markup")
    files = sorted((ROOT / "slipstream").rglob("*.py"))
    assert len(files) > 20
    assert [str(file) for file in files if bare.search(file.read_text())] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nowhere", "--drive", "synthetic"),
        ("sweep", "nowhere", "--drive", "synthetic"),
        ("verify", "nowhere", "--drive", "synthetic"),
        ("export", "nowhere"),
    ],
)
@pytest.mark.parametrize("out", ["/proc/x", "/proc/x/y", "file/x"])
def test_a_place_that_takes_no_files_is_refused_before_loading(
    arguments: tuple[str, ...], out: str, tmp_path: Path
) -> None:
    """`nowhere` is no bundle: were anything loaded first, that would be the message."""
    (tmp_path / "file").write_text("mine")
    done = command(*arguments, "-o", out, cwd=tmp_path)
    assert done.returncode == 2
    assert "can't write" in done.stderr
    assert "name another output folder with -o" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("name", "held"), [("sweep", "sweep.json"), ("verify", "verify.json")])
def test_a_folder_in_the_place_of_a_result_is_refused_before_loading(
    name: str, held: str, tmp_path: Path
) -> None:
    (tmp_path / "out" / held).mkdir(parents=True)
    done = command(name, "nowhere", "--drive", "synthetic", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert held in done.stderr
    assert "can't write" in done.stderr


@pytest.mark.parametrize("width", [24, 40, 60, 80])
def test_a_narrow_terminal_cuts_no_figure_off(width: int) -> None:
    def shown(screen: Screen) -> list[str]:
        table = titled_table("")
        for title in ("decoder", "p50 ms", "speed-up"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_row("scaffold-spec:coupled", "1,234.56", "2.59 \N{HORIZONTAL ELLIPSIS} 3.19")
        screen.file = io.StringIO()
        screen.print(table)
        lines = screen.file.getvalue().splitlines()
        assert max(map(len, lines)) <= screen.width
        return sorted(c for c in "".join(lines) if c not in " \N{BOX DRAWINGS LIGHT HORIZONTAL}")

    assert shown(Screen(width=width)) == shown(Screen(width=400))


def test_details_are_shown_where_they_fit() -> None:
    def make(everything: bool) -> Table:
        table = titled_table("")
        for title in ("plan", *(["a detail"] if everything else ())):
            table.add_column(title, no_wrap=True)
        return table

    enough = width_of(make(True), Screen())
    shown = [detailed(make, Screen(width=width)) for width in (10, enough - 1, enough)]
    assert [len(table.columns) for table in shown] == [1, 1, 2]
