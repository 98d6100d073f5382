"""A tour of GT, from a tensor to two workers: read it from top to bottom."""

import subprocess
import sys

import pytest

import gt
from gt import nn


def test_tensors_look_like_pytorchs():
    a, b = gt.tensor([1, 2, 3, 4]), gt.tensor([5, 6, 7, 8])
    assert (a + b).tolist() == [6, 8, 10, 12]
    assert str((a + b).data.numpy()) == "[ 6  8 10 12]"
    assert repr(a / 2) == "tensor([0.5000, 1.0000, 1.5000, 2.0000])"
    assert (a.dtype, (a / 2).dtype, tuple(a.shape)) == (gt.int64, gt.float32, (4,))


def test_operations_broadcast_reduce_and_reshape():
    x = gt.arange(6).reshape(2, 3)  # [6] -> [2, 3]
    assert (x * gt.tensor([[1], [10]])).tolist() == [[0, 1, 2], [30, 40, 50]]
    assert x.sum(dim=1, keepdim=True).tolist() == [[3], [12]]
    assert (x.float() @ x.float().T).tolist() == [[5.0, 14.0], [14.0, 50.0]]
    assert gt.where(x > 2, x, 0).tolist() == [[0, 0, 0], [3, 4, 5]]


def test_views_share_what_they_view():
    x = gt.zeros(2, 3)
    x[0] = 1.0
    x.T[2] += 5.0
    assert x.tolist() == [[1.0, 1.0, 6.0], [0.0, 0.0, 5.0]]


def test_random_numbers_follow_from_the_seed_alone():
    gt.manual_seed(7)
    first = gt.rand(3).tolist()
    gt.manual_seed(7)
    print(gt.ones(2))  # prints, reads and layouts change no value
    assert gt.rand(3).tolist() == first


def test_gradients_by_the_tape():
    x = gt.tensor([1, 2, 3], requires_grad=True)
    (x * 2).sum().backward()
    assert str(x.grad.data.numpy()) == "[2. 2. 2.]"
    with gt.no_grad():
        x -= 0.5 * x.grad
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_a_network_learns_xor():
    gt.manual_seed(0)
    x = gt.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = gt.tensor([0, 1, 1, 0])
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(100):
        loss = nn.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(x).argmax(dim=1).tolist() == y.tolist()
    assert loss.item() < 0.1


def test_a_mistake_is_raised_at_its_line_in_pytorchs_words():
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(2x3 and 2x3\)"):
        gt.ones(2, 3) @ gt.ones(2, 3)


def test_a_failure_on_a_worker_names_the_line_that_failed():
    picked = gt.index_select(gt.arange(3), 0, gt.tensor([7]))  # nothing waits here
    with pytest.raises(gt.Error, match=r"index out of range(?s:.*)test_tour\.py:\d+"):
        (picked + 1).tolist()


def program(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_workers_give_the_same_numbers():
    code = """
import sys, gt
gt.gpu_workers(int(sys.argv[1]))
gt.manual_seed(0)
x, w = gt.distribute(gt.randn(7, 4), dim=0), gt.randn(4, 3, requires_grad=True)
(x @ w).relu().sum().backward()
print(gt.debug.stats()["workers"])
print([round(value, 4) for row in w.grad.tolist() for value in row])
"""
    (one, alone), (two, together) = (program(code, n).splitlines() for n in ("1", "2"))
    assert (one, two) == ("1", "2")
    assert alone == together


def test_everything_that_was_sent_can_be_read(tmp_path):
    file = tmp_path / "trace.txt"
    code = f"""
import os
os.environ["GT_INSTRUCTION_LOG"] = {str(file)!r}
import gt
with gt.signal.context("layer1"):
    print((gt.ones(2) + 1).tolist())
"""
    assert program(code) == "[2.0, 2.0]\n"
    lines = [line.split(" ~")[0] for line in file.read_text(encoding="utf-8").splitlines()]
    assert "%1 = add %0 1 @layer1" in lines  # as TENSOR[1] := ADD TENSOR[0] 1
