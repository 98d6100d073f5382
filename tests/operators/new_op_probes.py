"""Run by test_new_op.py where the scaffolded operators have been built: each beside PyTorch's.

Values and gradients of whole and of cut operands, by the methods; strides and writes of the views;
the layouts of results.
"""

import sys
from collections.abc import Callable

import torch

import gt

Case = tuple[str, Callable[..., object], int, dict[str, object]]

# The operator, PyTorch's, the number of operands, attributes.
CASES: list[Case] = [
    ("hypot_probe", torch.hypot, 2, {}),
    ("sinh_probe", torch.sinh, 1, {}),
    ("nansum_probe", torch.nansum, 1, {"dim": (1,), "keepdim": True}),
    ("narrow_probe", torch.narrow, 1, {"dim": 1, "start": 1, "length": 3}),
    ("windows_probe", torch.Tensor.unfold, 1, {"dim": 0, "size": 2, "step": 1}),
]


def main() -> int:
    torch.manual_seed(0)
    gt.gpu_workers(2)
    for name, oracle, count, attrs in CASES:
        whole = [torch.randn(4, 6) for _ in range(count)]
        expected = [x.clone().requires_grad_() for x in whole]
        value = oracle(*expected, *attrs.values())
        value.backward(torch.ones_like(value))
        for cut in (None, 0, 1):
            operands = [gt.tensor(x.numpy()).requires_grad_() for x in whole]
            placed = [x if cut is None else gt.distribute(x, dim=cut) for x in operands]
            first, *others = placed
            out = getattr(first, name)(*others, **attrs)
            same(f"{name} cut {cut}", out, value)
            out.backward(gt.ones_like(out))
            for operand, oracle_operand in zip(operands, expected, strict=True):
                same(f"gradient of {name} cut {cut}", operand.grad, oracle_operand.grad)
    written()
    layouts()
    print(f"{len(CASES)} operators")
    return 0


def same(what: str, got: gt.Tensor, expected: torch.Tensor) -> None:
    actual = torch.tensor(got.tolist())
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    torch.testing.assert_close(actual, expected.detach(), msg=lambda text: f"{what}: {text}")


def written() -> None:
    """A view shares memory: its strides are PyTorch's, and a write through it goes back."""
    ours, theirs = gt.zeros(4, 6), torch.zeros(4, 6)
    for view, oracle in (
        (ours.narrow_probe(1, 1, 3), theirs.narrow(1, 1, 3)),
        (ours.windows_probe(0, 2, 2), theirs.unfold(0, 2, 2)),
    ):
        assert view.stride() == oracle.stride(), (view.stride(), oracle.stride())
        view.add_(1)
        oracle.add_(1)
        same("written through", ours, theirs)


def layouts() -> None:
    """Consequences of the rows: monotone passes a maximum, sums stay partial, views keep shards."""
    x = gt.distribute(gt.ones(256, 256), dim=0)
    for out, layout in (
        (x.amax(0).sinh_probe(), "partial(max)@[0,1]"),
        (x.nansum_probe((0,), False), "partial(sum)@[0,1]"),
        (x.windows_probe(1, 2, 1), "shard(0)@[0,1]"),
        (x.narrow_probe(1, 0, 256), "shard(0)@[0,1]"),
    ):
        assert gt.explain(out).layout == layout, gt.explain(out)


if __name__ == "__main__":
    sys.exit(main())
