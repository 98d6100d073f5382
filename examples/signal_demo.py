"""Signals name parts of a program. They change no result; the instruction log shows them."""

import os
from pathlib import Path

# Read at the first operation.
log = Path(os.environ.setdefault("GT_INSTRUCTION_LOG", "trace.txt"))

import gt  # noqa: E402 - after the setting, so that it reads from top to bottom
from gt import nn  # noqa: E402


class Network(nn.Module):
    """Two layers, each in a scope of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        with gt.signal.context("layer1", backward="layer1_backward"):
            x = self.first(x).relu()
        with gt.signal.context("layer2"):
            return self.second(x)


def loss_of(model: nn.Module, x: gt.Tensor) -> gt.Tensor:
    """Loss of the model, with or without scopes inside it."""
    return model(x).square().mean()


def main() -> None:
    gt.manual_seed(0)
    model, x = Network(), gt.randn(32, 8)
    loss = loss_of(model, gt.signal.tensor(x, "input"))
    loss.backward()

    gt.signal.enter("without")
    plain = nn.Sequential(model.first, nn.ReLU(), model.second)
    assert loss_of(plain, x).item() == loss.item(), "a signal changed a result"
    gt.signal.exit("without")

    gt.disconnect()
    lines = log.read_text(encoding="utf-8").splitlines()
    for name in ("input", "layer1", "layer1_backward", "layer2", "without"):
        named = [line for line in lines if f" @{name} " in line]
        operators = ", ".join(dict.fromkeys(line.split(" = ")[1].split()[0] for line in named))
        print(f"@{name:16} {len(named):2} instructions: {operators}")
        assert named, name


if __name__ == "__main__":
    main()
