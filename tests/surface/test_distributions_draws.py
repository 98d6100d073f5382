"""Draws of gt.distributions, by each distribution function, and their gradients by PyTorch's.

Seeds are fixed, so nothing here fails by chance.
"""

import numpy as np
import pytest
import torch
import torch.distributions
from distribution_cases import CONTINUOUS, DISCRETE, EVERY, VECTORS
from spread_session import workers
from test_distributions import both, outcome

import gt
import gt.distributions

pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected")
COUNT = 20000
DEVIATIONS = 6  # of a mean: a probability below 1e-8 were a seed bad
# Limit for distributions without a function in PyTorch: compared with samples of PyTorch's.
NO_FUNCTION_LIMIT = 2.2


def drawn(name, make):
    """Samples of both sides as arrays of float64 [samples, ...]."""
    want, got = both(make)
    gt.manual_seed(11)
    samples = got.dist.sample((COUNT,))
    assert not samples.requires_grad
    assert tuple(samples.shape) == (COUNT, *got.dist.batch_shape, *got.dist.event_shape)
    return want.dist, samples.numpy().astype(np.float64)


@pytest.mark.parametrize("name", EVERY)
def test_samples_have_the_moments(name):
    dist, x = drawn(name, EVERY[name])
    mean, variance = (outcome(lambda f=f: getattr(dist, f)) for f in ("mean", "variance"))
    assert np.isfinite(x).all()
    assert bool(dist.support.check(torch.tensor(x, dtype=dist.sample().dtype)).all())
    if isinstance(mean, type) or name == "von mises":  # whose mean is that of a circle
        return
    mean, deviation = (v.detach().numpy().astype(np.float64) for v in (mean, variance.sqrt()))
    with np.errstate(invalid="ignore"):
        far = np.abs(x.mean(0) - mean) > DEVIATIONS * deviation / np.sqrt(COUNT) + 1e-12
    assert not (far & np.isfinite(deviation)).any(), (x.mean(0), mean)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_follow_the_distribution_function(name):
    """Kolmogorov and Smirnov's distance from PyTorch's function, or from PyTorch's samples."""
    dist, x = drawn(name, CONTINUOUS[name])
    x = np.sort(x.reshape(COUNT, -1), 0)
    share = outcome(lambda: dist.cdf(torch.tensor(x).reshape(COUNT, *dist.batch_shape)))
    places = (np.arange(COUNT) + 0.5)[:, None] / COUNT
    if isinstance(share, type):
        torch.manual_seed(5)
        other = np.sort(dist.sample((COUNT,)).detach().numpy().reshape(COUNT, -1), 0)
        below = [np.searchsorted(o, c) for o, c in zip(other.T, x.T, strict=True)]
        far = np.abs(np.stack(below, 1) / COUNT - places).max(0)
        assert (far < NO_FUNCTION_LIMIT * np.sqrt(2 / COUNT)).all(), far
        return
    far = np.abs(share.detach().numpy().reshape(COUNT, -1) - places).max(0)
    assert (far < NO_FUNCTION_LIMIT / np.sqrt(COUNT)).all(), far


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_have_the_probabilities(name):
    """Pearson's statistic of how often each value was drawn."""
    dist, x = drawn(name, DISCRETE[name])
    if dist.event_shape:
        x = x.argmax(-1) if dist.support is torch.distributions.constraints.one_hot else x[..., 0]
        if dist.support is not torch.distributions.constraints.one_hot:
            return  # its elements are not independent: the moments are tested
    x = x.reshape(COUNT, -1)
    values = torch.arange(int(x.max()) + 1, dtype=torch.float64)
    inner = getattr(dist, "_categorical", dist)
    with torch.no_grad():
        wide = values.reshape(-1, *[1] * len(dist.batch_shape)).expand(-1, *dist.batch_shape)
        probability = outcome(lambda: inner.log_prob(wide).exp())
    if isinstance(probability, type):
        inner._validate_args = False  # values above the count have none
        probability = inner.log_prob(wide).exp()
    expected = np.nan_to_num(probability.detach().numpy()).reshape(len(values), -1) * COUNT
    seen = np.stack([np.bincount(c, minlength=len(values)) for c in x.astype(int).T], 1)
    often = expected > 5
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(often, (seen - expected) ** 2 / expected, 0).sum(0)
    freedom = often.sum(0)
    assert (statistic < freedom + DEVIATIONS * np.sqrt(2 * freedom) + DEVIATIONS).all(), statistic


