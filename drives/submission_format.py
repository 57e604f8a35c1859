"""The messages of a WOD-E2E challenge submission, and the rules that can be checked in its files.

Field numbers are those of waymo.open_dataset.E2EDChallengeSubmission (proto2, Apache-2.0,
end_to_end_driving_submission.proto). The rules are that file's comments, and the file names that
the challenge's server looks for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.readers.protobuf import Field, Message, WireError, decode, encode
from planners.observation import FUTURE_STATES, RATE_HZ
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

FOLDER, ARCHIVE = "MySubmission", "MySubmission.tar.gz"
MOST_FRAMES = 100_000  # of a shard
_BASE = "mysubmission"
_E2ED = 1  # SubmissionType.E2ED_SUBMISSION
_SHARD = re.compile(r"([\w.-]{1,100})\.binproto-([0-9]{5})-of-([0-9]{5})")
_FRAME = re.compile(r".{1,200}-\d{1,6}", re.DOTALL)
_ACCOUNT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_PARAMETERS = re.compile(r"[1-9][0-9]*[KMBT]")
_FASTEST = 100.0  # m/s from the ego frame's origin; more is another frame or unit
_FIX = "write it again: slipstream submission BUNDLE --drive SHARDS -o DIR ..."

_TRAJECTORY = {
    1: Field("x", "float", repeated=True),
    2: Field("y", "float", repeated=True),
}
_PREDICTION = {
    1: Field("frame", "text"),
    2: Field("trajectory", _TRAJECTORY),
}
_SUBMISSION = {
    1: Field("predictions", _PREDICTION, repeated=True),
    2: Field("type", "int"),
    3: Field("account", "text"),
    4: Field("name", "text"),
    5: Field("authors", "text", repeated=True),
    6: Field("affiliation", "text"),
    7: Field("description", "text"),
    8: Field("link", "text"),
    11: Field("pretrained", "int", optional=True),
    12: Field("parameters", "text"),
    13: Field("public_models", "text", repeated=True),
}


@dataclass(frozen=True)
class Method:
    """What a submission says about itself.

    Attributes:
        account: the full e-mail address that is registered at waymo.com/open.
        name: short and unique: a later submission of the same name replaces it on the leaderboard.
        parameters: how many the model has, an integer and K, M, B or T.
        public_models: openly published language models that it was pre-trained from; empty says
            that there are none.

    Raises:
        SlipstreamError: no account, no name, a number of another form, or text that is not UTF-8.
    """

    account: str
    name: str
    parameters: str
    authors: tuple[str, ...] = ()
    affiliation: str = ""
    description: str = ""
    link: str = ""
    public_models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _ACCOUNT.fullmatch(self.account):
            raise _of_method("account", "the e-mail address registered there", self.account)
        if not self.name.strip():
            raise _of_method("method-name", "a short, unique name", self.name)
        if not _PARAMETERS.fullmatch(self.parameters):
            raise _of_method("parameters", "an integer and K, M, B or T: 8M", self.parameters)
        texts = {"authors": ", ".join(self.authors), "public-model": ", ".join(self.public_models)}
        for name in ("account", "affiliation", "description", "link"):
            texts[name] = getattr(self, name)
        for option, text in {"method-name": self.name, **texts}.items():
            if any("\ud800" <= sign <= "\udfff" for sign in text):  # bytes of another encoding
                raise _of_method(option, "UTF-8 text", ascii(text))


@dataclass(frozen=True, eq=False)
class Predictions:
    """One trajectory for each frame.

    Attributes:
        frames: [n] names, as `frame.context.name` of the records has them.
        trajectories: [n, 20, 2] m, 0.25 s to 5 s ahead, in each frame's own ego frame: x forward,
            y left, origin in the middle of the rear axle.
    """

    frames: tuple[str, ...]
    trajectories: Floats


def shard_name(number: int, count: int) -> str:
    """A name that the challenge's server finds; it ignores others, its tutorial's among them."""
    return f"{_BASE}.binproto-{number:05d}-of-{count:05d}"


def written_shard(method: Method, predictions: Predictions) -> bytes:
    """A shard: some of the predictions, and all that the submission says about itself."""
    return encode(
        {
            "predictions": [
                {"frame": frame, "trajectory": {"x": points[:, 0], "y": points[:, 1]}}
                for frame, points in zip(predictions.frames, predictions.trajectories, strict=True)
            ],
            "type": _E2ED,
            "account": method.account,
            "name": method.name,
            "authors": method.authors,
            "affiliation": method.affiliation or None,
            "description": method.description or None,
            "link": method.link or None,
            "pretrained": int(bool(method.public_models)),
            "parameters": method.parameters,
            "public_models": method.public_models,
        },
        _SUBMISSION,
    )


def read_shards(shards: dict[str, bytes], where: str) -> tuple[Method, Predictions]:
    """Read all shards of a submission and check every rule of the format.

    Args:
        shards: file name -> content.
        where: the folder or archive that an error names.

    Raises:
        SlipstreamError: naming the shard, the frame and the rule that is broken.
    """
    _check_names(shards, where)
    methods: dict[Method, str] = {}
    frames: dict[str, str] = {}
    trajectories: list[Floats] = []
    for shard, data in sorted(shards.items()):
        message = _decoded(data, f"{where}: {shard}")
        methods.setdefault(_method(message, f"{where}: {shard}"), shard)
        for prediction in message["predictions"]:
            frame = prediction["frame"]
            _check_frame(frame, frames, f"{where}: {shard}")
            frames[frame] = shard
            trajectories.append(_points(prediction["trajectory"], f"{where}: {shard}: {frame}"))
    if len(methods) > 1:
        raise _broken(where, "the same account, name and authors in all shards", "different ones")
    if not frames:
        raise _broken(where, "a prediction for every frame", "no prediction")
    return next(iter(methods)), Predictions(tuple(frames), np.stack(trajectories))


def check_required(predictions: Sequence[str], required: Sequence[str], where: str) -> None:
    """Insist on a prediction for each required frame and no other.

    Raises:
        SlipstreamError: naming some of those that lack or are too many.
    """
    for what, others in (
        ("lacks", sorted(set(required) - set(predictions))),
        ("has too many", sorted(set(predictions) - set(required))),
    ):
        if others:
            raise SlipstreamError(
                f"{where} {what} frames",
                expected=f"exactly the {len(required)} required frames",
                found=f"{len(others)} {'missing' if what == 'lacks' else 'others'}: "
                + ", ".join(others[:3]),
                fix="plan with all shards of the test split and the same --required",
            )


def _check_names(shards: dict[str, bytes], where: str) -> None:
    found = [_SHARD.fullmatch(name) for name in sorted(shards)]
    parts = [(each[1], int(each[2]), int(each[3])) for each in found if each]
    wanted = [(parts[0][0], number, len(shards)) for number in range(len(shards))] if parts else []
    if not parts or parts != wanted:
        raise _broken(
            where, f"shards {shard_name(0, 1)} and so on", ", ".join(sorted(shards)[:5]) or "none"
        )


def _decoded(data: bytes, where: str) -> Message:
    try:
        return decode(data, _SUBMISSION)
    except WireError as error:
        raise _broken(where, "an E2EDChallengeSubmission message", str(error)) from None


def _method(message: Message, where: str) -> Method:
    if message["type"] != _E2ED:
        raise _broken(where, f"submission_type {_E2ED}", str(message["type"]))
    if message["pretrained"] not in (0, 1):
        raise _broken(where, "uses_public_model_pretraining true or false", "neither")
    models = tuple(message["public_models"])
    if bool(message["pretrained"]) != bool(models):
        raise _broken(where, "public_model_names exactly if one was used", str(models))
    try:
        return Method(
            account=message["account"],
            name=message["name"],
            parameters=message["parameters"],
            authors=tuple(message["authors"]),
            affiliation=message["affiliation"],
            description=message["description"],
            link=message["link"],
            public_models=models,
        )
    except SlipstreamError as error:
        raise _broken(where, error.expected, error.found) from None


def _check_frame(frame: str, before: dict[str, str], where: str) -> None:
    if not _FRAME.fullmatch(frame):
        raise _broken(where, "frame_name <clip>-<frame number>", repr(frame[:80]))
    if frame in before:
        raise _broken(where, "one prediction for each frame", f"{frame} is in {before[frame]} too")


def _points(trajectory: Message | None, where: str) -> Floats:
    """[20, 2] m."""
    x, y = (trajectory["x"], trajectory["y"]) if trajectory else (np.empty(0), np.empty(0))
    if len(x) != FUTURE_STATES or len(y) != FUTURE_STATES:
        expected = f"{FUTURE_STATES} x and {FUTURE_STATES} y, the first {1 / RATE_HZ} s ahead"
        raise _broken(where, expected, f"{len(x)} x and {len(y)} y")
    points = np.stack([x, y], axis=1)
    reach = _FASTEST * np.arange(1, FUTURE_STATES + 1) / RATE_HZ
    away = np.linalg.norm(points, axis=1)
    if not (away <= reach).all():  # NaN too
        worst = int(np.argmin(away <= reach))
        expected = "finite metres in the ego frame of the instant, where it starts at (0, 0)"
        found = f"{away[worst]:g} m away after {(worst + 1) / RATE_HZ:g} s"
        raise _broken(where, expected, found)
    return points


def _of_method(option: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"the challenge does not take this --{option}",
        expected=expected,
        found=found[:80] or "nothing",
        fix=f"give --{option}",
    )


def _broken(where: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{where} breaks a rule of the submission format", expected=expected, found=found, fix=_FIX
    )
