"""Distributions and checks on the device `mux` beside the host: operators of PyTorch's own use."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from front_devices import assert_same_on_both
from torch import distributions as d
from torch.distributions import Distribution, kl_divergence
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

Make = Callable[..., tuple[Distribution, torch.Tensor]]
DRAWS = 2000

# Parameters of each distribution and a value, by a function that creates tensors.
DISTRIBUTIONS: dict[str, Make] = {
    "Bernoulli": lambda t: (d.Bernoulli(t(0.3, 0.6)), t(0.0, 1.0)),
    "Beta": lambda t: (d.Beta(t(0.5, 2.0), t(1.0, 3.0)), t(0.3, 0.4)),
    "Binomial": lambda t: (d.Binomial(5, t(0.3, 0.6)), t(2.0, 3.0)),
    "Categorical": lambda t: (d.Categorical(t(0.3, 0.6, 0.1)), t(1, 2)),
    "Categorical of logits": lambda t: (d.Categorical(logits=t(0.3, 0.6, 0.1)), t(1, 2)),
    "Cauchy": lambda t: (d.Cauchy(t(0.3), t(1.0)), t(1.0, 2.0)),
    "Chi2": lambda t: (d.Chi2(t(2.0, 3.0)), t(1.0, 2.0)),
    "ContinuousBernoulli": lambda t: (d.ContinuousBernoulli(t(0.3, 0.6)), t(0.2, 0.4)),
    "Dirichlet": lambda t: (d.Dirichlet(t(0.5, 2.0, 1.0)), t(0.3, 0.4, 0.3)),
    "Exponential": lambda t: (d.Exponential(t(0.3, 0.6)), t(1.0, 2.0)),
    "FisherSnedecor": lambda t: (d.FisherSnedecor(t(9.0, 8.0), t(9.0, 12.0)), t(1.0, 2.0)),
    "Gamma": lambda t: (d.Gamma(t(0.5, 2.0), t(1.0, 3.0)), t(0.3, 0.4)),
    "Geometric": lambda t: (d.Geometric(t(0.3, 0.6)), t(1.0, 2.0)),
    "Gumbel": lambda t: (d.Gumbel(t(0.3, 0.6), t(1.0, 2.0)), t(1.0, 2.0)),
    "HalfCauchy": lambda t: (d.HalfCauchy(t(0.3, 0.6)), t(1.0, 2.0)),
    "HalfNormal": lambda t: (d.HalfNormal(t(0.3, 0.6)), t(1.0, 2.0)),
    "Independent": lambda t: (d.Independent(d.Normal(t(0.3, 0.6), t(1.0, 2.0)), 1), t(1.0, 2.0)),
    "InverseGamma": lambda t: (d.InverseGamma(t(5.0, 6.0), t(1.0, 3.0)), t(0.3, 0.4)),
    "Kumaraswamy": lambda t: (d.Kumaraswamy(t(0.5, 2.0), t(1.0, 3.0)), t(0.3, 0.4)),
    "LKJCholesky": lambda t: (d.LKJCholesky(2, t(0.5)), t([1.0, 0.0], [0.6, 0.8])),
    "Laplace": lambda t: (d.Laplace(t(0.3, 0.6), t(1.0, 2.0)), t(1.0, 2.0)),
    "LogNormal": lambda t: (d.LogNormal(t(0.3, 0.6), t(0.5, 0.2)), t(1.0, 2.0)),
    "LogisticNormal": lambda t: (d.LogisticNormal(t(0.3, 0.6), t(1.0, 2.0)), t(0.2, 0.3, 0.5)),
    "LowRankMultivariateNormal": lambda t: (
        d.LowRankMultivariateNormal(t(0.3, 0.6), t([1.0], [2.0]), t(1.0, 2.0)),
        t(1.0, 2.0),
    ),
    "MixtureSameFamily": lambda t: (
        d.MixtureSameFamily(d.Categorical(t(0.5, 0.5)), d.Normal(t(0.0, 1.0), t(1.0, 2.0))),
        t(1.0, 2.0),
    ),
    "Multinomial": lambda t: (d.Multinomial(4, t(0.3, 0.6, 0.1)), t(1.0, 2.0, 1.0)),
    "MultivariateNormal": lambda t: (
        d.MultivariateNormal(t(0.3, 0.6), t([1.0, 0.2], [0.2, 2.0])),
        t(1.0, 2.0),
    ),
    "NegativeBinomial": lambda t: (d.NegativeBinomial(t(3.0), t(0.3, 0.6)), t(1.0, 2.0)),
    "Normal": lambda t: (d.Normal(t(0.3, 0.6), t(1.0, 2.0)), t(1.0, 2.0)),
    "OneHotCategorical": lambda t: (d.OneHotCategorical(t(0.3, 0.6, 0.1)), t(0.0, 1.0, 0.0)),
    "OneHotCategoricalStraightThrough": lambda t: (
        d.OneHotCategoricalStraightThrough(t(0.3, 0.6, 0.1)),
        t(0.0, 1.0, 0.0),
    ),
    "Pareto": lambda t: (d.Pareto(t(0.3, 0.6), t(7.0, 9.0)), t(1.0, 2.0)),
    "Poisson": lambda t: (d.Poisson(t(0.3, 0.6)), t(1.0, 2.0)),
    "RelaxedBernoulli": lambda t: (d.RelaxedBernoulli(t(0.5), t(0.3, 0.6)), t(0.1, 0.2)),
    "RelaxedOneHotCategorical": lambda t: (
        d.RelaxedOneHotCategorical(t(0.5), t(0.3, 0.6, 0.1)),
        t(0.3, 0.4, 0.3),
    ),
    "StudentT": lambda t: (d.StudentT(t(7.0, 9.0)), t(1.0, 2.0)),
    "TransformedDistribution": lambda t: (
        d.TransformedDistribution(
            d.Normal(t(0.0, 1.0), t(1.0, 2.0)),
            [d.SigmoidTransform(), d.AffineTransform(t(1.0), t(2.0))],
        ),
        t(1.5, 1.6),
    ),
    "Uniform": lambda t: (d.Uniform(t(0.3, 0.6), t(1.0, 2.0)), t(0.8, 0.9)),
    "VonMises": lambda t: (d.VonMises(t(0.3, 0.6), t(1.0, 2.0)), t(0.8, 0.9)),
    "Weibull": lambda t: (d.Weibull(t(0.3, 0.6), t(1.0, 2.0)), t(0.8, 0.9)),
    "Wishart": lambda t: (
        d.Wishart(t(3.0), t([1.0, 0.0], [0.0, 1.0])),
        t([1.1, 0.1], [0.1, 1.2]),
    ),
}
NO_MEAN = {"Cauchy", "HalfCauchy"}


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def outcome(function: Callable[[], Any]) -> Any:
    """The result, or the class and the text of the error."""
    try:
        return function()
    except (NotImplementedError, ValueError, RuntimeError) as error:
        return type(error).__name__, str(error).replace("mux:0", "cpu")


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_computes_and_draws_as_on_the_host(name: str) -> None:
    def program(device: str) -> Any:
        made, value = DISTRIBUTIONS[name](lambda *x: torch.tensor(x, device=device))
        same, _ = DISTRIBUTIONS[name](lambda *x: torch.tensor(x, device=device))
        return [
            outcome(lambda: made.log_prob(value)),
            outcome(made.entropy),
            outcome(lambda: made.mean),
            outcome(lambda: made.variance),
            outcome(lambda: made.cdf(value)),
            outcome(lambda: kl_divergence(made, same)),
            # Only sizes and dtype of the draws; the values are compared below.
            torch.empty_like(made.sample((3,))).zero_(),
        ]

    assert_same_on_both(program)
    host, _ = DISTRIBUTIONS[name](lambda *x: torch.tensor(x))
    made, _ = DISTRIBUTIONS[name](lambda *x: torch.tensor(x, device="mux"))
    if name in NO_MEAN:
        return
    torch.manual_seed(0)
    pair = [x.sample((DRAWS,)).double().cpu() for x in (host, made)]
    (expected, theirs), (mean, ours) = [(x.mean(0), x.std(0) / math.sqrt(DRAWS)) for x in pair]
    assert ((mean - expected).abs() <= 5 * (theirs + ours) + 1e-6).all(), (mean, expected)


@pytest.fixture
def validated() -> Iterator[None]:
    """PyTorch's compiler switches the checks of distributions off for the process it runs in."""
    d.Distribution.set_default_validate_args(True)
    yield
    d.Distribution.set_default_validate_args(__debug__)


