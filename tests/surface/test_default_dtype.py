"""`set_default_dtype`: what has no dtype of its own, and what integers become, as in PyTorch."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

import gt

EXPRESSIONS = [
    "m.ones(2)",
    "m.tensor([1.5])",
    "m.arange(0.0, 1.0, 0.25)",
    "m.arange(3)",
    "m.ones(2, dtype=int) / 2",
    "i / 2",
    "i / i",
    "b / b",
    "i * 1.5",
    "1.5 - i",
    "b + 1.5",
    "i**0.5",
    "2.0**i",
    "i % 2.5",
    "i // 2.0",
    "i.exp()",
    "i.sqrt()",
    "i.sigmoid()",
    "i.reciprocal()",
    "i.logsumexp(0)",
    "m.atan2(i, i)",
    "i.clamp(0.5)",
    "i.clamp(0.5, 2)",
    "i.clamp(min=1, max=2.5)",
    "m.where(b, 1.0, 2.0)",
    "m.where(b, 1, 2.0)",
    "m.where(b, i[:2], 1.5)",
    "m.where(b, f, 1.5)",
    "m.cat([i, i * 1.5])",
    "f * 1.5",
    "i[:2] + f",
    "f + m.tensor(1.5)",
    "i * m.tensor(1.5)",
    "h * 2.5",
    "i + 1",
    "i.sum()",
    "i > 1.5",
    "large == 16777216.0",
    "i.masked_fill(i > 1, 1.5)",
    "f.double().lerp(f.double(), 0.5)",
    "m.full_like(i, 1.5)",
    "m.nn.functional.softmax(i * 1.0, 0)",
    "m.nn.Linear(1, 1).weight.detach() * 0",
    "m.tensor([True, 2.5])",
]
MISTAKES = [
    "i.mean()",
    "i.softmax(0)",
    "b - 1.5",
    "i.__itruediv__(2)",
    "m.nn.functional.gelu(i)",
    "i.lerp(i, 0.5)",
    "i.__iadd__(1.5)",
]


@pytest.fixture(params=["float16", "bfloat16", "float32", "float64"])
def default(request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.param
    for module in (gt, torch):
        module.set_default_dtype(getattr(module, name))
    yield name
    for module in (gt, torch):
        module.set_default_dtype(module.float32)


def evaluated(module: ModuleType, expression: str) -> object:
    names = {
        "m": module,
        "i": module.tensor([1, 2, 3]),
        "b": module.tensor([True, False]),
        "f": module.tensor([1.0, 2.0], dtype=module.float32),
        "h": module.tensor([1.0], dtype=module.float16),
        "large": module.tensor([2**24 + 1]),
    }
    result = eval(expression, names)
    return str(result.dtype).partition(".")[2], result


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_dtypes_and_values_under_a_default(default: str, expression: str) -> None:
    (ours, mine), (theirs, its) = (evaluated(module, expression) for module in (gt, torch))
    assert ours == theirs, default
    torch.testing.assert_close(
        torch.tensor(mine.tolist()), torch.tensor(its.tolist()), equal_nan=True
    )


@pytest.mark.parametrize("expression", MISTAKES)
def test_mistakes_under_a_default(default: str, expression: str) -> None:
    texts = []
    for module in (gt, torch):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            evaluated(module, expression)
        texts.append(str(caught.value))
    assert texts[0].startswith(texts[1].splitlines()[0]), default


def test_a_gradient_flows_under_a_default(default: str) -> None:
    grads = []
    for module in (gt, torch):
        w = module.ones(3, requires_grad=True)
        ((w * module.tensor([1, 2, 3])) / 2 + module.tensor([1, 2, 3]) * 0.5).sum().backward()
        grads.append((str(w.grad.dtype).partition(".")[2], w.grad.tolist()))
    assert grads[0] == grads[1]
    assert grads[0][0] == default


@pytest.mark.parametrize("given", ["int64", "float", "'float64'", "None"])
def test_what_no_default_may_be(given: str) -> None:
    texts = []
    for module in (gt, torch):
        dtype = getattr(module, given) if given == "int64" else eval(given)
        with pytest.raises(TypeError) as caught:
            module.set_default_dtype(dtype)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert gt.get_default_dtype() == gt.float32
