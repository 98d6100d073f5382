"""A worker's first questions about operators import neither PyTorch's compiler nor sympy."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import json, sys
import torch
from gt.worker.pytorch import light_dynamo
from gt.worker.pytorch import generic as torch_aten
from gt.worker.pytorch.dtypes import DTYPES

answers = []
for overload, text, shapes in json.loads(sys.argv[1]):
    described = [n for s in shapes for n in (DTYPES.index(torch.float32), len(s), *s)]
    answer = torch_aten._asked([], overload, text, described, list(range(len(shapes))))
    loaded = [name for name in ("torch._dynamo", "sympy") if name in sys.modules]
    answers.append([answer, loaded])
assert "_dynamo" not in vars(torch)
with light_dynamo.in_place_of_dynamo():
    import torch._dynamo
    assert torch._dynamo.disable(len) is len
    assert torch._dynamo.config is sys.modules["torch._dynamo.config"]  # asks for the compiler
    assert not isinstance(sys.modules["torch._dynamo"], light_dynamo.LightDynamo)
print(json.dumps(answers))
"""
# Those of GT's own are tried on zeros; PyTorch's have kernels without values, which ask for sympy.
QUESTIONS = [
    ("lstm_layer", "_0, _1, _2, _3, False", [[3, 2, 16], [2, 4], [2, 4], [16, 4]]),
    ("mm", "_0, _1", [[2, 3], [3, 4]]),
    ("lerp.Scalar", "_0, _1, 0.5", [[2, 3], [2, 3]]),
]
RESULTS = [[8, 3, 3, 2, 4], [8, 2, 2, 4], [8, 2, 2, 3]]


@pytest.mark.timeout(180)
def test_the_first_questions():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(QUESTIONS)], capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    answers = json.loads(done.stdout)
    for (answer, loaded), results in zip(answers, RESULTS, strict=True):
        assert answer["results"][: len(results)] == results
        assert "torch._dynamo" not in loaded
    assert not answers[0][1]
