"""Types that type checkers find for calls of every family: test_types.py checks this file.

Nothing runs it.
"""

from collections.abc import Callable

from typing_extensions import assert_type

import gt
import gt.nn.functional as F
from gt import Tensor, nn
from gt.nn.utils.rnn import PackedSequence, pack_padded_sequence
from gt.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> tuple[Tensor, float]:
        return self.inner(x).relu() * scale, scale


x = gt.ones(2, 2)
images = gt.ones(1, 1, 4, 4)

# Constants and names that are no operators.
assert_type(gt.pi, float)
assert_type(gt.inf, float)
assert_type(gt.nan, float)
assert_type(gt.e, float)
assert_type(gt.newaxis, None)
gt.set_printoptions(precision=3)

# Methods as functions take their tensor by the name `input`; some take a number first.
assert_type(gt.add(input=x, other=2, alpha=3), Tensor)
assert_type(gt.add(2, x), Tensor)
assert_type(gt.sum(x, dim=1, keepdim=True), Tensor)
assert_type(gt.max(x, dim=1).values, Tensor)
assert_type(gt.max(x), Tensor)
assert_type(gt.topk(x, 1).indices, Tensor)
assert_type(gt.squeeze(input=x, dim=0), Tensor)
assert_type(gt.std_mean(input=x, dim=0), tuple[Tensor, Tensor])
assert_type(gt.var_mean(input=x), tuple[Tensor, Tensor])
assert_type(gt.histogramdd(input=x, bins=2)[0], Tensor)
assert_type(gt.as_strided_copy(input=x, size=(2,), stride=(1,)), Tensor)
assert_type(gt.exp_(x), Tensor)

# Functions by PyTorch's schemas.
assert_type(gt.conv2d(images, images, stride=1, padding=(1, 1)), Tensor)
assert_type(gt.conv2d(images, images, padding="same"), Tensor)
assert_type(gt.embedding(x, gt.tensor([0])), Tensor)
assert_type(gt.searchsorted(x, 1.0, right=True), Tensor)
assert_type(gt.isin(x, 1), Tensor)
assert_type(gt.complex(x, x), Tensor)
assert_type(gt.slogdet(x).logabsdet, Tensor)
assert_type(gt.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False), Tensor)
assert_type(x.det(), Tensor)
assert_type(x.slogdet().sign, Tensor)

# Namespaces.
u, s, vh = gt.linalg.svd(x, full_matrices=False)
assert_type(u, Tensor)
assert_type(gt.linalg.svd(x).Vh, Tensor)
assert_type(gt.linalg.norm(x, "nuc"), Tensor)
assert_type(gt.linalg.norm(x, 2.0, dim=(0, 1)), Tensor)
assert_type(gt.linalg.solve(x, x), Tensor)
assert_type(gt.linalg.diagonal(x), Tensor)
assert_type(gt.fft.rfft(x, n=4, norm="ortho"), Tensor)
assert_type(gt.fft.fftfreq(4, dtype=gt.float64), Tensor)
assert_type(gt.special.expit(x), Tensor)
assert_type(gt.special.erf(x), Tensor)
assert_type(gt.special.zeta(2.0, x), Tensor)
assert_type(gt.signal.windows.hann(4), Tensor)

# Results whose type depends on an argument.
assert_type(gt.unique(x), Tensor)
assert_type(gt.unique(x, return_inverse=True), tuple[Tensor, Tensor])
assert_type(x.unique(return_inverse=True, return_counts=True), tuple[Tensor, Tensor, Tensor])
assert_type(gt.unique_consecutive(x), Tensor)
assert_type(gt.unique_consecutive(x, return_counts=True), tuple[Tensor, Tensor])
assert_type(gt.atleast_2d(x), Tensor)
assert_type(gt.atleast_2d(x, x), tuple[Tensor, ...])
assert_type(gt.where(x > 0, x, 0.0), Tensor)
assert_type(gt.where(x > 0), tuple[Tensor, ...])
assert_type(gt.nonzero(x, as_tuple=True), tuple[Tensor, ...])
assert_type(gt.lu(x), tuple[Tensor, Tensor])
assert_type(gt.lu(x, get_infos=True), tuple[Tensor, Tensor, Tensor])
assert_type(gt.stft(gt.ones(8), 4, return_complex=True), Tensor)

# Modules: a call has the types of forward.
assert_type(nn.Linear(2, 3)(x), Tensor)
assert_type(nn.Sequential(nn.Linear(2, 3), nn.ReLU())(x), Tensor)
assert_type(nn.Conv2d(1, 1, 1)(images), Tensor)
assert_type(nn.BatchNorm1d(2)(x), Tensor)
assert_type(nn.Embedding(2, 2)(gt.tensor([0])), Tensor)
assert_type(nn.MultiheadAttention(2, 2)(x, x, x), tuple[Tensor, Tensor | None])
assert_type(nn.LSTM(2, 3)(x), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(nn.GRU(2, 3)(x), tuple[Tensor, Tensor])
assert_type(nn.LSTMCell(2, 3)(x), tuple[Tensor, Tensor])
assert_type(nn.CrossEntropyLoss()(x, x), Tensor)
assert_type(nn.TransformerEncoderLayer(2, 2)(x), Tensor)
assert_type(Net()(x, scale=2.0), tuple[Tensor, float])
assert_type(F.conv2d(images, images), Tensor)
assert_type(F.avg_pool2d(images, 2), Tensor)
assert_type(F.cross_entropy(x, x), Tensor)
for pool in (F.max_pool1d, F.max_pool2d, F.max_pool3d):
    assert_type(pool(images, 2), Tensor)
    assert_type(pool(images, 2, return_indices=False), Tensor)
    assert_type(pool(images, kernel_size=2, stride=1, return_indices=True), tuple[Tensor, Tensor])
    assert_type(pool(images, 2, 1, 0, 1, False, True), tuple[Tensor, Tensor])
    assert_type(pool(images, 2, return_indices=bool(x)), Tensor)
for adaptive in (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d):
    assert_type(adaptive(images, 2), Tensor)
    assert_type(adaptive(images, 2, True), tuple[Tensor, Tensor])
    assert_type(adaptive(images, 2, return_indices=True), tuple[Tensor, Tensor])
for fractional in (F.fractional_max_pool2d, F.fractional_max_pool3d):
    assert_type(fractional(images, 2, 2), Tensor)
    assert_type(fractional(images, 2, output_ratio=0.5), Tensor)
    assert_type(fractional(images, 2, 2, return_indices=True), tuple[Tensor, Tensor])
    assert_type(fractional(images, 2, None, 0.5, True), tuple[Tensor, Tensor])
assert_type(F.max_pool2d_with_indices(images, 2), tuple[Tensor, Tensor])
packed: PackedSequence = pack_padded_sequence(gt.ones(2, 2, 2), [2, 1])
assert_type(nn.GRU(2, 3).forward(packed), tuple[PackedSequence, Tensor])
function: Callable[[Tensor], Tensor] = nn.Linear(2, 2)

# Functions of functions keep their types.
assert_type(gt.func.vmap(gt.sin)(x), Tensor)
assert_type(gt.utils.checkpoint.checkpoint(gt.relu, x), Tensor)

# Training.
model = nn.Linear(2, 2)
optimizer = gt.optim.AdamW(model.parameters(), lr=1e-3)
schedule = gt.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
for (batch,) in DataLoader(TensorDataset(x), batch_size=1):
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch), batch)
    loss.backward()
    optimizer.step()
    schedule.step()
