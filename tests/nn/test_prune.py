"""gt.nn.utils.prune beside torch's: masks, values, gradients, state, and errors."""

import numpy as np
import pytest
import torch.nn.utils.prune

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])


def twins(kind="Linear", *args):
    args = args or (6, 4)
    theirs, ours = getattr(torch.nn, kind)(*args), getattr(gt.nn, kind)(*args)
    ours.load_state_dict(theirs.state_dict())
    return (gt, ours), (torch, theirs)


def same(ours, theirs):
    mine, its = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(its)
    for name, value in mine.items():
        assert str(value.dtype)[3:] == str(its[name].dtype)[6:]
        np.testing.assert_allclose(value.numpy(), its[name].numpy(), err_msg=name)
    a, b = ours.weight.detach().numpy(), theirs.weight.detach().numpy()
    np.testing.assert_allclose(a, b)


def scores(m, *shape):
    return m.tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))


CALLS = [
    lambda p, m, layer: p.identity(layer, "weight"),
    lambda p, m, layer: p.l1_unstructured(layer, "weight", 0.4),
    lambda p, m, layer: p.l1_unstructured(layer, "weight", 5),
    lambda p, m, layer: p.l1_unstructured(layer, "weight", 0),
    lambda p, m, layer: p.l1_unstructured(layer, "weight", 5, importance_scores=scores(m, 4, 6)),
    lambda p, m, layer: p.ln_structured(layer, "weight", 0.5, n=2, dim=0),
    lambda p, m, layer: p.ln_structured(layer, "weight", 2, n=1, dim=-1),
    lambda p, m, layer: p.ln_structured(layer, "weight", 2, float("inf"), 1),
    lambda p, m, layer: p.ln_structured(layer, "weight", 1, 2, 0, scores(m, 4, 6)),
    lambda p, m, layer: p.ln_structured(layer, "weight", 0, n=2, dim=0),
    lambda p, m, layer: p.custom_from_mask(layer, "weight", (scores(m, 4, 6) > 0) * 1),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("more", [*CALLS[1:3], CALLS[5], CALLS[10]])
def test_pruning_once_and_twice(call, more):
    (_, ours), (_, theirs) = pairs = twins()
    for m, layer in pairs:
        assert call(m.nn.utils.prune, m, layer) is layer
        assert m.nn.utils.prune.is_pruned(layer)
    same(ours, theirs)
    results = []
    for m, layer in pairs:
        more(m.nn.utils.prune, m, layer)
        x = m.ones(2, 6).requires_grad_()
        layer(x).sum().backward()
        results.append([x.grad, layer.weight_orig.grad])
        hook = next(iter(layer._forward_pre_hooks.values()))
        assert isinstance(hook, m.nn.utils.prune.PruningContainer)
        assert len(hook) == 2
        assert [*hook] == [hook[0], hook[1]]
    same(ours, theirs)
    for mine, its in zip(*results, strict=True):
        np.testing.assert_allclose(mine.numpy(), its.numpy(), rtol=1e-5)
    for m, layer in pairs:
        m.nn.utils.prune.remove(layer, "weight")
        assert not m.nn.utils.prune.is_pruned(layer)
        assert isinstance(layer.weight, m.nn.Parameter)
    same(ours, theirs)


@pytest.mark.parametrize("n", [1, 2, "fro"])
@pytest.mark.parametrize("dim", [0, 1])
def test_channels_of_a_convolution(n, dim):
    (_, ours), (_, theirs) = pairs = twins("Conv2d", 4, 6, 3)
    for m, layer in pairs:
        m.nn.utils.prune.ln_structured(layer, "weight", 0.5, n=n, dim=dim)
    same(ours, theirs)


@pytest.mark.parametrize("with_scores", [False, True])
def test_global(with_scores):
    pairs = []
    for m, first in twins():
        second = m.nn.Linear(3, 2)
        pairs.append((m, first, second))
    pairs[0][2].load_state_dict(pairs[1][2].state_dict())
    for m, first, second in pairs:
        prune = m.nn.utils.prune
        prune.l1_unstructured(second, "bias", 1)
        tensors = [(first, "weight"), (second, "weight"), (second, "bias")]
        known = {(first, "weight"): scores(m, 4, 6)} if with_scores else None
        prune.global_unstructured(tensors, prune.L1Unstructured, known, amount=0.3)
    same(pairs[0][1], pairs[1][1])
    same(pairs[0][2], pairs[1][2])


@BOTH
def test_random_ones_prune_as_many(m):
    prune = m.nn.utils.prune
    layer = prune.random_unstructured(m.nn.Linear(6, 4), "weight", 0.25)
    assert (layer.weight_mask == 0).sum().item() == 6
    prune.random_unstructured(layer, "weight", 4)
    assert (layer.weight_mask == 0).sum().item() == 10
    layer = prune.random_structured(m.nn.Linear(6, 4), "weight", 2, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0, 0, 4, 4, 4, 4]
    prune.random_structured(layer, "weight", 0.5, dim=0)
    assert sorted(layer.weight_mask.sum(1).tolist()) == [0, 0, 4, 4]
    layers = [m.nn.Linear(6, 4), m.nn.Linear(3, 2)]
    named = [(one, "weight") for one in layers]
    prune.global_unstructured(named, prune.RandomUnstructured, amount=7)
    assert sum((one.weight_mask == 0).sum().item() for one in layers) == 7


@BOTH
def test_a_method_of_the_users(m):
    class Every(m.nn.utils.prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask[::2] = 0
            return mask

    layer = m.nn.Linear(2, 3)
    Every.apply(layer, "bias")
    assert layer.bias_mask.tolist() == [0, 1, 0]
    assert Every().prune(m.ones(3)).tolist() == [0, 1, 0]
    assert m.nn.utils.prune.L1Unstructured(1).prune(m.tensor([3.0, -1.0])).tolist() == [3, 0]


ERRORS = [
    lambda p, m: p.l1_unstructured(m.nn.Linear(2, 2), "weight", "a"),
    lambda p, m: p.l1_unstructured(m.nn.Linear(2, 2), "weight", 1.5),
    lambda p, m: p.l1_unstructured(m.nn.Linear(2, 2), "weight", -1),
    lambda p, m: p.l1_unstructured(m.nn.Linear(2, 2), "weight", 5),
    lambda p, m: p.ln_structured(m.nn.Linear(2, 2), "bias", 1, 2, 0),
    lambda p, m: p.ln_structured(m.nn.Linear(2, 2), "weight", 1, 2, 2),
    lambda p, m: p.remove(m.nn.ReLU(), "weight"),
    lambda p, m: p.global_unstructured(3, p.L1Unstructured),
    lambda p, m: p.global_unstructured([], p.L1Unstructured, 3),
    lambda p, m: p.global_unstructured(
        [(m.nn.Linear(2, 2), "bias")], p.LnStructured, amount=1, n=2
    ),
    lambda p, m: p.custom_from_mask(m.nn.Linear(2, 2), "weight", m.ones(3)),
    lambda p, m: p.L1Unstructured(1).prune(m.ones(3), importance_scores=m.ones(2)),
]


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call):
    texts = []
    for m in (gt, torch):
        with pytest.raises((TypeError, ValueError, IndexError, AssertionError)) as error:
            call(m.nn.utils.prune, m)
        texts.append((error.type, str(error.value).replace("gt.", "torch.").split("<class")[0]))
    assert texts[0][0].__name__ == texts[1][0].__name__
    assert texts[0][1] == texts[1][1]


@BOTH
def test_a_failed_pruning_leaves_the_parameter(m):
    layer = m.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="should be smaller"):
        m.nn.utils.prune.l1_unstructured(layer, "weight", 5)
    assert sorted(dict(layer.named_parameters())) == ["bias", "weight"]
    assert not layer._forward_pre_hooks


