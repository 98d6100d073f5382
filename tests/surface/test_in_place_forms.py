"""Methods that change a tensor's shape or graph in place, and what a missing method says."""

import pytest
import torch

import gt

TOGETHER = [gt, torch]


def both(program):
    """Outcome of a program with either module: its value, or its error's class and text."""
    outcomes = []
    for m in TOGETHER:
        try:
            outcome = program(m)
        except (RuntimeError, IndexError) as error:
            outcome = str(error).replace("torch", "gt")
        outcomes.append(outcome)
    return outcomes


def made(m):
    return m.arange(6.0).reshape(1, 2, 3)


CHANGES = {
    "t_": lambda x: x[0].t_(),
    "transpose_": lambda x: x.transpose_(1, 2),
    "swapaxes_": lambda x: x.swapaxes_(0, 2),
    "swapdims_": lambda x: x.swapdims_(dim0=0, dim1=1),
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_dim": lambda x: x.squeeze_(0),
    "squeeze_twice": lambda x: x.squeeze_((0, -3)),
    "unsqueeze_": lambda x: x.unsqueeze_(-1),
    "twice": lambda x: x.squeeze_(0).t_(),
    "wrong": lambda x: x.transpose_(0, 5) if isinstance(x, int) else x.unsqueeze_(1).squeeze_(1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tensor_becomes_its_view(change):
    def program(m):
        x = made(m)
        y = change(x)
        return y.tolist(), list(y.shape), y.requires_grad, y.is_leaf

    ours, theirs = both(program)
    assert ours == theirs


def test_memory_stays_shared():
    def program(m):
        x = m.arange(6.0).reshape(2, 3)
        row, twin = x[0], x.detach()
        assert x.t_() is x
        row.add_(10)
        x[2, 1] = 100
        x.mul_(2)
        return x.tolist(), row.tolist(), twin.tolist()

    ours, theirs = both(program)
    assert ours == theirs


def test_a_view_changes_its_own_shape_alone():
    def program(m):
        x = m.arange(12.0).reshape(3, 4)
        part = x[1:]
        part.t_()
        part.add_(1)
        x.mul_(2)
        return x.tolist(), part.tolist()

    ours, theirs = both(program)
    assert ours == theirs


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_gradients_go_through(change):
    def program(m):
        leaf = made(m).requires_grad_()
        x = leaf * 2
        if change is not CHANGES["t_"]:
            y = change(x)
            assert y is x
        else:
            y = x.squeeze_(0).t_()
        weights = m.arange(6.0).reshape(tuple(y.shape))
        (y * y * weights).sum().backward()
        return leaf.grad.tolist(), y.is_leaf

    ours, theirs = both(program)
    assert ours == theirs


def test_a_view_with_a_gradient_changes_and_is_written():
    def program(m):
        leaf = m.arange(6.0).requires_grad_()
        base = leaf * 1
        view = base.view(2, 3)
        view.t_()
        view.mul_(m.arange(6.0).reshape(3, 2))
        (base * base).sum().backward()
        return leaf.grad.tolist(), view.tolist(), base.tolist()

    ours, theirs = both(program)
    assert ours == theirs


def test_what_pytorch_refuses_is_refused():
    leaf = gt.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.t_()
    assert leaf.shape == (2, 2)
    with pytest.raises(
        RuntimeError, match=r"^t_\(\) expects a tensor with <= 2 dimensions, but self is 3D"
    ):
        gt.ones(2, 3, 4).t_()
    for program in (
        lambda m: m.ones(2, 3).transpose_(0, 5),
        lambda m: (m.ones(2, requires_grad=True) * 2)[:1].detach_(),
    ):
        ours, theirs = both(program)
        assert ours.startswith(theirs[:30])


def test_what_others_are_views_of_stays_in_the_graph():
    x = gt.ones(2, 3, requires_grad=True) * 2
    row = x[0]
    with pytest.raises(RuntimeError, match="use the form without an underscore"):
        x.detach_()
    assert x.requires_grad
    row.add_(1)
    assert x.tolist() == [[3] * 3, [2] * 3]


def test_detach_():
    def program(m):
        leaf = m.ones(2, requires_grad=True)
        x = leaf * 3
        assert x.detach_() is x
        first = x.requires_grad, x.is_leaf, x.grad_fn
        x.requires_grad_()
        (x * 2).sum().backward()
        return first, x.grad.tolist(), leaf.grad, leaf.detach_().requires_grad

    ours, theirs = both(program)
    assert ours == theirs


DIAGONALS = [(7, 3), (2, 5), (3, 3, 3), (0, 2), (2, 0), (3, 3)]


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [*DIAGONALS, (3,), (2, 3, 2)])
def test_fill_diagonal_(shape, wrap):
    ours, theirs = both(lambda m: m.zeros(shape).fill_diagonal_(1.5, wrap=wrap).tolist())
    assert ours == theirs


# Forms of operators that run by PyTorch's schema, and of rows: op_db drives the others.
FORMS = ["acos_", "hypot_", "erfinv_", "lgamma_", "masked_scatter_", "renorm_", "arctan2_"]


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_operators_write_into_the_tensor(name):
    def program(m):
        x = m.linspace(0.1, 0.9, 6).reshape(2, 3)
        given = {
            "hypot_": (x * 2,), "arctan2_": (x * 2,), "renorm_": (2, 0, 0.5),
            "masked_scatter_": (x > 0.4, m.ones(6)),
        }  # fmt: skip
        view = x[0]
        assert getattr(x, name)(*given.get(name, ())) is x
        return x, view

    (ours, our_view), (theirs, their_view) = both(program)
    torch.testing.assert_close(gt.to_torch(ours), theirs)
    torch.testing.assert_close(gt.to_torch(our_view), their_view)


def test_a_missing_method_says_that_pytorch_has_it():
    x = gt.ones(2)
    with pytest.raises(AttributeError, match=r"PyTorch has `Tensor.storage`; GT does not yet"):
        x.storage()
    with pytest.raises(AttributeError, match="has no attribute 'zzz'"):
        x.zzz  # noqa: B018
    assert not hasattr(x, "storage")
    assert not hasattr(gt.Tensor, "storage")
    lacking = set((gt.missing.FILE.parent / "missing_methods.txt").read_text().split())
    assert lacking == {name for name in lacking if not hasattr(gt.Tensor, name)}
    assert all(hasattr(torch.Tensor, name) for name in lacking)


def test_questions_about_memory_have_answers():
    x = gt.ones(2)
    assert x.pin_memory() is x.share_memory_() is x
    assert not x.is_pinned()
    assert not x.is_shared()
    assert x.record_stream(None) is None


@pytest.mark.parametrize("number", [2, 2.75, True, -1, 1e300, float("nan"), 1.5 - 2j])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "bfloat16", "complex64"])
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_number_is_copied_everywhere(dtype, number):
    if dtype == "int32" and str(number) in {"1e+300", "nan"}:
        pytest.skip("out of int32's range: C leaves the result open")
    ours, theirs = (m.ones(2, 3, dtype=getattr(m, dtype)).copy_(number) for m in TOGETHER)
    assert str(ours.dtype).split(".")[1] == dtype
    torch.testing.assert_close(
        torch.tensor(ours.tolist(), dtype=theirs.dtype), theirs, equal_nan=True
    )


