"""Operators of PyTorch's on shards: every letter of every line of aten/cuts.txt is cut over two
workers; values and gradients are those of PyTorch, and nothing is gathered.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from spread_session import workers

import gt
from gt import _core
from gt.aten import call, cuts, schemas
from gt.worker.pytorch import own as torch_own

# Sizes of 5 and 3: shards are of unequal sizes.
N, C, OUT = 5, 4, 3
ROWS, PLANE, VOLUME = (N, C, 9), (N, C, 8, 7), (3, C, 6, 5, 6)
MATRICES, HEADS = (3, 2, 4, 4), (N, 3, 4, 6)
# Arguments after the operands, and shapes of these; a word before a shape says what it holds.
Sample = tuple[tuple[object, ...], list[object]]

FLOAT32 = 8
# Fourier transforms of complex numbers, and of the halves of real ones' transforms.
COMPLEX = dict.fromkeys(("fft", "ifft", "irfft", "hfft"), "complex")


def convolution(*sizes: int) -> list[Sample]:
    """With and without groups, with a batch and without, with a bias and without."""
    image, kernel = (N, C, *sizes), (3,) * len(sizes)
    ones, zeros = [1] * len(sizes), [0] * len(sizes)
    return [
        ((ones, ones, ones, 1), [image, (OUT, C, *kernel), (OUT,)]),
        ((ones, zeros, ones, 2), [image, (6, C // 2, *kernel), (6,)]),
        ((), [image[1:], (OUT, C, *kernel)]),
    ]


def transposed(*sizes: int) -> list[Sample]:
    image, kernel = (N, C, *sizes), (2,) * len(sizes)
    ones, zeros = [1] * len(sizes), [0] * len(sizes)
    return [
        ((ones, zeros, zeros, 1, ones), [image, (C, OUT, *kernel), (OUT,)]),
        ((ones, zeros, zeros, 2, ones), [image, (C, OUT, *kernel), (6,)]),
    ]


def padded(samples: list[Sample]) -> list[Sample]:
    with_words = [
        ((args[0], "same", *args[2:]) if args else args, shapes) for args, shapes in samples
    ]
    return [sample for sample in with_words if sample[0]]


def unpooled(*sizes: int) -> list[object]:
    """Values, and places that differ."""
    return [(3, C, *sizes), ("places", (3, C, *sizes))]


SAMPLES: dict[str, list[Sample]] = {
    "conv1d": convolution(9),
    "conv2d": convolution(8, 7),
    "conv3d": convolution(5, 6, 5),
    "conv1d.padding": padded(convolution(9)),
    "conv2d.padding": padded(convolution(8, 7)),
    "conv3d.padding": padded(convolution(5, 6, 5)),
    "conv_transpose1d": transposed(9),
    "conv_transpose2d.input": transposed(5, 6),
    "conv_transpose3d.input": transposed(3, 4, 3),
    "max_unpool2d": [(([4, 6],), unpooled(2, 3))],
    "max_unpool3d": [(([4, 6, 4], [2, 2, 2], [0, 0, 0]), unpooled(2, 3, 2))],
    "fractional_max_pool2d": [(([2, 2], [4, 3]), [PLANE, ("fixed", (N, C, 2))])],
    "fractional_max_pool3d": [(([2, 2, 2], [3, 2, 3]), [VOLUME, ("fixed", (3, C, 3))])],
    "grid_sampler": [
        ((0, 0, False), [PLANE, (N, 3, 3, 2)]),
        ((0, 0, True), [VOLUME, (3, 2, 3, 2, 3)]),
    ],
    "im2col": [(([2, 3], [1, 1], [1, 0], [2, 1]), [PLANE])],
    "col2im": [(([6, 6], [2, 2], [1, 1], [0, 0], [2, 2]), [(N, 16, 9)])],
    "pixel_shuffle": [((2,), [(3, 8, 3, 3)])],
    "pixel_unshuffle": [((3,), [(5, 2, 6, 6)])],
    "channel_shuffle": [((2,), [PLANE])],
    "glu": [((1,), [PLANE])],
    "linalg_cross": [(({"dim": 1},), [(5, 3, 2), (5, 3, 1)])],
    # Operators as rows call them for complex numbers.
    "matmul": [
        ((), [one, other])
        for one, other in (
            ((5, 4), (4, 3)), ((3, 5, 4), (4, 3)), ((2, 1, 5, 4), (3, 4, 3)), ((3, 5, 4), (4,)),
            ((4,), (3, 4, 5)), ((5,), (5,)),
        )
    ],
    **{name: [((), [(3, 5), (5,)])] for name in ("complex", "polar")},
    "view_as_real_copy": [((), [("complex", (3, 5))])],
    "linear": [((), [(3, 5, 4), (OUT, 4), (OUT,)])],
    "cdist": [((), [(3, 5, 4), (3, 7, 4)]), ((1.0,), [(5, 4), (3, 4)])],
    "bilinear": [((), [(N, 3), (N, 4), (OUT, 3, 4), (OUT,)])],
    "searchsorted.Tensor": [
        ((), [("sorted", (3, 6)), (3, 5)]), ((), [("sorted", (6,)), (3, 5)]),
        ((), [("sorted", (6,)), (5,)]),
    ],
    "isin.Tensor_Tensor": [
        ((), [("seeds", (3, 5)), ("seeds", (2, 5))]), ((), [("fixed", (5,)), ("fixed", (7,))]),
        ((), [("seeds", (3, 5)), ("seeds", ())]),
    ],
    "isin.Tensor_Scalar": [((0.5,), [("fixed", (3, 5))])],
    "msort": [((), [(4, 3, 5)])],
    "linalg_vander": [((), [("fixed", (3, 5))])],
    "linalg_vecdot": [
        (({"dim": dim},), [(3, 5, 4), (3, 1, 4)]) for dim in (-1, 2, 0)
    ],
    "cosine_similarity": [((1,), [(3, 5, 4), (3, 5, 1)]), ((-1,), [(3, 5, 4), (1, 5, 4)])],
    "pairwise_distance": [
        ((2.0, 1e-6, keep), [(3, 5, 4), (5, 4)]) for keep in (False, True)
    ],
    "multi_margin_loss": [
        ((1, 1, at), [(N, 4), ("classes", (N,)), ("fixed", (4,))]) for at in (0, 2)
    ],
    "multilabel_margin_loss": [((at,), [(N, 4), ("classes", (N, 4))]) for at in (0, 2)],
    "gradient.scalarint": [(({"dim": 1},), [(3, 5, 4)])],
    **{f"special_{name}": [((), [("fixed", (3, 5)), (5,)])] for name in ("gammainc", "gammaincc")},
    **{
        f"fft_{name}{kind}": [((None, dim), [(COMPLEX.get(name, ""), (3, 5, 4, 6))])]
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for kind, dim in (("", 2), ("2", [-1, 1]), ("n", [1, 2]))
    },
    **{f"fft_{name}": [(([1],), [(3, 5, 4)])] for name in ("fftshift", "ifftshift")},
    "stft.center": [((8, 2, None, True, "reflect", False, True, True), [(3, 20), ("fixed", (8,))])],
    "bucketize.Tensor": [((), [(3, 5), ("sorted", (6,))])],
    "linalg_solve": [
        ((), [MATRICES, (2, 4, 3)]), (({"left": False},), [MATRICES, (2, 3, 4)]),
        ((), [MATRICES, (3, 2, 4)]), ((), [(4, 4), (4, 3)]),
    ],
    "linalg_solve_triangular": [
        (({"upper": True},), [("triangular", (3, 4, 4)), (3, 4, 2)]),
        (({"upper": True, "left": False},), [("triangular", (3, 4, 4)), (3, 2, 4)]),
    ],
    "linalg_lu_solve": [((), [MATRICES, ("pivots", MATRICES[:-1]), (3, 2, 4, 3)])],
    "linalg_householder_product": [((), [MATRICES, MATRICES[:-1]])],
    "linalg_matrix_norm": [((2, dim), [MATRICES]) for dim in ([-2, -1], [0, 3])],
    "linalg_matrix_norm.str_ord": [(("nuc", [-2, -1], keep), [MATRICES]) for keep in (False, True)],
    "linalg_matrix_rank": [((0.1,), [MATRICES])],
    "linalg_matrix_rank.atol_rtol_float": [((), [MATRICES])],
    **{f"linalg_{name}_ex": [((), [("positive", MATRICES)])] for name in ("inv", "cholesky")},
    "cholesky_solve": [((True,), [(3, 4, 2), ("triangular", (3, 4, 4))])],
    "cholesky_inverse": [((True,), [("triangular", (3, 4, 4))])],
    "linalg_cholesky": [((), [("positive", MATRICES)])],
    "linalg_eigh": [((), [("positive", MATRICES)])],
    "linalg_eigvalsh": [((), [("positive", MATRICES)])],
    "linalg_matrix_power": [((3,), [MATRICES])],
    "logdet": [((), [("positive", MATRICES)])],
    "linalg_svd": [((False,), [MATRICES])],
    "linalg_lu": [((), [MATRICES])],
    "linalg_lu_factor": [((), [MATRICES])],
    **{
        f"linalg_{name}": [((), [MATRICES])]
        for name in (
            "inv", "pinv.atol_rtol_float", "matrix_exp", "det", "slogdet", "qr", "svdvals",
            "cond", "eig", "eigvals",
        )
    },
    **{name: [((1,), [(3, 5, 4)])] for name in ("cummax", "cummin", "cumprod", "logcumsumexp")},
    **{
        f"{name}{len(shape) - 2}d": [((sizes[: len(shape) - 2],), [shape])]
        for name, sizes in (
            ("avg_pool", [2, 2, 2]), ("max_pool", [2, 2, 2]), ("adaptive_avg_pool", [3, 2, 3]),
            ("adaptive_max_pool", [3, 2, 3]),
        )
        for shape in (ROWS, PLANE, VOLUME)
    },
    **{
        f"max_pool{len(shape) - 2}d_with_indices": [(([2] * (len(shape) - 2),), [shape])]
        for shape in (ROWS, PLANE, VOLUME)
    },
    **{
        f"{name}_pad{len(shape) - 2}d": [(([1, 2] * (len(shape) - 2),), [shape])]
        for name in ("reflection", "replication")
        for shape in (ROWS, PLANE, VOLUME)
    },
    **{
        f"{name}.vec": [((None, *corners, [1.5] * (len(shape) - 2)), [shape])]
        for name, shape, corners in (
            ("upsample_nearest1d", ROWS, ()), ("upsample_nearest2d", PLANE, ()),
            ("upsample_nearest3d", VOLUME, ()), ("_upsample_nearest_exact1d", ROWS, ()),
            ("_upsample_nearest_exact2d", PLANE, ()), ("_upsample_nearest_exact3d", VOLUME, ()),
            ("upsample_linear1d", ROWS, (False,)), ("upsample_bilinear2d", PLANE, (True,)),
            ("upsample_bicubic2d", PLANE, (False,)), ("upsample_trilinear3d", VOLUME, (False,)),
            ("_upsample_bilinear2d_aa", PLANE, (False,)),
            ("_upsample_bicubic2d_aa", PLANE, (False,)),
        )
    },
    # GT's own.
    "attention": [
        ((causal, 0.25, 0.5), [HEADS, sources, sources, *masks])
        for causal, sources, *masks in (
            (False, (N, 3, 7, 6)), (False, (N, 3, 7, 6), ("fixed", (4, 7))),
            (False, (N, 3, 7, 6), ("fixed", (N, 1, 4, 7))), (True, HEADS),
            (False, (N, 3, 7, 6), ("fixed", (1, 3, 4, 7))), (False, HEADS, ("fixed", (1, 1, 1, 4))),
            (False, (N, 3, 7, 6), ("fixed", (4, 7)), ("seeds", HEADS[:3])),
            (True, HEADS, ("fixed", (1, 1, 1, 4)), ("seeds", HEADS[:3])),
        )
    ],
    "lstm_layer": [((reverse,), [(4, N, 8), (N, 2), (N, 2), (8, 2)]) for reverse in (False, True)],
    "lstm_projected": [
        ((reverse,), [(4, N, 8), (N, 1), (N, 2), (8, 1), (1, 2)]) for reverse in (False, True)
    ],
    "gru_layer": [
        ((False,), [(4, N, 6), (N, 2), (6, 2), (6,)]), ((True,), [(4, N, 6), (N, 2), (6, 2)]),
    ],
    "rnn_layer": [((relu, not relu), [(4, N, 2), (N, 2), (2, 2)]) for relu in (False, True)],
    # Pointwise ones, which torch tags: with several operands that broadcast, and several results.
    "lgamma": [((), [(3, 5)])],
    "hypot": [((), [(3, 5, 2), (5, 1)])],
    "frexp.Tensor": [((), [(3, 5)])],
}  # fmt: skip


def made(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    values = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1
    is_square = len(shape) > 1 and shape[-1] == shape[-2]
    square = values + 3 * torch.eye(shape[-1], dtype=values.dtype) if is_square else values
    count = shape[-1] if shape else 1
    kinds: dict[str, Callable[[], torch.Tensor]] = {
        "": lambda: square - 0.3,
        "fixed": lambda: values.clamp(max=0.95),
        "complex": lambda: torch.complex(values, values.flip(0)),
        "places": lambda: torch.arange(values[0, 0].numel()).reshape(shape[2:]).expand(shape) + 0,
        "sorted": lambda: values.sort().values,
        "positive": lambda: square @ square.mT,
        "classes": lambda: (values * 10).long() % 4,
        "pivots": lambda: torch.arange(1, count + 1, dtype=torch.int32).expand(shape) + 0,
        "seeds": lambda: torch.randint(0, 2**63 - 1, shape, generator=generator),
        "triangular": square.triu,
    }
    return kinds[kind]()


@pytest.fixture(scope="module", autouse=True)
def two_workers() -> Iterator[None]:
    with workers(2):
        yield


def test_each_line_has_a_sample() -> None:
    assert set(SAMPLES) >= cuts.overloads()
    pointwise = set(SAMPLES) - cuts.overloads()
    assert all(schema.is_pointwise for name in pointwise for schema in [schema_of(name)])


def schema_of(overload: str) -> schemas.Schema:
    name = overload.partition(".")[0]
    return next(schema for schema in schemas.of(name) if schema.overload == overload)


def arguments(
    overload: str, tensors: list[object], args: tuple[object, ...]
) -> tuple[list[object], dict[str, object]]:
    """In the schema's order, tensors that are missing as absent; a dictionary at the end names."""
    named = args[-1] if args and isinstance(args[-1], dict) else {}
    left, rest = iter(tensors), iter(args[:-1] if named else args)
    return [
        next(left, None) if argument.type.startswith("Tensor") else next(rest, argument.default)
        for argument in schema_of(overload).arguments
        if not argument.is_keyword
    ], named