# ---- the others of nn.utils ----


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_clip_grads_with_norm(norm):
    results = []
    for m, layer in twins():
        layer(scores(m, 3, 6)).square().sum().backward()
        grads = [p.grad for p in layer.parameters()]
        total = m.nn.utils.get_total_norm(grads, norm)
        m.nn.utils.clip_grads_with_norm_(layer.parameters(), 0.5, total)
        results.append([total, *grads])
    for mine, its in zip(*results, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), its.detach().numpy(), rtol=1e-5)


@BOTH
def test_older_and_small_ones(m):
    layer = m.nn.Linear(2, 2)
    layer(m.ones(1, 2)).sum().backward()
    with pytest.warns(FutureWarning, match="clip_grad_norm` is now deprecated"):
        m.nn.utils.clip_grad_norm(layer.parameters(), 1.0)
    given = {"weight": m.ones(2, 2), "bias": m.zeros(2)}
    with pytest.warns(FutureWarning, match="drop-in replacement"):
        out = m.nn.utils.stateless.functional_call(layer, given, m.ones(1, 2))
    assert out.tolist() == [[2.0, 2.0]]
    assert m.nn.utils.skip_init(m.nn.Linear, 3, 4).weight.shape == (4, 3)
    with pytest.raises(RuntimeError, match="Expected a Module"):
        m.nn.utils.skip_init(int)
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        m.nn.utils.skip_init(m.nn.ReLU)