@pytest.mark.usefixtures("validated")
@pytest.mark.parametrize(
    "name", [name for name in DISTRIBUTIONS if name not in {"LKJCholesky", "Wishart"}]
)
def test_a_distribution_refuses_parameters_and_values_as_on_the_host(name: str) -> None:
    def program(device: str) -> Any:
        def wrong(*x: Any) -> torch.Tensor:
            return -torch.tensor(x, device=device) - 0.5

        made, value = DISTRIBUTIONS[name](lambda *x: torch.tensor(x, device=device))
        kinds = (
            outcome(lambda: DISTRIBUTIONS[name](wrong)),
            outcome(lambda: made.log_prob(-value)),
        )
        return [kind[0] if type(kind) is tuple and type(kind[0]) is str else "" for kind in kinds]

    assert_same_on_both(program)


@pytest.mark.parametrize("kind", [d.Gamma, d.Beta, d.Dirichlet, d.StudentT, d.Chi2])
def test_gradients_pass_through_draws(kind: Any) -> None:
    shape = torch.full((400, 2), 2.0, device="mux", requires_grad=True)
    arguments = (shape,) if kind in {d.Dirichlet, d.StudentT, d.Chi2} else (shape, shape + 1)
    kind(*arguments).rsample().square().sum().backward()
    assert shape.grad is not None
    assert shape.grad.isfinite().all()
    assert shape.grad.abs().sum() > 0


