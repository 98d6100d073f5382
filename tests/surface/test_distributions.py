"""gt.distributions beside torch.distributions: values, gradients, shapes, texts and errors."""

import subprocess
import sys
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributions
from distribution_cases import DISCRETE, EVERY, OTHER, PAIRS, WRONG
from torch.distributions.kl import _KL_REGISTRY

import gt
import gt.distributions

# PyTorch's Wishart takes its own samples for singular ones, and warns.
pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected")
# PyTorch takes polynomials for Bessel functions.
COARSE = {"von mises": 1e-4}
SIDES = {"torch": (torch, torch.distributions), "gt": (gt, gt.distributions)}


class Made:
    """A distribution of one side with the leaves of its parameters."""

    def __init__(self, side, make):
        self.module, self.space = SIDES[side]
        self.leaves = []
        self.is_single = make is EVERY["generalized pareto"]  # PyTorch's takes no float64
        self.dist = make(self.space, self.leaf)

    def leaf(self, values):
        dtype = self.module.float32 if self.is_single else self.module.float64
        made = self.module.tensor(values, dtype=dtype, requires_grad=True)
        self.leaves.append(made)
        return made

    def tensor(self, values):
        return self.module.tensor(values)


def both(make):
    return Made("torch", make), Made("gt", make)


def said(text):
    return text.replace("torch.", "").replace("gt.", "")


