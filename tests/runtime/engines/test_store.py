"""The engine store: what is put comes back, and everything else is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle import GraphFile
from runtime.engines.profiles import Profile, text_of
from runtime.engines.prune import prune
from runtime.engines.store import (
    EngineKey,
    EngineStore,
    Sidecar,
    TensorInfo,
    beside,
    default_folder,
    graph_digest,
)
from runtime.errors import EngineError, SlipstreamError

ENGINE = bytes(range(256)) * 16
PROFILES = [Profile(name="decode", dims={"N": (1, 8, 8), "S": (1, 16, 65)})]
KEY = EngineKey(
    graph="target",
    graph_sha256="a" * 64,
    profile=text_of(PROFILES),
    precision="fp16",
    flavour="tensorrt_rtx",
    version="1.7.1.116",
    compute_capability="8.6",
    flags=("optimization-level=3",),
)


def sidecar_of(key: EngineKey, engine: bytes = ENGINE, **changes: Any) -> Sidecar:
    fields: dict[str, Any] = {
        **{name: getattr(key, name) for name in key.__dataclass_fields__},
        "flags": list(key.flags),
        "size": len(engine),
        "sha256": hashlib.sha256(engine).hexdigest(),
        "built_at": "2026-01-01T00:00:00+00:00",
        "builder_seconds": 1.5,
        "peak_host_bytes": 1 << 28,
        "device_bytes": [1 << 20],
        "tensors": [TensorInfo(name="x", mode="input", dtype="float16", shape=["N", "S", 8])],
        "profiles": PROFILES,
        "layers": 1,
        "python": "3.11.0",
        "system": "Linux x86_64",
        "bundle": "tiny",
    }
    return Sidecar(**fields | changes)


@pytest.fixture
def store(tmp_path: Path) -> EngineStore:
    return EngineStore(tmp_path / "engines", bundle="my/bundle")


@pytest.fixture
def path(store: EngineStore) -> Path:
    return store.put(KEY, ENGINE, sidecar_of(KEY), layers='{"layers": []}')


def find(store: EngineStore, **changes: Any) -> tuple[Path, Sidecar]:
    wanted = {
        name: getattr(KEY, name)
        for name in (
            "graph",
            "graph_sha256",
            "precision",
            "flavour",
            "version",
            "compute_capability",
        )
    }
    return store.find(**wanted | changes)


def test_what_is_put_comes_back(store: EngineStore, path: Path) -> None:
    found, sidecar = store.get(KEY)
    assert found == path
    assert found.read_bytes() == ENGINE
    assert sidecar.key == KEY
    assert sidecar.inputs["x"].shape == ["N", "S", 8]
    assert not sidecar.outputs
    assert store.layers(path) == '{"layers": []}'
    assert find(store) == (path, sidecar)
    assert [entry.path for entry in store.entries()] == [path]


def test_every_field_of_a_key_makes_another_file() -> None:
    others = [
        replace(KEY, graph="draft"),
        replace(KEY, graph_sha256="b" * 64),
        replace(KEY, profile="decode:N=1:1:1"),
        replace(KEY, precision="fp32"),
        replace(KEY, flavour="tensorrt"),
        replace(KEY, version="1.7.1.117"),
        replace(KEY, compute_capability="8.9"),
        replace(KEY, flags=()),
        replace(KEY, timing_cache_sha256="c" * 64),
    ]
    assert len({key.filename for key in [KEY, *others]}) == len(others) + 1
    assert replace(KEY).digest == KEY.digest
    assert KEY.filename.startswith("target-fp16-sm86-tensorrt-rtx-1.7.1.116-")


@pytest.mark.parametrize(
    ("changes", "what", "expected", "found"),
    [
        ({"graph_sha256": "b" * 64}, "is of another graph", "b" * 64, "a" * 64),
        ({"flavour": "tensorrt"}, "by the other TensorRT", "tensorrt", "tensorrt_rtx"),
        ({"version": "10.3.0.30"}, "another version", "10.3.0.30", "1.7.1.116"),
        ({"compute_capability": "8.7"}, "for another GPU", "8.7", "8.6"),
        ({"precision": "bf16"}, "has another precision", "bf16", "fp16"),
    ],
)
@pytest.mark.usefixtures("path")
def test_an_engine_that_does_not_fit_is_refused_with_what_differs(
    store: EngineStore, changes: dict[str, Any], what: str, expected: str, found: str
) -> None:
    for ask in (
        lambda: find(store, **changes),
        lambda: store.get(replace(KEY, **changes)),
    ):
        with pytest.raises(EngineError, match=what) as error:
            ask()
        assert expected in error.value.expected
        assert found in error.value.found
        precision = changes.get("precision", "fp16")
        sm = "sm87" if "compute_capability" in changes else "sm86"
        flavour = changes.get("flavour", "tensorrt_rtx").replace("_", "-")
        assert error.value.fix == (
            f"slipstream compile my/bundle --target {sm} --precision {precision} "
            f"--flavour {flavour} --graph target --engines {store.folder}"
        )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"profile": "decode:N=1:4:4"}, "has other profiles"),
        ({"flags": ("tf32",)}, "other flags"),
        ({"timing_cache_sha256": "d" * 64}, "another timing cache"),
    ],
)
@pytest.mark.usefixtures("path")
def test_an_exact_key_also_asks_for_profiles_flags_and_timing(
    store: EngineStore, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(EngineError, match=what):
        store.get(replace(KEY, **changes))
    find(store)  # what a device needs does not


@pytest.mark.usefixtures("path")
def test_the_closest_engine_is_the_one_told_of(store: EngineStore) -> None:
    far = replace(KEY, graph_sha256="e" * 64, version="9", compute_capability="7.5")
    store.put(far, ENGINE, sidecar_of(far))
    with pytest.raises(EngineError, match="for another GPU"):
        find(store, compute_capability="12.0")


def test_a_missing_engine_is_named_with_the_command_that_builds_it(store: EngineStore) -> None:
    with pytest.raises(EngineError, match="has no engine for the graph target") as error:
        find(store)
    assert error.value.expected == "fp16 for sm86 by tensorrt_rtx 1.7.1.116"
    assert error.value.exit_code == 2
    assert "slipstream compile my/bundle --target sm86" in error.value.fix


def truncate(path: Path) -> None:
    path.write_bytes(ENGINE[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path) -> None:
    path.write_bytes(ENGINE + b"x")


def flip(path: Path) -> None:
    path.write_bytes(ENGINE[:-1] + b"x")


def drop_sidecar(path: Path) -> None:
    beside(path, ".json").unlink()


def cut_sidecar(path: Path) -> None:
    file = beside(path, ".json")
    file.write_text(file.read_text()[:100])


def garble_sidecar(path: Path) -> None:
    beside(path, ".json").write_bytes(b"\xff\xfe{")


def unknown_field(path: Path) -> None:
    file = beside(path, ".json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"more": 1}))


def foreign_sidecar(path: Path) -> None:
    other = sidecar_of(replace(KEY, compute_capability="8.9"))
    beside(path, ".json").write_text(other.model_dump_json())


def drop_engine(path: Path) -> None:
    path.unlink()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (truncate, "is truncated"),
    (empty, "is empty"),
    (lengthen, "was altered"),
    (flip, "was altered"),
    (drop_sidecar, "has no sidecar"),
    (cut_sidecar, "has a sidecar that can't be read"),
    (garble_sidecar, "has a sidecar that can't be read"),
    (unknown_field, "has a sidecar that can't be read"),
    (foreign_sidecar, "has another engine's sidecar"),
    (drop_engine, "is missing"),
]


@pytest.mark.parametrize(
    ("damage", "what"), DAMAGES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_damaged_engine_is_refused(
    store: EngineStore, path: Path, damage: Callable[[Path], None], what: str
) -> None:
    damage(path)
    with pytest.raises(EngineError, match=what) as error:
        store.get(KEY)
    assert str(path) in error.value.what
    assert "--target sm86 --precision fp16" in error.value.fix


def test_a_lone_engine_is_built_again_by_what_is_known_of_it(
    store: EngineStore, path: Path, tmp_path: Path
) -> None:
    """Nobody says which engine is wanted: the sidecar does, and without one the file's name."""
    bundle = tmp_path / "my bundle"
    bundle.mkdir()
    alone = EngineStore(store.folder)
    known = sidecar_of(KEY, bundle_folder=str(bundle), options=["--tf32"])
    alone.put(KEY, ENGINE, known)
    rest = "--target sm86 --precision fp16 --flavour tensorrt-rtx --graph target"
    truncate(path)
    with pytest.raises(EngineError) as told:
        alone.check(path)
    assert told.value.fix == (
        f"slipstream compile '{bundle}' {rest} --tf32 --engines {store.folder}"
    )
    drop_sidecar(path)
    with pytest.raises(EngineError) as told:
        alone.check(path)
    assert told.value.fix == f"slipstream compile BUNDLE {rest} --engines {store.folder}"
    odd = path.with_name("odd.engine")
    path.rename(odd)
    with pytest.raises(EngineError) as told:
        alone.check(odd)
    assert told.value.fix.startswith("slipstream compile BUNDLE --target TARGET")


