"""PyTorch's older arguments of losses, by name and by position."""

import numpy as np
import pytest
import torch

import gt

pytestmark = pytest.mark.filterwarnings("ignore:size_average and reduce args:UserWarning")


def numbers(m, *shape):
    return m.tensor(np.random.default_rng(len(shape)).uniform(0.1, 0.9, shape).astype("float32"))


def signs(m):
    return m.tensor([1.0, -1.0, 1.0, -1.0])


def pair(m):
    return numbers(m, 4), numbers(m, 4) * 0.5


LOSSES = {
    "mse_loss": (pair, ()),
    "l1_loss": (pair, ()),
    "smooth_l1_loss": (pair, ()),
    "binary_cross_entropy": (pair, (None,)),
    "hinge_embedding_loss": (lambda m: (numbers(m, 4), signs(m)), (0.7,)),
    "soft_margin_loss": (lambda m: (numbers(m, 4), signs(m)), ()),
    "margin_ranking_loss": (lambda m: (*pair(m), signs(m)), (0.3,)),
    "cosine_embedding_loss": (
        lambda m: (numbers(m, 4, 3), numbers(m, 4, 3) ** 2, signs(m)),
        (0.1,),
    ),
    "triplet_margin_loss": (
        lambda m: (numbers(m, 4, 3), numbers(m, 4, 3) ** 2, numbers(m, 4, 3) ** 3),
        (0.5, 2.0, 1e-6, False),
    ),
    "poisson_nll_loss": (pair, None),
}
OLDER = [(None, None), (False, None), (True, None), (None, False), (True, True), (False, True),
         (False, False)]  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("size_average", "reduce"), OLDER)
def test_older_arguments(name, size_average, reduce):
    make, between = LOSSES[name]
    results = []
    for m in (gt, torch):
        loss = getattr(m.nn.functional, name)
        by_name = loss(*make(m), size_average=size_average, reduce=reduce)
        results.append(by_name.numpy())
        if between is not None:
            by_place = loss(*make(m), *between, size_average, reduce, "sum")
            results.append(by_place.numpy())
    half = len(results) // 2
    for ours, theirs in zip(results[:half], results[half:], strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])
def test_older_arguments_of_modules(m):
    loss = m.nn.TripletMarginLoss(size_average=False)
    assert loss.reduction == "sum"
    with pytest.warns(FutureWarning, match="keyword argument `min_value` is deprecated"):
        layer = m.nn.Hardtanh(min_value=-2.0)
    assert layer(m.tensor([-3.0, 3.0])).tolist() == [-2.0, 1.0]