def gathers() -> int:
    counts = gt.debug.stats()
    return counts["all_gathers"] + counts["all_to_alls"]


@pytest.mark.parametrize("overload", SAMPLES)
def test_what_is_cut_stays_cut(overload: str) -> None:
    checked = 0
    for args, descriptions in SAMPLES[overload]:
        kinds = [x if isinstance(x[0], str) else ("", x) for x in descriptions]
        operands = [made(kind, shape) for kind, shape in kinds]
        leaves = [
            x.clone().requires_grad_(x.is_floating_point() and kind != "fixed")
            for x, (kind, _) in zip(operands, kinds, strict=True)
        ]
        results = torch_call(overload, *arguments(overload, leaves, args))
        numbers = letters_of(overload, operands, args, results)
        width = len(operands) + len(results)
        for start in range(0, len(numbers), width):
            check(overload, args, leaves, results, numbers[start : start + width])
            checked += 1
    assert checked


def squares(x: torch.Tensor) -> torch.Tensor:
    return (x * x.conj()).real.sum() if x.is_complex() else (x * x).sum()


def torch_call(overload: str, args: list[object], named: dict[str, object]) -> list[torch.Tensor]:
    name, _, variant = overload.partition(".")
    function = torch_own.FORWARD.get(name)
    function = function or getattr(getattr(torch.ops.aten, name), variant or "default")
    results = function(*args, **named)
    return [results] if isinstance(results, torch.Tensor) else list(results)


