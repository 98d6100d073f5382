"""harness/exact.py: float64 excuses rounding and nothing else."""

import pytest
import torch
from harness.exact import is_as_exact

EXACT = torch.tensor([1.0, -3.0, 1e-6], dtype=torch.float64)
THEIRS = EXACT.float() + torch.tensor([0.0, 1e-5, 2e-6])  # what is left of terms that cancel


@pytest.mark.fast
@pytest.mark.parametrize(
    ("ours", "same"),
    [
        (EXACT.float(), True),
        (EXACT.float() + torch.tensor([0.0, 0.0, 3e-5]), True),  # within four of PyTorch's errors
        (EXACT.float() + torch.tensor([0.0, 0.0, 1e-4]), False),
        (-EXACT.float(), False),
        (torch.tensor([1.0, float("nan"), 0.0]), False),
        (EXACT.clone(), False),  # another dtype
        (EXACT.float()[:2], False),
    ],
)
def test_our_error_is_held_to_pytorchs(ours, same):
    assert is_as_exact(ours, THEIRS, EXACT) == same


@pytest.mark.fast
def test_what_is_not_finite_is_the_same():
    theirs = torch.tensor([float("inf"), float("nan"), 1.0])
    assert is_as_exact(theirs.clone(), theirs, theirs.double())
    assert not is_as_exact(
        torch.tensor([-float("inf"), float("nan"), 1.0]), theirs, theirs.double()
    )
    assert not is_as_exact(torch.tensor([float("inf"), 0.0, 1.0]), theirs, theirs.double())
