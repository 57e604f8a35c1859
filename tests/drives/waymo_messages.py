"""Waymo's submission messages, as google.protobuf reads them: an independent second opinion."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "float": _FIELD.TYPE_FLOAT,
    "string": _FIELD.TYPE_STRING,
    "bool": _FIELD.TYPE_BOOL,
    "enum": _FIELD.TYPE_ENUM,
    "message": _FIELD.TYPE_MESSAGE,
}
_PACKAGE = ".waymo.open_dataset"
_MESSAGES: dict[str, dict[str, tuple[int, str, str]]] = {
    "TrajectoryPrediction": {
        "pos_x": (1, "packed", "float"),
        "pos_y": (2, "packed", "float"),
    },
    "FrameTrajectoryPredictions": {
        "frame_name": (1, "optional", "string"),
        "trajectory": (2, "optional", "TrajectoryPrediction"),
    },
    "E2EDChallengeSubmission": {
        "predictions": (1, "repeated", "FrameTrajectoryPredictions"),
        "submission_type": (2, "optional", "enum"),
        "account_name": (3, "optional", "string"),
        "unique_method_name": (4, "optional", "string"),
        "authors": (5, "repeated", "string"),
        "affiliation": (6, "optional", "string"),
        "description": (7, "optional", "string"),
        "method_link": (8, "optional", "string"),
        "uses_public_model_pretraining": (11, "optional", "bool"),
        "num_model_parameters": (12, "optional", "string"),
        "public_model_names": (13, "repeated", "string"),
    },
}


def submission_class() -> Any:
    """waymo.open_dataset.E2EDChallengeSubmission (proto2)."""
    file = descriptor_pb2.FileDescriptorProto(
        name="submission.proto", package=_PACKAGE[1:], syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, label, kind) in fields.items():
            added = message.field.add(
                name=field, number=number, type=_KINDS.get(kind, _FIELD.TYPE_MESSAGE)
            )
            repeated = label != "optional"
            added.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            added.options.packed = label == "packed"
            if kind in _MESSAGES:
                added.type_name = f"{_PACKAGE}.{kind}"
            if kind == "enum":
                added.type_name = f"{_PACKAGE}.{name}.SubmissionType"
                values = message.enum_type.add(name="SubmissionType").value
                values.add(name="UNKNOWN", number=0)
                values.add(name="E2ED_SUBMISSION", number=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{_PACKAGE[1:]}.E2EDChallengeSubmission")
    return message_factory.GetMessageClass(found)
