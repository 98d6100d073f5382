"""Draws the tape of a training step as a picture: `timeline.svg` in the working directory."""

import os
from pathlib import Path

# Read at the first operation.
log = Path(os.environ.setdefault("GT_INSTRUCTION_LOG", "trace.txt"))

import gt  # noqa: E402 - after the setting, so that it reads from top to bottom
from gt import nn  # noqa: E402
from gt.tools import timeline  # noqa: E402


def main() -> None:
    gt.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.01)
    x, y = gt.randn(8, 16), gt.randint(0, 4, (8,))
    for step in range(3):
        with gt.signal.context(f"step{step}"):
            loss = nn.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.4f}")
    gt.disconnect()  # the log is complete now

    # Equivalent command: `gt visualize trace.txt -o timeline.svg`
    timeline.draw(str(log), "timeline.svg")
    assert Path("timeline.svg").read_text(encoding="utf-8").startswith("<svg")


if __name__ == "__main__":
    main()
