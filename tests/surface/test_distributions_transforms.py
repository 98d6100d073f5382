"""Transforms, constraints and registries of gt.distributions beside torch.distributions'."""

import numpy as np
import pytest
import torch
from distribution_cases import LIMITS, NUMBERS, TRANSFORMS
from test_distributions import SIDES, Made, outcome, said, same, same_gradients

import gt
import gt.distributions


def made_both(name):
    make, argument = TRANSFORMS[name]
    made = []
    for side in SIDES:
        one = Made(side, make)
        one.x = one.leaf(argument)
        made.append(one)
    return made


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    pair = made_both(name)
    results = [m.dist(m.x) for m in pair]
    same(results[1], results[0], "forward")
    same_gradients(pair, results, "forward")
    inverses = [outcome(lambda m=m, y=y: m.dist.inv(y)) for m, y in zip(pair, results, strict=True)]
    same(inverses[1], inverses[0], "inverse", 1e-6)
    changes = [
        outcome(lambda m=m, y=y: m.dist.log_abs_det_jacobian(m.x, y))
        for m, y in zip(pair, results, strict=True)
    ]
    same(changes[1], changes[0], "log_abs_det_jacobian", 1e-6)
    if not isinstance(changes[0], type):
        same_gradients(pair, changes, "log_abs_det_jacobian")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_facts_of_a_transform(name):
    want, got = (m.dist for m in made_both(name))
    assert said(repr(got)) == said(repr(want))
    for space in ("domain", "codomain"):
        ours, theirs = getattr(got, space), getattr(want, space)
        assert said(repr(ours)) == said(repr(theirs)), space
        for fact in ("event_dim", "is_discrete"):
            assert outcome(lambda o=ours, f=fact: getattr(o, f)) == outcome(
                lambda o=theirs, f=fact: getattr(o, f)
            ), fact
    assert got.bijective == want.bijective
    signs = [outcome(lambda d=d: d.sign) for d in (want, got)]
    if isinstance(signs[0], torch.Tensor):
        same(signs[1], signs[0], "sign")
    else:
        assert signs[0] == signs[1] or issubclass(signs[1], signs[0])
    shape = np.shape(TRANSFORMS[name][1])
    for method in ("forward_shape", "inverse_shape"):
        shapes = [outcome(lambda d=d, m=method: tuple(getattr(d, m)(shape))) for d in (want, got)]
        assert shapes[0] == shapes[1] or issubclass(shapes[1], shapes[0]), method
    other, _ = made_both(name)
    assert (got == TRANSFORMS[name][0](gt.distributions, lambda x: gt.tensor(x).double())) == (
        want == other.dist
    )
    assert got != 1
    assert got.inv.inv == got


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_cache_gives_the_argument_back(name):
    _, got = made_both(name)
    kept = outcome(lambda: got.dist.with_cache(1))
    if isinstance(kept, type) or name == "identity":
        return
    y = kept(got.x)
    assert kept.inv(y) is got.x or name == "composition"
    assert kept.with_cache(1) is kept


@pytest.mark.parametrize("name", LIMITS)
def test_constraint(name):
    make, values = LIMITS[name]
    limits = [make(space.constraints, None) for _, space in SIDES.values()]
    same(limits[1].check(gt.tensor(values)), limits[0].check(torch.tensor(values)), name)
    assert repr(limits[1]) == repr(limits[0])
    assert (limits[1].event_dim, limits[1].is_discrete) == (
        limits[0].event_dim, limits[0].is_discrete,
    )  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registered_transforms(name, registry):
    make, _ = LIMITS[name]
    found = []
    for module, space in SIDES.values():
        limit = make(space.constraints, None)
        made = outcome(lambda s=space, c=limit: getattr(s, registry)(c))
        if isinstance(made, type):
            found.append(made)
            continue
        shape = (3, 3) if limit.event_dim == 2 or name == "cat" else (2, 3)
        x = module.tensor(np.resize(NUMBERS, shape).tolist())
        found.append((made, outcome(lambda m=made, x=x: m(x)), limit))
    want, got = found
    if isinstance(want, type):
        assert issubclass(got, want)
        return
    assert said(repr(got[0])) == said(repr(want[0]))
    same(got[1], want[1], name, 1e-5)
    if not isinstance(got[1], type):
        assert bool(got[2].check(got[1]).all())


def test_a_registry_of_the_users():
    registry = gt.distributions.constraint_registry.ConstraintRegistry()

    @registry.register(gt.distributions.constraints.boolean)
    def made(constraint):
        return gt.distributions.ExpTransform()

    assert registry(gt.distributions.constraints.boolean) == made(None)
    with pytest.raises(NotImplementedError, match="Cannot transform _Real constraints"):
        registry(gt.distributions.constraints.real)


def test_dependent_constraints():
    for _, space in SIDES.values():
        support = space.Uniform.support
        assert space.constraints.is_dependent(support)
        assert (support.event_dim, support.is_discrete) == (0, False)
        plain = space.constraints.dependent(event_dim=2)
        assert plain.event_dim == 2
        with pytest.raises(NotImplementedError, match="is_discrete cannot be determined"):
            _ = plain.is_discrete