def test_the_users_own_folder_needs_no_option(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(path.parent))
    with pytest.raises(EngineError) as told:
        find(EngineStore(bundle="b"))
    assert told.value.fix == (
        "slipstream compile b --target sm86 --precision fp16 --flavour tensorrt-rtx --graph target"
    )


def test_a_disk_that_is_full_leaves_nothing(store: EngineStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(SlipstreamError, match="can't write") as told:
            store.put(KEY, ENGINE, sidecar_of(KEY))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "--engines" in told.value.fix
    assert not store.folder.exists()  # it was made for this engine


def test_kernels_and_dead_locks_go_with_their_engine(store: EngineStore, path: Path) -> None:
    beside(path, ".kernels").write_bytes(b"kernels")
    orphan = store.folder / "gone.kernels"
    orphan.write_bytes(b"kernels")
    dead = store.folder / ".dead.lock"
    dead.write_bytes(b"")
    with store.building(KEY, lambda: None):
        assert [item.path for item in prune(store)] == [orphan]
        assert len([each for each in store.folder.iterdir() if each.name.endswith(".lock")]) == 1
    assert not dead.exists()
    prune(store, lambda sidecar: "all")
    assert list(store.folder.iterdir()) == []


def test_kernels_of_an_older_build_go_with_it(store: EngineStore, path: Path) -> None:
    beside(path, ".kernels").write_bytes(b"kernels")
    store.put(KEY, ENGINE, sidecar_of(KEY))
    assert not beside(path, ".kernels").exists()


@pytest.mark.parametrize(
    "damage", [truncate, empty, lengthen, drop_sidecar, cut_sidecar, foreign_sidecar, drop_engine]
)
def test_prune_takes_out_what_is_damaged_and_nothing_else(
    store: EngineStore, path: Path, damage: Callable[[Path], None]
) -> None:
    sound = replace(KEY, graph="draft")
    kept = store.put(sound, ENGINE, sidecar_of(sound))
    damage(path)
    told = prune(store, dry_run=True)
    assert beside(kept, ".json").is_file()
    assert told == prune(store)
    assert told
    assert sorted(file.name for file in store.folder.iterdir()) == sorted(
        [kept.name, beside(kept, ".json").name]
    )
    store.get(sound)


def test_prune_takes_out_broken_writes_and_what_is_not_wanted(
    store: EngineStore, path: Path
) -> None:
    left = store.folder / f".{KEY.filename}.00000000-1.abc.tmp"  # by a machine that is gone
    at_work = store.folder / f".{KEY.filename}.00000000-2.abc.tmp"
    left.write_bytes(b"half")
    at_work.write_bytes(b"half")
    os.utime(left, (0, 0))
    removed = prune(store, lambda sidecar: "old" if sidecar.version == KEY.version else None)
    assert {item.reason for item in removed} == {"old", "a write that was broken off"}
    assert list(store.folder.iterdir()) == [at_work]
    assert not path.exists()


def test_nothing_empty_and_nothing_foreign_is_stored(store: EngineStore) -> None:
    with pytest.raises(EngineError, match="is empty"):
        store.put(KEY, b"", sidecar_of(KEY))
    with pytest.raises(EngineError, match="does not fit its sidecar"):
        store.put(replace(KEY, graph="draft"), ENGINE, sidecar_of(KEY))
    with pytest.raises(EngineError, match="does not fit its sidecar"):
        store.put(KEY, ENGINE[:-1], sidecar_of(KEY))
    assert not store.folder.exists()


def test_a_newer_build_of_the_same_key_takes_the_place_of_the_older(
    store: EngineStore, path: Path
) -> None:
    newer = ENGINE[::-1]
    assert store.put(KEY, newer, sidecar_of(KEY, newer)) == path
    assert store.get(KEY)[0].read_bytes() == newer
    assert store.layers(path) is None  # the older build's


def test_the_newest_of_several_that_fit_is_found(store: EngineStore, path: Path) -> None:
    newer = replace(KEY, flags=("tf32",))
    late = store.put(newer, ENGINE, sidecar_of(newer, built_at="2026-02-01T00:00:00+00:00"))
    assert find(store)[0] == late
    assert [entry.path for entry in store.entries()] == [late, path]


def test_the_default_folder_follows_the_user_s_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert default_folder() == Path("/some/cache/slipstream/engines")
    assert EngineStore().folder == default_folder()


def test_a_user_without_a_home_names_a_folder_of_engines(tmp_path: Path, homeless: None) -> None:
    with pytest.raises(SlipstreamError, match="no cache folder") as caught:
        EngineStore()
    assert "XDG_CACHE_HOME" in caught.value.fix
    with pytest.raises(EngineError, match="has no engine"):
        find(EngineStore(tmp_path))


def test_a_graph_with_external_weights_changes_with_them() -> None:
    def graph(**external: str) -> str:
        return graph_digest(GraphFile(file="g.onnx", sha256="a" * 64, external=external))

    assert graph() == "a" * 64
    assert len({graph(), graph(w="b" * 64), graph(w="c" * 64)}) == 3
