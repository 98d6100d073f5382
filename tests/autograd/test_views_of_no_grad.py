"""Views made under `no_grad` whose memory is written: what reads them, and what is refused."""

import pytest
import torch
from test_refusals import outcome

import gt

# A view of a leaf, written; and one of integers, into which a value with a gradient would go.
STALE = (
    "a = m.ones(1, requires_grad=True); m.set_grad_enabled(False); y = a[:]; y.mul_(2); "
    "m.set_grad_enabled(True); "
)
OF_INTEGERS = (
    "a = m.ones(3, requires_grad=True); x = m.ones(3, dtype=m.int64); m.set_grad_enabled(False); "
    "y = x[:]; m.set_grad_enabled(True); "
)
READS = [
    "y.tolist()", "y.item()", "float(y)", "int(y)", "bool(y)", "repr(y)", "str(y)",
    "y.is_nonzero()", "m.isclose(y, y)",
    "y.detach().tolist()", "y.data.tolist()", "y.numpy(force=True).tolist()", "y.numpy()",
    "f'{y.item():.2f}'", "1.0 in y", "y.equal(y)", "m.allclose(y, y)", "y.long()", "y == 2",
    "y < 3", "y.argmax()", "y.isnan()", "y.bool()", "m.ones_like(y)", "y.shape[0]",
    "y.requires_grad", "y.is_leaf", "y.grad_fn", "y.sum()", "y.sign()", "y.clone()", "y + 1",
    "y[0]",
    "x = m.ones(1, dtype=m.int64); x.copy_(y)", "x = m.ones(1); x.copy_(y)",
]  # fmt: skip
WRITES = [
    "y.copy_(a); y", "y[:] = a; y", "y[0:2] = a[0:2]; y", "y[0] = a[0]; y", "y[...] = a; y",
    "y[0:2] = a[0]; y", "y.fill_(a[0]); y", "y.masked_fill_(y == 1, a[0]); y", "y.fill_(2); y",
    "z = y[:2]; z.copy_(a[:2]); y", "z = y[:2]; z.fill_(a[0]); y", "z = y[:2]; z[0] = a[0]; y",
    "y.fill_(a[0].detach()); y", "x.fill_(a[0]); x", "x[0:2] = a[0]; x", "x.copy_(a); x",
    "y[y == 1] = a[0]; y", "y.logical_and_(a); y", "y.eq_(a); y", "y.add_(1); y",
]  # fmt: skip


@pytest.fixture(autouse=True)
def recording():
    """A row that fails between the two modes leaves none behind."""
    yield
    gt.set_grad_enabled(True)
    torch.set_grad_enabled(True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [*(STALE + r for r in READS), *(OF_INTEGERS + r for r in WRITES)])
def test_a_row_is_as_in_pytorch(row):
    theirs, ours = outcome(torch, row), outcome(gt, row)
    assert ours == theirs