def letters_of(
    overload: str, operands: list[torch.Tensor], args: tuple[object, ...], results: list[object]
) -> list[int]:
    bound, named = arguments(overload, [gt.from_numpy(x.numpy()) for x in operands], args)
    schema = schema_of(overload)
    bound += [named.get(x.name, x.default) for x in schema.arguments if x.is_keyword]
    stated = [number for x in results for number in (FLOAT32, x.dim(), *x.shape)]
    return cuts.cuts(schema, bound, stated)


def check(
    overload: str,
    args: tuple[object, ...],
    leaves: list[torch.Tensor],
    results: list[torch.Tensor],
    letter: list[int],
) -> None:
    """Run with operands that are sharded at one letter; the other operands are whole."""
    ours = []
    for leaf, dim in zip(leaves, letter, strict=False):
        x = gt.from_numpy(leaf.detach().numpy())
        x = gt.distribute(x, dim=dim) if dim >= 0 else x
        ours.append(x.requires_grad_(leaf.requires_grad))
    before = gathers()
    found = call.call(overload.partition(".")[0], *arguments(overload, ours, args))
    found = [found] if isinstance(found, gt.Tensor) else list(found)
    pairs = [(x, y) for x, y in zip(found, results, strict=True) if y.requires_grad]
    wanted = [(x, y) for x, y in zip(ours, leaves, strict=True) if y.requires_grad]
    theirs_grads = ours_grads = ()
    if pairs:
        ours_loss = sum(squares(x) for x, _ in pairs)
        ours_grads = gt.autograd.grad(ours_loss, [x for x, _ in wanted], allow_unused=True)
        theirs_loss = sum(squares(y) for _, y in pairs)
        theirs_grads = torch.autograd.grad(
            theirs_loss, [y for _, y in wanted], allow_unused=True, retain_graph=True
        )
    assert gathers() == before, f"{overload} {args} {letter}: something was gathered"
    for one, other in zip([*found, *ours_grads], [*results, *theirs_grads], strict=True):
        if other is None:
            assert one is None
            continue
        torch.testing.assert_close(
            torch.from_numpy(one.detach().numpy()), other.detach(), rtol=1e-9, atol=1e-9
        )


