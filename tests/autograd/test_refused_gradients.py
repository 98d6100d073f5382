"""Gradients that do not exist are refused with PyTorch's class and text by the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gt  # noqa: E402
from gt.aten import refused  # noqa: E402

Program = Callable[[ModuleType, Any], Any]
# By overload of refused.txt; and, below, operators that PyTorch refuses otherwise.
REFUSED: dict[str, Program] = {
    "_unique2": lambda lib, x: lib.unique(x),
    "geqrf": lambda lib, x: lib.geqrf(x)[0],
    "igamma": lambda lib, x: lib.igamma(x, lib.ones(2, 2)),
    "igammac": lambda lib, x: lib.igammac(x, lib.ones(2, 2)),
    "special_gammainc": lambda lib, x: lib.special.gammainc(x, lib.ones(2, 2)),
    "special_gammaincc": lambda lib, x: lib.special.gammaincc(x, lib.ones(2, 2)),
    "special_zeta": lambda lib, x: lib.special.zeta(x, 2 * lib.ones(2, 2)),
    "special_zeta.other_scalar": lambda lib, x: lib.special.zeta(x, 2.0),
    "unique_consecutive": lambda lib, x: lib.unique_consecutive(x),
    "unique_dim": lambda lib, x: lib.unique(x, dim=0),
}
OTHERWISE: dict[str, Program] = {
    "heaviside": lambda lib, x: lib.heaviside(x, lib.ones(2, 2)),
    "histogram": lambda lib, x: lib.histogram(x, 3)[0],
}
# Only gradients of other operators call them.
NOT_CALLED = {"_standard_gamma_grad", "native_dropout_backward"}


def error(lib: ModuleType, program: Program) -> Exception:
    x = lib.tensor([[1.5, 2.5], [0.5, 3.0]], requires_grad=True)
    result = program(lib, x)
    with pytest.raises(RuntimeError) as raised:
        result.sum().backward()
    return raised.value


@pytest.mark.parametrize("name", [*REFUSED, *OTHERWISE])
def test_class_and_text_are_pytorchs(name: str) -> None:
    program = (REFUSED | OTHERWISE)[name]
    theirs, ours = error(torch, program), error(gt, program)
    assert isinstance(ours, type(theirs))
    assert isinstance(ours, NotImplementedError) == isinstance(theirs, NotImplementedError)
    assert isinstance(ours, gt.errors.NotDifferentiable)
    assert str(ours).startswith(str(theirs).splitlines()[0])


def test_every_line_has_a_program() -> None:
    assert refused._lines().keys() == REFUSED.keys() | NOT_CALLED


def test_the_other_operand_has_its_gradient() -> None:
    x = gt.tensor([1.0, 2.0], requires_grad=True)
    gt.igamma(gt.ones(2), x).sum().backward()
    y = torch.tensor([1.0, 2.0], requires_grad=True)
    torch.igamma(torch.ones(2), y).sum().backward()
    torch.testing.assert_close(torch.tensor(x.grad.tolist()), y.grad)
