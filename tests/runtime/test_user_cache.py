"""Where what can be made again is kept, and who has no such place."""

from __future__ import annotations

from pathlib import Path

import pytest

from drives.fetch import cache_folder
from runtime.costs import cache_file
from runtime.engines.store import default_folder
from runtime.errors import SlipstreamError
from runtime.user_cache import user_cache


@pytest.mark.parametrize(
    ("xdg", "home", "place"),
    [
        ("/some/cache", "/home/me", "/some/cache"),
        ("", "/home/me", "/home/me/.cache"),
        ("relative", "/home/me", "/home/me/.cache"),
        ("./here", "/home/me", "/home/me/.cache"),
    ],
)
def test_one_folder_for_all(
    xdg: str, home: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", home)
    ours = Path(place) / "slipstream"
    assert user_cache("part") == ours / "part"
    assert default_folder() == ours / "engines"
    assert cache_folder() == ours / "drives"
    assert cache_file("key", 1).parent == ours / "costs"


def test_without_a_home_there_is_none(homeless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (None, "relative", "~other"):
        if home is not None:
            monkeypatch.setenv("HOME", home)
        with pytest.raises(SlipstreamError, match="no cache folder") as caught:
            user_cache("part")
        assert "XDG_CACHE_HOME" in caught.value.fix
