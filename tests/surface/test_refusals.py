"""Calls that PyTorch refuses, and their neighbours that it does not: results, or class and text.

A row is an expression, or statements that end in one; `m` is gt or torch.
"""

import builtins

import pytest
import torch

import gt

NORMS = [
    *(
        f"m.nn.GroupNorm({groups}, {channels})(m.ones({size}))"
        for groups, channels, size in [
            (3, 3, "1, 3"), (3, 3, "1, 3, 1"), (1, 3, "1, 3"), (1, 1, "1, 1"), (3, 3, "2, 3"),
            (2, 4, "2, 6"), (2, 4, "4"), (2, 4, "0, 4, 3"), (2, 4, "2, 4, 0"), (2, 4, "2, 4"),
        ]
    ),
    "m.nn.GroupNorm(3, 3).eval()(m.ones(1, 3, 1))", "m.nn.GroupNorm(3, 4)",
    *(
        f"m.nn.functional.group_norm({arguments})"
        for arguments in [
            "m.ones(1, 3), 3", "m.ones(2, 4), 3", "m.ones(2, 4), 0", "m.ones(2, 4), -2",
            "m.ones(2, 4), 2, m.ones(3)", "m.ones(2, 4), 2, bias=m.ones(3)",
            "m.ones(2, 4), 2, m.ones(4, 1)", "m.ones(2, 4).long(), 2",
            "m.ones(2, 4).double(), 2, m.ones(4)", "m.ones(2, 4), 2, m.ones(4).double()",
            "m.ones(2, 4).half(), 2, m.ones(4)", "m.ones(2, 4).half(), 2, m.ones(4).half()",
        ]
    ),
    *(
        f"m.nn.BatchNorm{layer}(m.ones({size}))"
        for layer, size in [
            ("1d(3)", "1, 3"), ("1d(3)", "1, 3, 1"), ("2d(3)", "1, 3, 1, 1"),
            ("3d(3)", "1, 3, 1, 1, 1"), ("1d(3)", "2, 4"), ("2d(3)", "2, 4, 2, 2"),
            ("1d(3)", "2, 4, 5"), ("1d(3, affine=False)", "2, 4"), ("1d(3)", "3"),
            ("1d(3, track_running_stats=False)", "2, 4"), ("1d(3).eval()", "2, 4"),
            ("1d(3, affine=False, track_running_stats=False)", "2, 4"), ("2d(3)", "3, 3"),
            ("1d(3)", "0, 3"), ("1d(3).eval()", "1, 3"),
        ]
    ),
    *(
        f"m.nn.functional.batch_norm({arguments})"
        for arguments in [
            "m.ones(2, 4), m.ones(3), m.ones(3)", "m.ones(2, 4), m.ones(4), m.ones(3)",
            "m.ones(2, 4), m.ones(4), m.ones(4), m.ones(3)",
            "m.ones(2, 4), m.ones(4), m.ones(4), bias=m.ones(3)",
            "m.ones(2, 4), None, None", "m.ones(2, 4), m.ones(4), None",
            "m.ones(2, 4), None, m.ones(4)", "m.ones(2, 4), m.ones(4), None, training=True",
            "m.ones(1, 4), None, None, training=True", "m.ones(4), m.ones(4), m.ones(4)",
            "m.ones(4), m.ones(4), m.ones(4), training=True",
            "m.ones(0, 4), m.ones(3), m.ones(3)", "m.ones(0, 4), m.ones(3), m.ones(3), m.ones(3)",
            "m.ones(2, 4).long(), m.ones(4), m.ones(4)",
            "m.ones(2, 4).double(), m.ones(4), m.ones(4)",
            "m.ones(2, 4), m.ones(4).double(), m.ones(4).double()",
            "m.ones(2, 4).double(), m.ones(4), m.ones(4), training=True",
            "m.ones(2, 4).half(), m.ones(4), m.ones(4), training=True",
            "m.ones(2, 4).half(), m.ones(4).half(), m.ones(4).half()",
        ]
    ),
    *(
        f"m.nn.functional.instance_norm({arguments})"
        for arguments in [
            "m.ones(2, 4, 3), weight=m.ones(3)", "m.ones(2, 4, 3), bias=m.ones(3)",
            "m.ones(2, 4, 3), m.ones(3), m.ones(3)", "m.ones(2, 4, 3), m.ones(4), m.ones(3)",
            "m.ones(2, 4, 3), m.ones(4)", "m.ones(2, 4, 3), use_input_stats=False",
            "m.ones(2, 4, 3), m.ones(3), m.ones(3), use_input_stats=False", "m.ones(2, 3, 1)",
        ]
    ),
    "m.nn.InstanceNorm1d(3, track_running_stats=True)(m.ones(2, 4, 2))",
    "m.nn.InstanceNorm1d(3, affine=True)(m.ones(2, 4, 2))", "m.nn.LayerNorm(3)(m.ones(2, 4))",
    "m.nn.functional.layer_norm(m.ones(2, 3), (3,), m.ones(2))", "m.nn.RMSNorm(3)(m.ones(2, 4))",
]  # fmt: skip
MASKS = [
    *(
        f"x = m.ones({size}); x[{index}] = {value}; x"
        for size, index, value in [
            ("3", "B", "5"), ("3", "B", "m.tensor([3.0, 4.0])"), ("3", "B", "m.tensor([3.0])"),
            ("3", "B", "m.tensor(3.0)"), ("3, 3", "B", "m.ones(3) * 2"), ("3, 3", "(B, 0)", "2"),
            ("3, 3", "(slice(None), B)", "2"), ("3, 3", "(..., B)", "2"),
            ("3, 3", "(None, B)", "2"),
            ("3, 3", "(B, B)", "2"), ("3, 3", "(B, B.bool())", "2"), ("3", "B.bool()", "5"),
            ("3, 3", "(B, m.tensor([0, 1]))", "2"), ("3", "B * 0", "2"), ("3", "B[:2]", "2"),
            ("0", "B[:0]", "2"), ("()", "B[0]", "2"), ("3", "B[0]", "2"), ("3", "B.numpy()", "2"),
            ("3", "B.char()", "1"), ("3", "B.short()", "1"), ("3", "B.float()", "1"),
        ]
    ),
    "m.ones(3)[B]", "m.ones(3)[B[:2]]", "m.ones(3).masked_fill(B, 2.0)",
    "m.ones(3).masked_select(B)", "m.ones(3).masked_scatter(B, m.ones(3))", "m.where(B, 1.0, 2.0)",
    "m.ones(3).index_put((B,), m.tensor(3.0))", "m.ones(3).index_put_((B,), m.tensor(3.0))",
    "m.ones(3).index_put((B,), m.tensor(3.0), accumulate=True)",
    "m.ones(3).index_put((B,), m.tensor([3.0, 4.0]))",
]  # fmt: skip
INDEXES = [
    *(f"m.ones(3).index_reduce(0, {rest})" for rest in [
        "m.tensor([0, 1]), m.ones(3), 'prod'", "m.tensor([0, 1]), m.ones(2), 'foo'",
        "m.tensor([[0, 1]]), m.ones(2), 'prod'", "m.tensor([0, 1]), m.ones(2).double(), 'prod'",
        "m.tensor([0.0, 1]), m.ones(2), 'prod'", "m.tensor([0, 1]), m.ones(2), 'prod'",
    ]),
    "m.ones(3, 2).index_reduce(0, m.tensor([0, 1]), m.ones(2, 3), 'mean')",
    "m.ones(3).index_add(0, m.tensor([0, 1]), m.ones(3))",
    "m.ones(3, 2).index_add(0, m.tensor([0, 1]), m.ones(2, 3))",
    "m.ones(3).index_add(0, m.tensor([0, 1]), m.ones(2).double())",
    "m.ones(3).index_copy(0, m.tensor([0, 1]), m.ones(3))",
    "m.ones(3, 2).index_copy(0, m.tensor([0, 1]), m.ones(2, 3))",
    "m.ones(3).index_copy(0, m.tensor([0, 1]), m.ones(2).double())",
    "m.ones(3).index_fill(0, m.tensor([0.0]), 1.0)",
    "m.ones(3).index_fill(0, m.tensor([0]), m.ones(2))",
    "m.ones(3).index_fill(0, m.tensor([0]), 1j)", "m.ones(3).take(m.tensor([0.0]))",
    "m.zeros(0).take(m.tensor([0]))", "m.zeros(0).take(m.tensor([], dtype=m.int64))",
    "m.ones(3).take(m.tensor([0], dtype=m.int32))",
    "m.ones(3).index_select(0, m.tensor([[0]]))", "m.ones(3).index_select(0, m.tensor([0.0]))",
    "m.ones(3).index_select(1, m.tensor([0]))", "m.ones(3).gather(0, m.tensor([[0]]))",
    "m.ones(3).scatter(0, m.tensor([0, 1]), m.ones(1))",
    "m.ones(3).scatter_reduce(0, m.tensor([0, 1]), m.ones(2), 'foo')",
    "m.heaviside(m.ones(2), m.ones(2).double())", "m.heaviside(m.ones(2), m.ones(2).int())",
    "m.ones(2).heaviside_(m.ones(2).double())", "m.heaviside(m.ones(2), m.ones(3))",
]  # fmt: skip
PRODUCTS = [
    f"m.tensordot({arguments})" for arguments in [
        "m.tensor(1.0), m.tensor(2.0), 0", "m.tensor(1.0), m.tensor(2.0), 1",
        "m.tensor(1.0), m.tensor(2.0), 2", "m.tensor(1.0), m.ones(2), 1",
        "m.ones(2), m.tensor(1.0), 1", "m.ones(2), m.tensor(1.0), 0", "m.ones(2), m.ones(3), 1",
        "m.ones(2), m.ones(2), 2", "m.ones(2), m.ones(2), -1", "m.ones(2), m.ones(2), ([0], [1])",
        "m.ones(2, 3), m.ones(3), ([0], [0])", "m.ones(2, 3), m.ones(3), ([0, 1], [0])",
        "m.ones(2, 3), m.ones(3).double(), 1", "m.ones(2, 2), m.ones(2, 2), ([0, 0], [0, 0])",
        "m.ones(2), m.ones(2), 1.5", "m.ones(2, 3), m.ones(1, 3), ([0, 1], [0, 1])",
        "m.ones(2, 3), m.ones(3, 2), ([-1], [-2])", "m.ones(2, 3), m.ones(2, 2), ([-1], [-2])",
    ]
]  # fmt: skip
EMPTY = [
    *(
        f"m.zeros({size}).norm({order}{dim})"
        for order in ("float('inf')", "-float('inf')", "-1", "-2.5", "0", "2", "0.5")
        for size, dim in [
            ("0", ""), ("0, 3", ", dim=0"), ("0, 3", ", dim=1"), ("3, 0", ", dim=1"),
            ("3, 0, 2", ", dim=(0, 1)"), ("3, 0, 2", ", dim=0"), ("0, 0", ", dim=1"),
            ("2, 0", ", dim=(0, 1)"), ("0", ", dim=0, keepdim=True"), ("2, 0", ", dim=[]"),
        ]
    ),
    *(
        f"m.zeros({size}).{call}"
        for size in ("0", "0, 2")
        for call in [
            "amax()", "amin(0)", "max()", "max(0)", "min()", "argmax()", "argmin(0)", "median()",
            "median(0)", "mean()", "var()", "std(0)", "prod()", "logsumexp(0)", "quantile(0.5)",
            "cummax(0)", "topk(1)", "sort()", "softmax(0)", "all()", "any(0)", "aminmax()",
            "half().norm(float('inf'))", "cfloat().norm(float('inf'))", "long().norm(2)",
        ]
    ),
    "m.dist(m.zeros(0), m.zeros(0), float('inf'))", "m.norm(m.zeros(0), p=float('inf'))",
    "m.linalg.vector_norm(m.zeros(0), float('inf'))", "m.linalg.norm(m.zeros(0, 0), 2)",
    "m.linalg.matrix_norm(m.zeros(0, 3), float('inf'))",
    "m.nn.functional.normalize(m.zeros(2, 0), p=float('inf'))",
]  # fmt: skip
RECORDED = [
    f"m.ones({size}, requires_grad=True).{call}.grad_fn.name()"
    for size, call in [
        ("2, 3", "view(6)"), ("2, 3", "reshape(6)"), ("2, 3", "flatten()"), ("2, 3", "ravel()"),
        ("2, 3", "view_as(m.ones(6))"), ("2, 3", "reshape_as(m.ones(6))"), ("2, 3", "view(2, 3)"),
        ("6", "unflatten(0, (2, 3))"), ("2, 3", "permute(1, 0)"), ("2, 3", "expand(2, 2, 3)"),
        ("2, 3", "diagonal()"), ("2, 3", "exp()"),
    ]
]  # fmt: skip
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64"]  # fmt: skip
NUMBERS = ["300", "-1", "2**40", "1e300", "2.5", "1j"]
FACTORS = [
    "m.addcmul(v, v, v, value={n})", "m.addcdiv(v, v, v, value={n})", "m.addmm(A, A, A, alpha={n})",
    "m.addmm(A, A, A, beta={n})", "m.addmv(v, A, v, alpha={n})", "m.addmv(v, A, v, beta={n})",
    "m.addr(A, v, v, alpha={n})", "m.addr(A, v, v, beta={n})",
    "v.clone().addcmul_(v, v, value={n})",
    "m.baddbmm(A[None], A[None], A[None], alpha={n})", "m.addbmm(A, A[None], A[None], alpha={n})",
    "m.add(v, v, alpha={n})", "v.clone().add_(v, alpha={n})", "m.full_like(v, {n})",
    "v.new_full((2,), {n})", "m.full((2,), {n}, dtype=v.dtype)", "v.masked_fill(v == v, {n})",
    "v.index_fill(0, m.tensor([0]), {n})", "v.clone().fill_({n})",
]  # fmt: skip