def checks(device: str) -> Any:
    def flags(*x: Any) -> torch.Tensor:
        return torch.tensor(x, device=device)

    yes, no = torch.tensor(1.0, device=device), torch.tensor(0.0, device=device)
    x, aten = torch.ones(2, device=device), torch.ops.aten
    return [
        torch._is_all_true(flags(True, False)),
        torch._is_all_true(flags(True, True)),
        torch._is_any_true(flags(True, False)),
        torch._is_any_true(flags(False, False)),
        outcome(lambda: torch._assert_async(yes)),
        outcome(lambda: torch._assert_async(no)),
        outcome(lambda: torch._assert_async(no, "a message")),
        outcome(lambda: torch._assert_async(x)),
        outcome(lambda: torch._assert_async(x[:0])),
        outcome(lambda: aten._functional_assert_async.msg(yes, "a message", x)),
        outcome(lambda: aten._functional_assert_async.msg(no, "a message", x)),
        outcome(lambda: torch._assert_tensor_metadata(x, [2], [1], torch.float32)),
        outcome(lambda: torch._assert_tensor_metadata(x, dtype=torch.int32)),
        outcome(lambda: torch._assert_tensor_metadata(x, size=[3])),
        outcome(lambda: torch._assert_tensor_metadata(x, stride=[3])),
        outcome(lambda: torch._assert_tensor_metadata(x, device="cuda")),
        outcome(lambda: torch._assert_tensor_metadata(x, layout=torch.sparse_coo)),
    ]


def masked(device: str) -> Any:
    torch.manual_seed(0)
    scores = torch.randn(2, 2, 3, 3).to(device).requires_grad_()
    padding = torch.tensor([[False, False, True], [False, True, True]], device=device)
    causal = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]], device=device).bool()
    whole = causal.expand(2, 2, 3, 3).contiguous()
    softmax: Any = torch.ops.aten._masked_softmax
    results = [
        softmax(scores, causal, -1, 0),
        softmax(scores, padding, -1, 1),
        softmax(scores, whole, -1, 2),
        softmax(scores, whole, None, 2),
    ]
    # The host has gradients of a mask of the scores' shape alone.
    sum(x.square().sum() for x in results[2:]).backward()
    return [*results, scores.grad]


PADDING = torch.tensor([[False, False, True], [False, False, False]])
CAUSAL = torch.ones(3, 3).triu(1).bool()
MASKS: list[dict[str, Any]] = [
    {},
    {"src_mask": CAUSAL},
    {"src_key_padding_mask": PADDING},
    {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
    {"src_mask": CAUSAL, "is_causal": True},
]
LAYERS: list[dict[str, Any]] = [
    {},
    {"activation": "gelu"},
    {"norm_first": True},
    {"batch_first": False},
    {"bias": False},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_a_layer_of_an_encoder_infers_as_on_the_host(options: dict[str, Any]) -> None:
    """Without gradients the layer is one operator of PyTorch's."""

    def program(device: str) -> Any:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, **{"batch_first": True, **options})
        batch = torch.randn((2, 3, 8) if layer.self_attn.batch_first else (3, 2, 8))
        layer.to(device).eval()
        with torch.no_grad():
            return [
                layer(
                    batch.to(device),
                    **{k: v.to(device) if k != "is_causal" else v for k, v in masks.items()},
                )
                for masks in MASKS
            ]

    assert_same_on_both(program)


@pytest.mark.parametrize("is_cross", [False, True])
def test_attention_infers_as_on_the_host(is_cross: bool) -> None:
    def program(device: str) -> Any:
        torch.manual_seed(0)
        layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        query, key = torch.randn(2, 3, 8).to(device), torch.randn(2, 3, 8).to(device)
        layer.to(device).eval()
        operands = (query, key, key) if is_cross else (query, query, query)
        padding, causal = PADDING.to(device), CAUSAL.to(device)
        with torch.inference_mode():
            return [
                layer(*operands),
                layer(*operands, need_weights=False),
                layer(*operands, average_attn_weights=False),
                layer(*operands, key_padding_mask=padding),
                layer(*operands, attn_mask=causal),
                layer(*operands, attn_mask=causal, key_padding_mask=padding, need_weights=False),
            ]

    assert_same_on_both(program)


def encoder(device: str) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(device).eval()
    x, padding = torch.randn(2, 3, 8).to(device), PADDING.to(device)
    with torch.no_grad():
        inferred = model(x, src_key_padding_mask=padding)
    return [inferred[~padding], model(x)]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("program", [checks, masked, encoder])
def test_what_pytorchs_library_asks_is_answered_as_on_the_host(program: Any) -> None:
    assert_same_on_both(program)
