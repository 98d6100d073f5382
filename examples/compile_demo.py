"""`gt.compile`: a function that comes again is compiled in the background, and becomes one call."""

import time

import gt
import gt.nn.functional as F

SECONDS = 4.0  # of calls; PyTorch's compiler takes longer the first time, and is not waited for


def step(x: gt.Tensor, weight: gt.Tensor) -> gt.Tensor:
    """Some elementwise work behind a product, and its gradient."""
    weight.grad = None
    hidden = F.gelu(x @ weight)
    for _ in range(4):
        hidden = hidden.tanh() * 1.01 + x
    loss = hidden.square().mean()
    loss.backward()
    assert weight.grad is not None
    return loss + weight.grad.norm()


def main() -> None:
    gt.manual_seed(0)
    x, weight = gt.randn(256, 256), gt.randn(256, 256, requires_grad=True)
    compiled = gt.compile(step)
    expected = step(x, weight).item()
    begun, calls = time.monotonic(), 0
    while time.monotonic() - begun < SECONDS:
        found = compiled(x, weight).item()
        assert abs(found - expected) <= 1e-4 * abs(expected), (found, expected)
        calls += 1
    print(f"{calls} calls, {1e6 * SECONDS / calls:.0f} us each; all gave {expected:.4f}")
    print(gt.debug.explain_compile(compiled))

    # A scope of the configuration with `compile: true` is the same.
    gt.register_config("hot", gt.SignalConfig(compile=True))
    for _ in range(6):
        with gt.signal.context("hot"):
            y = (x * 2 + 1).relu().sum() - 3
    print(gt.debug.explain_compile("hot"), f"{y.item():.1f}", sep="\n")


if __name__ == "__main__":
    main()