def value(made):
    if isinstance(made, gt.Tensor | torch.Tensor):
        kind = str(made.dtype).split(".")[1]
        return kind, tuple(made.shape), made.detach().cpu().tolist()
    return tuple(map(value, made)) if isinstance(made, tuple) else str(made)


def outcome(m, row):
    """Result of a row; or its error's class and the first line of PyTorch's text."""
    *statements, last = row.split("; ")
    names = {"m": m, "B": m.tensor([1, 0, 1], dtype=m.uint8)}
    try:
        exec("; ".join(statements), names)
        return value(eval(last, names))
    except Exception as error:  # noqa: BLE001 - whichever it is, it is compared
        kinds = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        assert hasattr(builtins, kinds[0].__name__)
        text = str(error).split("; ")[0].replace("gt.Size", "torch.Size")
        return kinds[0].__name__, text.split("\n")[0].rstrip()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [*NORMS, *MASKS, *INDEXES, *PRODUCTS, *EMPTY, *RECORDED])
def test_a_row_is_as_in_pytorch(row):
    assert str(outcome(gt, row)) == str(outcome(torch, row))  # as text, since NaN is not NaN


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", FACTORS)
def test_numbers_that_a_dtype_has_not(expression):
    differ = []
    for dtype in DTYPES:
        for number in NUMBERS:
            made = f"v = m.ones(2).to(m.{dtype}); A = m.ones(2, 2).to(m.{dtype}); "
            row = made + expression.format(n=number)
            ours, theirs = outcome(gt, row), outcome(torch, row)
            if str(ours) != str(theirs) and "not implemented" not in str(theirs):
                differ.append((dtype, number, ours, theirs))
    assert not differ