def test_a_copied_number_ends_the_gradient():
    def program(m):
        x = m.ones(3, requires_grad=True)
        y = x * 2
        y[1].copy_(7.0)
        y.sum().backward()
        return [*y.tolist(), *x.grad.tolist()]

    ours, theirs = both(program)
    assert ours == theirs == [2, 7, 2, 2, 0, 2]


@pytest.mark.parametrize("wrong", ["a", None, [1.0]])
def test_what_is_no_tensor_is_not_copied(wrong):
    for m in TOGETHER:
        with pytest.raises(TypeError) as caught:
            m.ones(2).copy_(wrong)
        expected = f"must be Tensor, not {type(wrong).__name__}"
        assert str(caught.value) == f"copy_(): argument 'other' (position 1) {expected}"


LOGICAL = {
    "and": lambda x, y: x.logical_and_(y),
    "and by name": lambda x, y: x.logical_and_(other=y),
    "or": lambda x, y: x.logical_or_(y),
    "xor": lambda x, y: x.logical_xor_(y),
    "not": lambda x, y: x.logical_not_(),
}


@pytest.mark.parametrize("write", LOGICAL.values(), ids=LOGICAL)
@pytest.mark.parametrize("start", ["leaf", "result", "view"])
def test_the_gradient_passes_logical_operators_in_place(write, start):
    def program(m):
        leaf = m.tensor([0.0, 1.0, 2.0], requires_grad=True)
        other = m.tensor([1.0, 0.0, 3.0], requires_grad=True)
        x = {"leaf": lambda: leaf, "result": lambda: leaf * 3, "view": lambda: (leaf * 3)[:]}[
            start
        ]()
        written = write(x, other)
        assert written is x
        if start != "leaf":
            (x * m.tensor([1.0, 2.0, 3.0])).sum().backward()
        grad = None if leaf.grad is None else leaf.grad.tolist()
        return x.tolist(), x.requires_grad, x.is_leaf, x._version, grad, other.grad

    ours, theirs = both(program)
    assert ours == theirs