# Functions of two random numbers: their gradients are tested on average.
SUBSTITUTES = {
    "student": lambda df: (gt.distributions.StudentT(df, 0.5, 1.5), 2, -2 * 1.5**2 / 49),
    "fisher snedecor": lambda df: (gt.distributions.FisherSnedecor(7.0, df), 1, -2 / 49),
}


@pytest.mark.parametrize("name", SUBSTITUTES)
def test_gradients_of_ratios(name):
    """The mean of each sample's gradient is that of the moment, with 9 degrees of freedom."""
    df = gt.full((200000,), 9.0, dtype=gt.float64, requires_grad=True)
    dist, power, expected = SUBSTITUTES[name](df)
    gt.manual_seed(6)
    (dist.rsample() ** power).sum().backward()
    each = df.grad.numpy()
    assert abs(each.mean() - expected) < DEVIATIONS * each.std() / np.sqrt(len(each))
    assert each.std() > 0


def quantile_gradients(dist, leaves, x):
    """dx/dtheta of a sample that keeps its share: -dF/dtheta / p, by PyTorch's function F."""
    share, density = dist.cdf(x), dist.log_prob(x).exp().detach()
    return torch.autograd.grad((share / -density).sum(), leaves, allow_unused=True)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_of_samples(name):
    want, got = both(CONTINUOUS[name])
    if not want.leaves or not want.dist.has_rsample or name in SUBSTITUTES:
        assert got.dist.has_rsample == want.dist.has_rsample
        return
    gt.manual_seed(2)
    sample = got.dist.rsample((3,))
    mine = gt.autograd.grad(sample.sum(), got.leaves, allow_unused=True)
    x = torch.tensor(sample.detach().numpy())
    theirs = outcome(lambda: quantile_gradients(want.dist, want.leaves, x))
    if isinstance(theirs, type):  # no function of the parameters: by differences of one in float64
        theirs = differences(name, x)
    for at, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 3e-4, 1e-6, err_msg=f"{name} {at}")


def share_below(dist, x):
    """The distribution function on positive numbers, by summing the density over a fine grid."""
    steps = torch.linspace(0, 1, 200001, dtype=torch.float64)[1:-1].reshape(-1, *[1] * x.ndim)
    width = 3 * steps**2 / 200000  # of steps ** 3, which is dense near 0
    return (dist.log_prob(steps**3 * x).exp() * width).sum(0) * x


def differences(name, x):
    """Numerical differences: of a density on the positive numbers, integrated below x."""
    want, _ = both(CONTINUOUS[name])
    density = want.dist.log_prob(x).exp().detach()
    share = share_below(want.dist, x)
    return torch.autograd.grad((share / -density).sum(), want.leaves, allow_unused=True)


@pytest.mark.parametrize("name", VECTORS)
def test_gradients_of_vectors(name):
    """The gradient of a sample's function, on average, is that of its mean."""
    want, got = both(VECTORS[name])
    if not want.dist.has_rsample or isinstance(outcome(lambda: want.dist.mean), type):
        return
    gt.manual_seed(4)
    sample = got.dist.rsample((COUNT,))
    weight = np.cos(np.arange(want.dist.mean.numel())).reshape(want.dist.mean.shape)
    mine = gt.autograd.grad(
        (sample.mean(0) * gt.tensor(weight)).sum(), got.leaves, allow_unused=True
    )
    theirs = torch.autograd.grad(
        (want.dist.mean * torch.tensor(weight)).sum(), want.leaves, allow_unused=True
    )
    for a, b in zip(mine, theirs, strict=True):
        expected = np.zeros(a.shape) if b is None else b.numpy()
        got_here = a.numpy()
        if name.startswith("wishart") and expected.ndim == 2:  # of a symmetric matrix
            got_here, expected = got_here + got_here.T, expected + expected.T
        np.testing.assert_allclose(got_here, expected, atol=0.1)


