"""`docker/install.sh cpu` in an empty environment, then the product in it; and the images' files.

Images themselves are built where Docker and NVIDIA's registry are at hand; here everything that
they run is run: the installer, the entrypoint, the health check.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream import shipped_bundle

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("Dockerfile.*"))
# nothing of this environment reaches the new one but the way to the package index
PASSED = re.compile(r"PIP_(?!REQUIRE)\w+|SSL_CERT_FILE|\w+_proxy|LANG", re.IGNORECASE)


def shell(
    *arguments: str | Path, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    return subprocess.run(
        [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, "PATH": path, "HOME": str(cwd), "COLUMNS": "200", **environment},
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs that `docker/install.sh cpu` made."""
    home = tmp_path_factory.mktemp("install")
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    done = shell(
        *("bash", DOCKER / "install.sh", "cpu", home / "env"),
        cwd=home,
        PYTHON=str(python),
        PIP_COMPILE="0",  # most of what is installed is never imported here
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"installed: {home / 'env' / 'bin' / 'slipstream'}\n")
    return home / "env" / "bin"


@pytest.mark.timeout(900)  # it downloads some 200 MB where pip's cache is empty
def test_the_new_environment_plans_a_drive(installed: Path, tmp_path: Path) -> None:
    done = shell(
        *(installed / "slipstream", "run", shipped_bundle(), "--drive", "synthetic"),
        *("--decoder", "ar,dflash", "--frames", "1", "--threads", "1", "-o", "report"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000
    assert (tmp_path / "report" / "report.json").is_file()


@pytest.mark.timeout(900)
def test_it_stands_on_its_own_and_without_torch(installed: Path, tmp_path: Path) -> None:
    code = (
        "import slipstream, importlib.util as u; print(slipstream.shipped_bundle()); "
        "print(u.find_spec('torch'), u.find_spec('pytest'))"
    )
    done = shell(installed / "python", "-c", code, cwd=tmp_path)
    where, absent = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert (Path(where) / "bundle.json").is_file()
    assert absent == "None None"


@pytest.mark.timeout(900)
def test_the_entrypoint_builds_nothing_on_a_cpu_and_passes_arguments_on(
    installed: Path, tmp_path: Path
) -> None:
    path = f"{installed}:/usr/bin:/bin"
    bundle = str(shipped_bundle())
    done = shell(
        "bash",
        DOCKER / "entrypoint.sh",
        *("doctor", "--quiet", "--bundle", bundle),
        cwd=tmp_path,
        PATH=path,
        SLIPSTREAM_BUNDLE=bundle,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "cache" / "slipstream").exists()


@pytest.mark.timeout(900)
def test_an_unhealthy_bundle_stops_a_device_before_it_builds(
    installed: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(shipped_bundle(), bundle)
    (bundle / "head.onnx").write_bytes(b"")
    done = shell(
        "bash",
        DOCKER / "entrypoint.sh",
        "version",
        cwd=tmp_path,
        PATH=f"{installed}:/usr/bin:/bin",
        SLIPSTREAM_TARGET="orin",
        SLIPSTREAM_BUNDLE=str(bundle),
    )
    assert done.returncode == 1
    assert "head.onnx was altered or cut short" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "usage: docker/install.sh"),
        (("gpu", "new"), "unknown target gpu; expected cpu, jetpack6 or jetpack7"),
        (("cpu", "there"), "there exists; name a new folder"),
    ],
)
def test_bad_arguments_are_one_message_and_change_nothing(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    done = shell("bash", DOCKER / "install.sh", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"install.sh: {says}")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_failed_installation_leaves_nothing_behind(tmp_path: Path) -> None:
    done = shell(
        *("bash", DOCKER / "install.sh", "cpu", "env"),
        cwd=tmp_path,
        PYTHON=sys.executable,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(tmp_path),
    )
    assert done.returncode != 0
    assert "No matching distribution" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_every_image_is_locked_down_and_holds_no_engine(path: Path) -> None:
    text = path.read_text()
    target = path.suffix[1:]
    assert re.search(r"^FROM [\w./-]+:[\w.-]*\d[\w.-]*$", text, re.MULTILINE), "a pinned base"
    assert f"/src/docker/install.sh {target} /opt/slipstream" in text
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert 'CMD ["slipstream", "doctor", "--quiet", "--bundle", "/bundle"]' in text
    assert "compile" not in text


def test_compose_mounts_the_bundle_read_only_and_gives_jetsons_their_runtime() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    services = re.split(r"^  (?=\w+:$)", text.split("\nservices:\n")[1], flags=re.MULTILINE)[1:]
    named = {service.split(":")[0]: service for service in services if "build:" in service}
    assert sorted(named) == sorted(path.suffix[1:] for path in DOCKERFILES)
    for name, service in named.items():
        assert f"<<: *{'jetson' if name.startswith('jetpack') else 'common'}" in service
        assert f"dockerfile: docker/Dockerfile.{name}" in service
    common, jetson = (
        text.split(f"\nx-{part}:")[1].split("\n\n")[0] for part in ("common", "jetson")
    )
    assert "runtime: nvidia" in jetson
    for block in (common, jetson):
        assert ":/bundle:ro" in block
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"):
        assert line in common


@pytest.mark.parametrize(
    ("tool", "files"),
    [("hadolint", DOCKERFILES), ("shellcheck", sorted(DOCKER.glob("*.sh")))],
)
def test_linters_are_clean(tool: str, files: list[Path]) -> None:
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{tool} is not installed: pip install {tool}-bin or {tool}-py")
    done = subprocess.run([found, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
