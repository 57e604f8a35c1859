"""A calibrated camera in the sidecar of the plain format."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from drives.camera import Calibration, calibrated

Number = Annotated[float, Field(allow_inf_nan=False)]
Row = tuple[Number, Number, Number]


class Camera(BaseModel):
    """Where points of the road appear in a camera's pictures; see `drives.camera.Calibration`.

    Attributes:
        width, height: px; fx, fy, cx, cy: px.
        rotation: rows of the matrix that takes the camera (x right, y down, z forward) to the
            vehicle (x forward, y left, z up).
        position: m, the camera in the vehicle frame: rear axle, x forward, y left, z up.
        road: m, height of the road in the vehicle frame.
        distortion: k1, k2, p1, p2, k3; left out for undistorted pictures.
        source: one line: how it was calibrated.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    width: int = Field(ge=1, le=100_000)
    height: int = Field(ge=1, le=100_000)
    fx: Number
    fy: Number
    cx: Number
    cy: Number
    rotation: tuple[Row, Row, Row]
    position: Row
    road: Number = 0.0
    distortion: tuple[Number, Number, Number, Number, Number] | None = None
    source: str = Field(default="Calibration of the sidecar", max_length=1000)

    def calibration(self, where: str) -> Calibration:
        """Raises SlipstreamError naming `where` if no camera is like that."""
        values = self.model_dump(exclude={"rotation", "position", "distortion"})
        return calibrated(
            where,
            "mend the camera in the sidecar, or leave it out",
            **values,
            rotation=np.array(self.rotation),
            position=np.array(self.position),
            distortion=self.distortion or (),
        )


def camera_of(calibration: Calibration) -> Camera:
    """What a sidecar says of a calibration."""
    names = ("width", "height", "fx", "fy", "cx", "cy", "road", "source")
    return Camera.model_validate(
        {name: getattr(calibration, name) for name in names}
        | {
            "rotation": calibration.rotation.tolist(),
            "position": calibration.position.tolist(),
            "distortion": calibration.distortion or None,
        }
    )
