"""The files of a built engine: their names, whether they are whole, and taking them away."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from runtime.engines.key import Sidecar
from runtime.errors import SlipstreamError
from runtime.files import unwritable
from runtime.user_cache import user_cache

ENGINE, SIDECAR, LAYERS, KERNELS = ".engine", ".json", ".layers.json", ".kernels"
ENDINGS = (SIDECAR, LAYERS, KERNELS, ENGINE)  # the sidecar first: no engine is used without one
OPTION = "--engines"  # of the commands that write here


def beside(path: Path, ending: str) -> Path:
    """The file of another kind that belongs to an engine file."""
    return path.with_name(path.name.removesuffix(ENGINE) + ending)


def engine_of(path: Path) -> Path:
    """The engine file that a file of any kind belongs to."""
    for ending in (LAYERS, SIDECAR, KERNELS):
        if path.name.endswith(ending):
            return path.with_name(path.name.removesuffix(ending) + ENGINE)
    return path


def default_folder() -> Path:
    """In the user's cache: a bundle may lie on a read-only mount, and engines are remade.

    Raises:
        SlipstreamError: there is no such cache.
    """
    return user_cache("engines")


def is_default(folder: Path) -> bool:
    """Whether a folder of engines need not be named."""
    with suppress(SlipstreamError):
        return folder == default_folder()
    return False


def damage(path: Path, sidecar: Sidecar) -> tuple[str, str, str] | None:
    """What is wrong with an engine file by its size alone: what, expected, found."""
    size = path.stat().st_size if path.is_file() else None
    wanted = f"{sidecar.size} bytes"
    if size is None:
        return "is missing", wanted, "no such file"
    if size == 0:
        return "is empty", wanted, "0 bytes"
    if size < sidecar.size:
        return "is truncated", wanted, f"{size} bytes"
    if size > sidecar.size:
        return "was altered", wanted, f"{size} bytes"
    return None


def size_of(path: Path) -> int:
    """Bytes of a file, behind a link too; 0 of what is no file."""
    return path.stat().st_size if path.is_file() else 0


def is_filled(path: Path) -> bool:
    """Whether a path is a folder that has something in it."""
    return path.is_dir() and not path.is_symlink() and any(path.iterdir())


def delete(path: Path) -> None:
    """Remove a file, a link or an empty folder, if there is one.

    Raises:
        SlipstreamError: it can't be removed.
    """
    remove = Path.rmdir if path.is_dir() and not path.is_symlink() else Path.unlink
    try:
        with suppress(FileNotFoundError, NotADirectoryError):  # told when it is written to
            remove(path)
    except OSError as error:
        raise unwritable(path, error, OPTION) from error