def test_a_straight_through_sample_has_the_gradient_of_its_probabilities():
    logits = gt.tensor([0.3, -1.0, 2.0], requires_grad=True)
    dist = gt.distributions.OneHotCategoricalStraightThrough(logits=logits)
    sample = dist.rsample()
    (mine,) = gt.autograd.grad((sample * gt.tensor([1.0, 2.0, 3.0])).sum(), [logits])
    leaf = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    theirs = torch.autograd.grad((leaf.softmax(0) * torch.tensor([1.0, 2.0, 3.0])).sum(), leaf)[0]
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 1e-5)
    assert sorted(sample.tolist()) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("value", [0.01, 0.3, 1.0, 5.0, 200.0])
def test_standard_gamma_gradient(value):
    a = gt.full((500,), value, dtype=gt.float64, requires_grad=True)
    gt.manual_seed(3)
    sample = gt.distributions.Gamma(a, gt.ones(500, dtype=gt.float64)).rsample()
    sample.sum().backward()
    want = torch._standard_gamma_grad(
        torch.full((500,), value, dtype=torch.float64), torch.tensor(sample.detach().numpy())
    )
    np.testing.assert_allclose(a.grad.numpy(), want.numpy(), 1e-9)


@pytest.mark.parametrize(
    ("n", "p"), [(0, 0.3), (7, 0.0), (7, 1.0), (10, 0.9), (39, 0.25), (41, 0.25), (1000, 0.6)]
)
def test_binomial_counts(n, p):
    gt.manual_seed(1)
    x = gt.binomial(gt.full((COUNT,), float(n)), gt.full((COUNT,), p)).numpy().astype(int)
    dist = torch.distributions.Binomial(n, torch.tensor(p, dtype=torch.float64))
    expected = dist.log_prob(torch.arange(n + 1).double()).exp().numpy() * COUNT
    seen, often = np.bincount(x, minlength=n + 1), expected > 5
    statistic = ((seen - expected)[often] ** 2 / expected[often]).sum()
    assert statistic < often.sum() + DEVIATIONS * np.sqrt(2 * often.sum())


@pytest.mark.parametrize(("n", "p"), [(1e6, 1e-6), (1e6, 0.3), (1e9, 0.5), (1e12, 0.123)])
def test_binomial_of_many_trials(n, p):
    gt.manual_seed(1)
    count = gt.full((COUNT,), n, dtype=gt.float64)
    x = gt.binomial(count, gt.full((COUNT,), p, dtype=gt.float64)).numpy()
    deviation = (n * p * (1 - p)) ** 0.5
    assert abs(x.mean() - n * p) < DEVIATIONS * deviation / np.sqrt(COUNT)
    assert abs(x.var() / deviation**2 - 1) < DEVIATIONS * np.sqrt(3 / COUNT)


# Distributions with one sharded parameter: their draws, and results computed from them.
CUT = {
    "gamma": lambda d, x: d.Gamma(x, 2.0),
    "dirichlet": lambda d, x: d.Dirichlet(x.reshape(4, 3)),
    "normal": lambda d, x: d.Normal(x, x),
    "student": lambda d, x: d.StudentT(x),
    "von mises": lambda d, x: d.VonMises(x, 1.0),
    "poisson": lambda d, x: d.Poisson(x),
    "binomial": lambda d, x: d.Binomial(50, x / 10),
    "choice": lambda d, x: d.Categorical(x.reshape(4, 3)),
}


def test_a_layout_changes_no_sample():
    with workers(2):
        whole = gt.arange(1.0, 13.0) / 2
        for name, make in CUT.items():
            seen = []
            for x in (whole, gt.distribute(whole, dim=0)):
                gt.manual_seed(5)
                seen.append(make(gt.distributions, x).sample((3,)).numpy())
            np.testing.assert_array_equal(*seen, err_msg=name)


def test_binomial_emits_as_many_instructions_for_many_trials():
    counts = []
    gt.zeros(1).tolist()  # a session, which others may have ended
    for n in (2.0, 3.0, 1e5):  # the first asks a worker for what lgamma results in
        before = gt.debug.stats()["instructions"]
        gt.binomial(gt.full((4,), n), gt.full((4,), 0.5)).tolist()
        counts.append(gt.debug.stats()["instructions"] - before)
    assert counts[1] == counts[2] < 300
