"""What a drive's recording is, as a message in the bag: a bag itself has no place for a licence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from drives.drive import Drive

TOPIC, KIND = "/slipstream/drive", "std_msgs/msg/String"
_TEXTS = ("source", "licence", "dataset", "recording")
_LONGEST = 2000  # characters of a text


def note_of(drive: Drive) -> str:
    """JSON with the source, licence and recording of a drive, and whether it is synthetic."""
    known = {name: getattr(drive, name) for name in _TEXTS}
    return json.dumps({**known, "synthetic": drive.synthetic})


def read_note(reader: Any, types: Any) -> str | None:
    """The text of a bag's note; None without one."""
    there = [each for each in reader.connections if (each.topic, each.msgtype) == (TOPIC, KIND)]
    for _, _, raw in reader.messages(there) if there else ():
        return str(types.deserialize_cdr(raw, KIND).data)
    return None


def noted(drive: Drive, note: str | None) -> Drive:
    """The drive with what its note says; a note that says nothing useful becomes a warning."""
    if note is None:
        return drive
    try:
        said = json.loads(note)
        texts = {name: said[name] for name in _TEXTS}
        whole = all(isinstance(text, str) and len(text) <= _LONGEST for text in texts.values())
        if not whole or not isinstance(said["synthetic"], bool):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        told = f"{TOPIC} does not say what the recording is"
        return replace(drive, warnings=(*drive.warnings, told))
    return replace(drive, synthetic=said["synthetic"], **texts)