def outcome(function):
    """A value, or the class of the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function()
    except (NotImplementedError, AttributeError, RuntimeError, ValueError) as error:
        return type(error)


def same(got, want, what, rtol=1e-7, atol=1e-9):
    if not isinstance(want, type) and want.dtype == torch.float32:
        rtol, atol = max(rtol, 1e-5), max(atol, 1e-5)
    if isinstance(want, type):
        assert isinstance(got, type), (what, got, want)
        assert issubclass(got, want), (what, got, want)
        return
    assert not isinstance(got, type), (what, got, want)
    assert tuple(got.shape) == tuple(want.shape), what
    assert repr(got.dtype).removeprefix("gt.") == repr(want.dtype).removeprefix("torch."), what
    np.testing.assert_allclose(
        got.detach().numpy(), want.detach().numpy(), rtol, atol, err_msg=str(what)
    )


def gradients(made, result, further=()):
    """Gradients of a weighted sum of `result`, for the leaves that it depends on."""
    weights = made.tensor(np.cos(np.arange(result.numel())).reshape(result.shape).tolist())
    inputs = [*made.leaves, *further]
    if not result.requires_grad:
        return [None] * len(inputs)
    return made.module.autograd.grad(
        (result * weights).sum(), inputs, retain_graph=True, allow_unused=True
    )


def same_gradients(pair, results, what, further=((), ()), rtol=1e-6, atol=1e-8):
    all_gradients = [gradients(m, r, f) for m, r, f in zip(pair, results, further, strict=True)]
    for at, (want, got) in enumerate(zip(*all_gradients, strict=True)):
        if got is not None and want is not None:
            same(got, want, (what, "gradient", at), rtol, atol)
        else:  # nothing on one side is zeros on the other
            assert all(g is None or g.abs().max() == 0 for g in (got, want)), (what, at, got, want)


def values_of(made, name):
    """Samples of torch's distribution, as both sides' leaves."""
    torch.manual_seed(3)
    value = made.dist.sample((4,)).detach()
    is_leaf = value.is_floating_point() and name not in DISCRETE
    ours = gt.tensor(value.numpy().copy())
    return value.requires_grad_(is_leaf), ours.requires_grad_(is_leaf)


@pytest.mark.parametrize("name", EVERY)
def test_shapes_and_moments(name):
    want, got = both(EVERY[name])
    a, b = want.dist, got.dist
    for fact in ("batch_shape", "event_shape", "has_rsample", "has_enumerate_support"):
        have = getattr(b, fact)
        expected = getattr(a, fact)
        assert (tuple(have) if "shape" in fact else have) == (
            tuple(expected) if "shape" in fact else expected
        ), fact
    assert said(repr(b)) == said(repr(a))
    assert said(str(b.arg_constraints)) == said(str(a.arg_constraints))
    assert type(b.support).__name__ == type(a.support).__name__
    assert (b.support.event_dim, b.support.is_discrete) == (
        a.support.event_dim, a.support.is_discrete,
    )  # fmt: skip
    for fact in ("mean", "mode", "variance", "stddev"):
        pair = [outcome(lambda d=d, fact=fact: getattr(d, fact)) for d in (a, b)]
        same(pair[1], pair[0], fact, COARSE.get(name, 1e-7))
        if fact in {"mean", "variance"} and not isinstance(pair[0], type):
            same_gradients((want, got), pair, fact, rtol=COARSE.get(name, 1e-6))


@pytest.mark.parametrize("name", EVERY)
def test_log_prob_and_cdf(name):
    want, got = both(EVERY[name])
    x, y = values_of(want, name)
    results = want.dist.log_prob(x), got.dist.log_prob(y)
    rtol = COARSE.get(name, 1e-6)
    same(results[1], results[0], "log_prob", rtol)
    further = ((x,), (y,)) if x.requires_grad else ((), ())
    same_gradients((want, got), results, "log_prob", further, rtol, rtol / 100)
    share = torch.rand(4, *want.dist.batch_shape, *want.dist.event_shape).to(
        x.dtype if x.is_floating_point() else torch.float64
    )
    for fact, places in {"cdf": (x, y), "icdf": (share, gt.tensor(share.numpy()))}.items():
        results = [
            outcome(lambda m=m, fact=fact, at=at: getattr(m.dist, fact)(at))
            for m, at in zip((want, got), places, strict=True)
        ]
        same(results[1], results[0], fact, 1e-6)
        if not isinstance(results[0], type) and not isinstance(
            outcome(lambda r=results[0]: gradients(want, r)), type
        ):
            same_gradients((want, got), results, fact)


@pytest.mark.parametrize("name", EVERY)
def test_entropy_and_expand(name):
    want, got = both(EVERY[name])
    entropies = outcome(want.dist.entropy), outcome(got.dist.entropy)
    same(entropies[1], entropies[0], "entropy", 1e-6)
    if not isinstance(entropies[0], type):
        same_gradients((want, got), entropies, "entropy")
        same(got.dist.perplexity(), want.dist.perplexity(), "perplexity", 1e-6)
    x, y = values_of(want, name)
    wide = tuple(outcome(lambda m=m: m.dist.expand((2, *m.dist.batch_shape))) for m in (want, got))
    if isinstance(wide[0], type):
        same(wide[1], wide[0], "expand")
        return
    assert tuple(wide[1].batch_shape) == tuple(wide[0].batch_shape)
    assert type(wide[1]).__name__ == type(wide[0]).__name__
    x, y = x.detach(), y.detach()
    probabilities = wide[0].log_prob(x[:2]), wide[1].log_prob(y[:2])
    same(probabilities[1], probabilities[0], "of the expanded", COARSE.get(name, 1e-6))
    same(outcome(lambda: wide[1].mean), outcome(lambda: wide[0].mean), "mean of the expanded")
    assert tuple(wide[1].sample((3,)).shape) == tuple(wide[0].sample((3,)).shape)


@pytest.mark.parametrize("name", DISCRETE)
def test_enumerated_support(name):
    want, got = both(DISCRETE[name])
    for expand in (True, False):
        results = [outcome(lambda m=m: m.dist.enumerate_support(expand)) for m in (want, got)]  # noqa: B023
        same(results[1], results[0], "support")


@pytest.fixture
def validated() -> Iterator[None]:
    """PyTorch's compiler switches the checks of distributions off for the process it runs in."""
    torch.distributions.Distribution.set_default_validate_args(True)
    yield
    torch.distributions.Distribution.set_default_validate_args(__debug__)


@pytest.mark.usefixtures("validated")
@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_told_as_in_pytorch(what):
    errors = []
    for side in SIDES:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the texts are compared
            Made(side, WRONG[what])
        errors.append(caught.value)
    want, got = errors
    assert isinstance(got, type(want))
    texts = [said(str(error)).partition("invalid values:")[0] for error in errors]
    assert texts[1] == texts[0]


def registered():
    return [
        (p.__name__, q.__name__)
        for p, q in _KL_REGISTRY
        if p.__name__ in PAIRS and q.__name__ in OTHER
    ]