def test_a_network_over_two_workers_gathers_nothing() -> None:
    layers = gt.nn.Sequential(
        gt.nn.Conv2d(1, 4, 3, padding=1), gt.nn.ReLU(), gt.nn.MaxPool2d(2),
        gt.nn.Conv2d(4, 8, 3), gt.nn.GELU(), gt.nn.AvgPool2d(2), gt.nn.Upsample(scale_factor=2),
        gt.nn.AdaptiveAvgPool2d(2), gt.nn.Flatten(), gt.nn.Linear(32, 3),
    )  # fmt: skip
    images = gt.distribute(gt.randn(6, 1, 12, 12), dim=0)
    labels = gt.distribute(gt.arange(6) % 3, dim=0)
    optimizer = gt.optim.SGD(layers.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        before = gathers()
        optimizer.zero_grad()
        loss = gt.nn.functional.cross_entropy(layers(images), labels)
        loss.backward()
        optimizer.step()
        assert gathers() == before
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("cut", [(0, None), (None, 1), (1, 0)], ids=str)
def test_products_of_complex_numbers_stay_cut(cut: tuple[int | None, int | None]) -> None:
    parts = torch.linspace(-2, 3, 40, dtype=torch.float64).reshape(2, 5, 4)
    found = []
    for lib in (gt, torch):
        values = [parts, parts.mT * 0.5]
        operands = [
            lib.complex(*(lib.tensor(x.tolist(), dtype=lib.float64) for x in value))
            for value in values
        ]
        if lib is gt:
            operands = [
                x if dim is None else gt.distribute(x, dim=dim)
                for x, dim in zip(operands, cut, strict=True)
            ]
        a, b = (x.detach().requires_grad_() for x in operands)
        before = gathers()
        product = a @ b
        grads = lib.autograd.grad((product * product.conj()).real.sum(), [a, b])
        assert gathers() == before
        found.append([product.detach().tolist(), *(x.tolist() for x in grads)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))


def test_a_second_derivative_stays_cut() -> None:
    weight = torch.linspace(-1, 1, 27, dtype=torch.float64).reshape(3, 1, 3, 3)
    image = torch.linspace(-2, 3, 4 * 36, dtype=torch.float64).reshape(4, 1, 6, 6)
    found = []
    for lib in (gt, torch):
        w = lib.tensor(weight.tolist(), dtype=lib.float64, requires_grad=True)
        x = lib.tensor(image.tolist(), dtype=lib.float64)
        x = (gt.distribute(x, dim=0) if lib is gt else x).requires_grad_()
        before = gathers()
        y = lib.nn.functional.max_pool2d(lib.nn.functional.conv2d(x, w), 2)
        (first,) = lib.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad((first * first).sum(), w)
        assert gathers() == before
        found.append(second.tolist())
    torch.testing.assert_close(*map(torch.tensor, found))


# Nothing, no whole number of letters, dimensions that are not there or of another size, numbers
# without a meaning.
FALSE_CUTS = [[], [0], [0, 0, 0], [7, 7], [0, 1], [-9, 0], [0, -9], [0, -3], [2**40, -(2**40)]]


@pytest.mark.parametrize("stated", FALSE_CUTS)
def test_cuts_that_cannot_be_are_not_made(stated: list[int]) -> None:
    x = gt.distribute(gt.arange(15.0).reshape(5, 3), dim=0)
    assert emitted(x, stated).tolist() == torch.arange(15.0).reshape(5, 3).exp().tolist()


def test_cuts_that_are_false_give_a_number_that_is_false() -> None:
    """A false cut gives a false result: each worker flips its own shard, unchecked."""
    x = gt.distribute(gt.arange(4.0, 0, -1), dim=0)
    assert emitted(x, [0, 0], "flip", "_0, [0]").tolist() == [3.0, 4.0, 1.0, 2.0]
    doubled = emitted(gt.distribute(gt.ones(4), dim=0), [0, -2])
    with pytest.raises(gt.Error, match="was expected"):
        doubled.tolist()


def emitted(x: gt.Tensor, stated: list[int], overload: str = "exp", text: str = "_0") -> gt.Tensor:
    made = _core.call(
        "aten", x, overload=overload, arguments=text, wanted=[],
        results=[FLOAT32, x.ndim, *x.shape], differentiable=False, default=gt.float32,
        cuts=stated,
    )  # fmt: skip
    assert isinstance(made, gt.Tensor)
    return made