NUMBER_FIRST = {
    "add_": lambda x, y: x.add_(2, y),
    "add_ by name": lambda x, y: x.add_(2, other=y),
    "sub_": lambda x, y: x.sub_(0.5, y),
    "addcmul_": lambda x, y: x.addcmul_(3, y, y),
    "addcdiv_": lambda x, y: x.addcdiv_(-1.5, x.detach() + 1, y),
}


@pytest.mark.parametrize("write", NUMBER_FIRST.values(), ids=NUMBER_FIRST)
@pytest.mark.filterwarnings("ignore:This overload:UserWarning")  # PyTorch's comes once a process
def test_the_factor_may_come_first(write):
    def program(m):
        y = m.tensor([1.0, 2.0, 4.0], requires_grad=True)
        x = y * 3
        assert write(x, y) is x
        x.sum().backward()
        return x.tolist(), y.grad.tolist()

    ours, theirs = both(program)
    assert ours == theirs


@pytest.mark.parametrize("m", TOGETHER)
def test_the_factor_comes_once(m):
    x = m.ones(3)
    for wrong in (
        lambda: x.add_(2, m.ones(3), alpha=3),
        lambda: x.add_(m.ones(3), m.ones(3)),
        lambda: x.addcmul_(m.ones(3), m.ones(3), 2),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert x.add_(m.ones(3), alpha=3).tolist() == [4.0, 4.0, 4.0]


def test_the_older_form_is_warned_of():
    with pytest.warns(UserWarning, match=r"This overload of add_ is deprecated"):
        gt.ones(3).add_(2, gt.ones(3))


# Methods of rows that may reuse the tensor's memory; each has a form of one or no operand.
UNARY = (
    "erfc_", "erfinv_", "lgamma_", "digamma_", "sinc_", "exp2_", "expm1_", "square_", "neg_",
    "logit_", "frac_", "i0_",
)  # fmt: skip
BINARY = ("hypot_", "copysign_", "nextafter_", "xlogy_", "atan2_", "ldexp_", "fmod_")
NEW_FORMS = {
    **dict.fromkeys(UNARY, ()),
    **dict.fromkeys(BINARY, (2.0,)),
    "polygamma_": (1,),
    "logical_xor_": (0.0,),
}


# PyTorch's text is another one for these, of dtypes that do not fit.
OTHER_TEXTS = ("ldexp_",)


def _named(m, dtype, numbers):
    return m.tensor(numbers).to(getattr(m, dtype))


@pytest.mark.parametrize("name", NEW_FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_a_form_writes_what_its_function_gives(name, dtype):
    def program(m):
        x = _named(m, dtype, [[0.25, 0.75, 0.5], [0.125, 0.5, 0.875]])
        operands = [
            number if name == "polygamma_" else _named(m, dtype, [number, 1.0, 0.5])
            for number in NEW_FORMS[name]
        ]
        view = x[1]
        arguments = operands[::-1]
        assert getattr(x, name)(*arguments) is x
        return [x.double().tolist(), view.double().tolist(), str(x.dtype)]

    ours, theirs = both(program)
    if isinstance(theirs, str):
        assert isinstance(ours, str)
        assert name in OTHER_TEXTS or ours.split(";")[0] == theirs.split("\n", maxsplit=1)[0]
        return
    assert ours[2] == theirs[2].replace("torch", "gt")
    accuracy = {"bfloat16": 1e-2, "float32": 1e-5}.get(dtype, 1e-9)
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(
            torch.tensor(one), torch.tensor(other), rtol=accuracy, atol=accuracy, equal_nan=True
        )


@pytest.mark.parametrize("name", NEW_FORMS)
def test_a_form_has_its_functions_gradient(name):
    def program(m):
        leaf = m.tensor([0.25, 0.75, 0.5], dtype=m.float64, requires_grad=True)
        other = m.tensor([2.0, 0.5, 1.5], dtype=m.float64, requires_grad=True)
        x = leaf * 0.75
        few = name == "polygamma_"
        getattr(x, name)(*([1] if few else [other] * len(NEW_FORMS[name])))
        (x * x).sum().backward()
        return [leaf.grad.tolist(), other.grad.tolist() if other.grad is not None else []]

    ours, theirs = both(program)
    assert isinstance(ours, list) == isinstance(theirs, list)
    if isinstance(theirs, list):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(torch.tensor(one), torch.tensor(other))


WRONG = {
    "more than none": lambda x: x.erfc_(1),
    "a complex one": lambda x: x.neg_(1j),
    "a number": lambda x: x.hypot_(2),
    "a number, of truths": lambda x: x.logical_or_(1.5),
    "nothing": lambda x: x.nextafter_(),
    "two": lambda x: x.atan2_(x, x),
    "one of two": lambda x: x.lerp_(x),
    "a tensor for a number": lambda x: x.logit_(x),
    "a tensor for NaN": lambda x: x.nan_to_num_(x),
}


@pytest.mark.parametrize("m", TOGETHER)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_a_form_does_not_take(m, wrong):
    x = m.tensor([0.25, 0.5])
    with pytest.raises(TypeError, match="_\\("):
        wrong(x)
    assert x.tolist() == [0.25, 0.5]


def test_float_powers_are_written_into_double_precision():
    def program(m):
        x = m.tensor([1.0, 2.0], dtype=m.float64).float_power_(2)
        assert x.tolist() == [1.0, 4.0]
        return m.ones(2).float_power_(2)

    ours, theirs = both(program)
    assert (
        ours
        == theirs
        == (
            "the base given to float_power_ has dtype Float but the operation's result requires "
            "dtype Double"
        )
    )


@pytest.mark.parametrize("m", TOGETHER)
def test_a_complex_number_is_true_where_any_part_is(m):
    assert m.zeros(2, dtype=m.bool).copy_(1j).tolist() == [True, True]
    assert m.zeros(2, dtype=m.bool).fill_(1j).tolist() == [True, True]
    assert m.ones(2, dtype=m.bool).fill_(0j).tolist() == [False, False]


def test_rows_of_tensors_alone_are_those_of_the_table():
    from harness.entries import ROWS

    from gt.composite import inplace

    assert set(inplace.OF_TENSORS) == {
        name for name in inplace.DIRECT if name in ROWS and "tensors" in ROWS[name]
    }