@pytest.mark.parametrize(("p", "q"), registered())
def test_divergence(p, q):
    results, pair = [], []
    for side in SIDES:
        first = Made(side, PAIRS[p])
        first.other = OTHER[q](first.space, first.leaf)
        pair.append(first)
        results.append(first.space.kl_divergence(first.dist, first.other))
    same(results[1], results[0], (p, q), 1e-6, 1e-9)
    if not np.isfinite(results[0].detach().numpy()).all():
        return  # an infinite divergence has no gradient to speak of
    same_gradients(pair, results, (p, q), rtol=1e-5, atol=1e-7)


def test_every_pair_of_classes_is_covered():
    from gt.distributions.kl import _registered

    want = {
        (p.__name__, q.__name__)
        for p, q in _KL_REGISTRY
        if hasattr(gt.distributions, p.__name__) and hasattr(gt.distributions, q.__name__)
    }
    assert {(p.__name__, q.__name__) for p, q in _registered} == want


def test_the_package_loads_at_its_first_use():
    program = (
        "import sys, gt; assert 'gt.distributions' not in sys.modules; "
        "print(gt.distributions.Normal(0.0, 1.0).mean.shape)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "gt.Size([])\n", run.stderr


def test_a_class_of_the_users():
    """Its divergence is registered, or follows from its log normalizer; expand needs no method."""
    results = []
    for module, space in SIDES.values():

        class Own(space.Normal):
            def entropy(self, family=space.ExponentialFamily):
                return family.entropy(self)

        p, q = Own(module.tensor([0.5]), 2.0), Own(1.0, 1.5)
        results.append([p.entropy(), space.kl_divergence(p, q), p.expand((2, 1)).entropy()])
        with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass"):
            gt.distributions.register_kl(int, Own)
        bregman = space.kl.register_kl(Own, Own)(
            next(f for (a, b), f in _formulas(space).items() if a is b is space.ExponentialFamily)
        )
        results[-1].append(bregman(p, q))
    for got, want in zip(results[1], results[0], strict=True):
        same(got, want, "own class", 1e-5)


def _formulas(space):
    return _KL_REGISTRY if space is torch.distributions else space.kl._registered


def test_checks_can_be_turned_off():
    dist = gt.distributions.Normal(gt.tensor([0.0]), gt.tensor([-1.0]), validate_args=False)
    assert dist.log_prob(gt.tensor([0.0])).isnan().all()
    assert dist.expand((2,)).scale.tolist() == [-1.0, -1.0]
    gt.distributions.Distribution.set_default_validate_args(False)
    try:
        gt.distributions.Normal(0.0, -1.0)
    finally:
        gt.distributions.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        gt.distributions.Normal(0.0, -1.0)


def test_a_subclass_with_its_own_init_says_that_it_needs_expand():
    class Unit(gt.distributions.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match=r"must also define a custom \.expand\(\) method"):
        Unit().expand((2,))


def test_sample_n_is_deprecated():
    with pytest.warns(FutureWarning, match="sample_n"):
        assert gt.distributions.Normal(0.0, 1.0).sample_n(3).shape == (3,)


def test_utilities():
    from torch.distributions import utils as theirs

    from gt.distributions import utils as ours

    for n, diag in ((3, 0), (4, -1), (3, 1)):
        matrix = np.arange(2.0 * n * n).reshape(2, n, n)
        want = theirs.tril_matrix_to_vec(torch.tensor(matrix), diag)
        got = ours.tril_matrix_to_vec(gt.tensor(matrix.tolist(), dtype=gt.float64), diag)
        same(got, want, "triangle")
        same(ours.vec_to_tril_matrix(got, diag), theirs.vec_to_tril_matrix(want, diag), "matrix")
    with pytest.raises(ValueError, match="cannot be expressed as the lower triangular part"):
        ours.vec_to_tril_matrix(gt.zeros(4))
    with pytest.raises(ValueError, match=r"provided is outside \[-3, 2\]"):
        ours.tril_matrix_to_vec(gt.zeros(3, 3), 3)
    probs = [0.0, 0.3, 1.0]
    for is_binary in (True, False):
        for name in ("probs_to_logits", "logits_to_probs"):
            got = getattr(ours, name)(gt.tensor(probs), is_binary)
            same(got, getattr(theirs, name)(torch.tensor(probs), is_binary), name, 1e-6)
