"""Workers that something else starts: pods of a manifest, a colleague, a script."""

from __future__ import annotations

from gt.launch.engine import Attached

ENGINE = Attached(
    name="elsewhere",
    summary="workers that something else starts: this waits for them",
    commands=lambda _plan: [],
    reaches_out=True,
)
