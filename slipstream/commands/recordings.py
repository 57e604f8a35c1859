"""Files of plans beside a report: a Rerun recording (--rerun), and MCAP for Foxglove (--mcap)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.errors import SlipstreamError

if TYPE_CHECKING:
    from drives.drive import Drive
    from drives.replay import Replay

SUFFIXES = (".rrd", ".mcap")


@dataclass(frozen=True)
class Recordings:
    """Where to write which; None for not at all."""

    rerun: Path | None = None
    mcap: Path | None = None

    @classmethod
    def of(cls, path: Path) -> Recordings:
        """The one file at a path, whose suffix says of which kind it is."""
        return cls(rerun=path) if path.suffix == SUFFIXES[0] else cls(mcap=path)

    def files(self) -> list[Path]:
        """What is asked for."""
        return [path for path in (self.rerun, self.mcap) if path]

    def check(self) -> None:
        """Insist, before the work, that they can be written.

        Raises:
            SlipstreamError: a library is missing, another suffix, or a place can't be written to.
        """
        self.check_names()
        if self.rerun:
            from drives.rerun_file import check_rerun

            check_rerun(self.rerun)
        if self.mcap:
            from drives.mcap_file import check_mcap

            check_mcap(self.mcap)

    def write(self, result: Replay, drive: Drive) -> list[Path]:
        """Write what was asked for; what was written.

        Raises:
            SlipstreamError: as `check` says it.
        """
        if self.rerun:
            from drives.rerun_file import write_rerun

            write_rerun(result, drive, self.rerun)
        if self.mcap:
            from drives.mcap_file import write_plans

            write_plans(result, drive, self.mcap)
        return self.files()

    def beside(self, folder: Path) -> Recordings:
        """The same files in a drive's folder: many drives have one each."""
        return Recordings(
            self.rerun and folder / self.rerun.name, self.mcap and folder / self.mcap.name
        )

    def check_names(self) -> None:
        """Insist on names that tell the files from each other and from those of a report.

        Raises:
            SlipstreamError: another suffix.
        """
        for option, path, suffix in zip(
            ("--rerun", "--mcap"), (self.rerun, self.mcap), SUFFIXES, strict=True
        ):
            if path and path.suffix != suffix:
                raise SlipstreamError(
                    f"{option} names no file of its kind",
                    expected=f"a name that ends in {suffix}",
                    found=str(path)[:200],
                    fix=f"{option} {path.with_suffix(suffix) if path.name else 'plans' + suffix}",
                )


NONE = Recordings()
