"""Lines that a PyTorch user types in the first hour, in both: results, errors and their texts."""

import math
from types import ModuleType

import numpy as np
import pytest
import torch

import gt

LINES = """
x.to(float)
x.to(int) is x
f.to(bool)
f.to('cpu', float)
f.to(dtype=int)
f.to(x)
f.to(str)
f.to(m.float32, m.float64)
f.to([1])
f.type(float)
m.nn.Linear(2, 1).to(float).weight.dtype
m.nn.Linear(2, 1).to('cpu', m.float64).weight.dtype
m.nn.Linear(2, 1).to(int)
m.tensor(np.float64(1.5))
m.tensor(np.float32(1.5))
m.tensor([np.float64(1.5)])
m.tensor([np.float32(1.5), 2])
m.tensor([2, np.float32(1.5)])
m.tensor([np.int32(1), 2])
m.tensor([np.float16(1), np.float32(1)])
m.tensor([m.tensor(1.5, dtype=m.float64), 1.0])
m.tensor([m.ones(1), 2])
m.tensor([m.ones(2)])
m.tensor([np.ones(2), np.ones(2)])
m.tensor([True, 2])
m.tensor([1, None])
m.tensor([1, 'a'])
m.tensor([2**70])
m.tensor([300], dtype=m.uint8)
m.tensor([-1], dtype=m.uint8)
m.tensor([255.5], dtype=m.uint8)
m.tensor([-0.5], dtype=m.uint8)
m.tensor(300, dtype=m.int8)
m.tensor([math.nan], dtype=m.int64)
m.tensor([1e300, -1e300], dtype=m.float16)
m.tensor(1e300, dtype=m.float32)
m.tensor([1.5], dtype=float)
m.as_tensor([1, 2], dtype=m.float64)
3 in x
7.5 in x
m.tensor([1, 9]) in x
True in m.zeros(3)
'a' in x
None in x
m.einsum(f, [0], f, [1], [1, 0])
m.einsum(f, [..., 1], f, [..., 1])
m.einsum(f, [60, 1])
m.einsum(f)
m.finfo(m.float16).resolution
m.finfo(m.float32).resolution
m.finfo(m.float64).resolution
m.is_storage(x)
m.is_anomaly_enabled()
f[None].squeeze(0, 0)
f[None].squeeze((0, -3))
f[None].squeeze((0, 1)).shape
f[None].squeeze(0, 1).shape
m.squeeze(f[None], (0, 1)).shape
x.clamp(0.5, 2)
x.clamp(2, 0.5)
x.clamp(max=2.5)
m.where(x.to(m.uint8) > 1, 1.5, 2)
f.addcdiv(f, f, value=2)
x.addcdiv(x, x)
x[1.5]
x['a']
x[None, 'a']
x[m.ones(1)]
f.nbytes, f.itemsize, f.element_size(), f.is_sparse, f.is_complex(), m.is_complex(f)
f[1:].storage_offset(), f.storage_offset(), m.ones(2, 3)[1].storage_offset()
m.ones(2, 3).H.shape
m.ones(2).H
m.pi, m.e, m.inf, m.newaxis
x << 1, x >> 1, 1 << x
m.nn.functional.cross_entropy(q, m.tensor([0.0, 1.0]))
m.nn.functional.cross_entropy(q, m.tensor([0, 1])).dtype
m.nn.functional.cross_entropy(q, q).dtype
x.dtype is m.int64, (x * 1.5).dtype is m.get_default_dtype() is m.float32 is m.float
m.float16 is m.half, m.ones(2, dtype=float).dtype is m.float64
m.zeros(2, n).shape
m.ones(n).shape
m.empty((2, n)).shape
m.zeros(m.tensor(3), 2).shape
m.randn(2, n).shape
m.rand(n).shape
m.full((2, n), 1.0).shape
m.arange(n)
m.arange(m.tensor(3))
m.arange(0, 1, np.float64(0.5))
m.linspace(0, 1, n)
m.randint(0, n, (n,)).shape
x.new_zeros(n, 2).shape
x.chunk(n)[0]
x.tile(n)
x.roll(n)
x.repeat_interleave(n)
f.std(np.int64(0))
m.nn.Linear(n, 2).weight.shape
m.nn.Embedding(n, 2).weight.shape
m.nn.LayerNorm(n).weight.shape
m.zeros(2, 2.5)
m.zeros((2, 2.5))
m.zeros(2.5)
m.zeros("a")
m.ones(None)
m.randn(2, "a")
m.zeros(True)
"""
# In place: `alias` shows that memory was written, not a name bound anew.
STATEMENTS = """
x <<= 1
x >>= 1
x <<= y
x >>= m.tensor(1)
x[:2] <<= 1
x[0] <<= 2
x <<= 1.5
x &= 1.5
x //= 0.5
b &= 2
b <<= 1
b >>= b
f <<= 1
x.bitwise_left_shift_(1)
x.bitwise_right_shift_(y)
x += 1.5
x += f
f += x
x -= 1
b -= b
x *= 2
b *= 2
x /= 2
f /= x
x //= 2
f //= 2
x //= 2.0
x %= 2
f %= 2
x **= 2
f **= x
x **= -1
x &= 1
x &= y
x |= b
b &= b
x |= 4
x ^= 7
f &= 1
q @= q
x += m.ones(2, 3)
x += m.ones(2, 3, dtype=int)
w += 1
w <<= 1
w.grad = m.ones(3)
w.grad = m.ones(2, dtype=m.float64)
w.grad = 1
w.grad = w
w.grad = None
x.requires_grad = True
"""


def names_of(module: ModuleType) -> dict[str, object]:
    x = module.tensor([1, 2, 3])
    return {
        "m": module,
        "np": np,
        "math": math,
        "n": np.int64(3),
        "x": x,
        "alias": x[:],
        "y": module.tensor([3, 1, 2]),
        "f": module.tensor([1.5, -2.0, 7.0]),
        "b": module.tensor([True, False, True]),
        "q": module.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "w": module.ones(2, requires_grad=True),
    }


def shown(result: object) -> object:
    """Comparable form: dtype and values of a tensor, name of a dtype."""
    if isinstance(result, (torch.Tensor, gt.Tensor)):
        return str(result.dtype).partition(".")[2], result.tolist()
    if isinstance(result, tuple):
        return tuple(shown(each) for each in result)
    return str(result).removeprefix("torch.").removeprefix("gt.")


def error_of(error: Exception) -> tuple[type, str]:
    """The built-in class that it is caught by, and its first line."""
    builtin = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    return builtin, str(error).splitlines()[0].replace("torch.", "").replace("gt.", "")


def evaluated(module: ModuleType, line: str) -> tuple[object, tuple[type, str] | None]:
    try:
        return shown(eval(line, names_of(module))), None
    except Exception as error:  # noqa: BLE001 - whichever it is, the other must raise it too
        return None, error_of(error)


def executed(module: ModuleType, line: str) -> tuple[object, tuple[type, str] | None]:
    """Values of the variables afterwards, and the error."""
    names, error = names_of(module), None
    try:
        exec(line, names)
    except Exception as raised:  # noqa: BLE001 - whichever it is, the other must raise it too
        error = error_of(raised)
    return [shown(names[name]) for name in ("x", "alias", "y", "f", "b", "q", "w")], error


def check(ours: tuple[object, object], theirs: tuple[object, object]) -> None:
    (mine, error), (its, expected) = ours, theirs
    assert mine == its
    if expected is None or error is None:
        assert error == expected
        return
    assert error[0] == expected[0]
    # Only the beginning counts where torch lists its signatures or names features that only it has.
    for end in ("'s grad_dtype (", ", but expected one of"):
        expected = (expected[0], expected[1].partition(end)[0])
    assert error[1].startswith(expected[1].partition(" The historic")[0])


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy:UserWarning")
@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_a_line_gives_what_it_gives_in_pytorch(line: str) -> None:
    check(evaluated(gt, line), evaluated(torch, line))


@pytest.mark.parametrize("line", STATEMENTS.strip().splitlines())
def test_a_statement_leaves_what_it_leaves_in_pytorch(line: str) -> None:
    check(executed(gt, line), executed(torch, line))
