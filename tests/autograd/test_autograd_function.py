"""gt.autograd.Function and the passes: each program runs in PyTorch and in GT, with one result."""

import gc
import weakref

import pytest
from same_program import check

import gt


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def square_of(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return Square


def simple(t):
    x = leaf(t)
    y = square_of(t).apply(x)
    (y * x).sum().backward()
    return y, x.grad, y.grad_fn.name(), [place for _, place in y.grad_fn.next_functions]


def double_backward(t):
    x = leaf(t)
    (first,) = t.autograd.grad(square_of(t).apply(x).pow(2).sum(), x, create_graph=True)
    (second,) = t.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = t.autograd.grad(second.sum(), x)
    return first, second, third


def saved_output(t):
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = leaf(t)
    (first,) = t.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    (second,) = t.autograd.grad((first * x).sum(), x)
    return first, second


def arguments_and_outputs(t):
    class Mixed(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, y, name, pair):
            ctx.scale, ctx.needs = scale, ctx.needs_input_grad
            ctx.save_for_backward(x, None, y)
            whole = (x > 1).sum()
            ctx.mark_non_differentiable(whole)
            return x * scale + y, name, None, whole, x * y, pair[0]

        @staticmethod
        def backward(ctx, a, b, c, d, e, f):
            x, absent, y = ctx.saved_tensors
            assert absent is None
            return ctx.scale * a + y * e, None, a + x * e, None, None

    x, y = leaf(t), leaf(t, 4.0, 5.0, 6.0).detach()
    out = Mixed.apply(x, 3, y, "name", (7, 8))
    y.requires_grad_()
    more = Mixed.apply(x, 3, y, "name", (7, 8))
    (out[0] + more[0] + more[4]).sum().backward()
    return out, x.grad, y.grad, out[0].grad_fn.needs, more[0].grad_fn.needs


def materialized(t, on):
    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(on)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return (a if a is not None else 100) + (b if b is not None else 10)

    x = leaf(t)
    Two.apply(x)[1].sum().backward()
    return x.grad


def setup_context(t):
    class Power(t.autograd.Function):
        @staticmethod
        def forward(x, n=3):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            assert not output.requires_grad
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    x = leaf(t)
    y, z = Power.apply(x), Power.apply(x, n=2)
    (y + z).sum().backward()
    return y, z, x.grad


def dirty(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    x = leaf(t)
    y = x * 1
    z = Double.apply(y)
    (z * y).sum().backward()
    return z is y, z, x.grad


def dirty_leaf(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x.mul_(2))
            return x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return Double.apply(leaf(t))


def returns_input(t):
    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return 5 * g

    x = leaf(t)
    y = Identity.apply(x)
    (y + x).sum().backward()
    return y is x, y, x.grad


def once(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx, g):
            assert not g.requires_grad or not (g * 2).requires_grad
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(t)
    (plain,) = t.autograd.grad(Square.apply(x).sum(), x)
    assert plain.tolist() == [2.0, 4.0, 6.0]
    (first,) = t.autograd.grad((Square.apply(x) ** 2).sum(), x, create_graph=True)
    return t.autograd.grad(first.sum(), x)


def twice(t):
    y = square_of(t).apply(leaf(t)).sum()
    y.backward()
    y.backward()


def retained_twice(t):
    x = leaf(t)
    y = square_of(t).apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def written_since(t):
    x = leaf(t) * 1
    y = square_of(t).apply(x)
    x.add_(1)
    y.sum().backward()


def other_tensor(t):
    """A tensor that is no argument is saved with its own history."""
    w = leaf(t, 2.0, 3.0, 4.0)
    inner = w * 1

    class Times(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(inner)
            return x * inner

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = leaf(t)
    (first,) = t.autograd.grad(Times.apply(x).sum(), x, create_graph=True)
    return first, t.autograd.grad(first.pow(2).sum(), w)


def unneeded(t):
    """The gradient of what needs none is dropped, and broadcast ones are summed."""

    class Add(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, g.double()

    x, y = leaf(t), t.ones(2, 1, requires_grad=True)
    out = Add.apply(x, y)
    out.sum().backward()
    other = Add.apply(x.detach(), y)
    return x.grad, y.grad, other.requires_grad, Add.apply(x.detach(), y.detach()).requires_grad


def without_grad(t):
    with t.no_grad():
        return square_of(t).apply(leaf(t))


def half_used(t):
    """A pass for some inputs calls no backward that does not lead there."""
    called = []

    class Noted(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x * 2

        @staticmethod
        def backward(ctx, g):
            called.append(ctx.name)
            return 2 * g, None

    x, y = leaf(t), leaf(t)
    both = (Noted.apply(x, "x") * Noted.apply(y, "y")).sum()
    found = t.autograd.grad(both, x)
    return found, called


def nested_pass(t):
    """A backward that runs a pass of its own, as checkpointing does."""
    w = leaf(t, 2.0, 3.0, 4.0)

    class Inner(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * w * x

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with t.enable_grad():
                y = x * w * x
            t.autograd.backward(y, g)
            return x.grad

    x = leaf(t)
    Inner.apply(x * 2).sum().backward()
    return x.grad, w.grad


PROGRAMS = [
    simple, double_backward, saved_output, arguments_and_outputs, setup_context, dirty, dirty_leaf,
    returns_input, once, twice, retained_twice, written_since, other_tensor, unneeded, without_grad,
    half_used, nested_pass,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_functions_do_what_pytorch_s_do(program):
    check(program)


@pytest.mark.parametrize("on", [True, False])
def test_absent_gradients_become_zeros_where_asked_for(on):
    check(lambda t: materialized(t, on))


def returning(*gradients):
    def program(t):
        class Returning(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, n):
                return x * n

            @staticmethod
            def backward(ctx, g):
                made = tuple(t.ones(3) if item == "tensor" else item for item in gradients)
                return made if len(made) != 1 else made[0]

        x = leaf(t, 1.0, 2.0)
        Returning.apply(x, 2).sum().backward()
        return x.grad

    return program


@pytest.mark.parametrize(
    "gradients",
    [
        (None,),
        (None, None),
        (None, None, None),
        (None, None, 1),
        (3, None),
        (None, 3),
        ("tensor", None),
    ],
    ids=str,
)
def test_a_wrong_number_or_kind_of_gradients_is_named(gradients):
    check(returning(*gradients))


def without_forward(t):
    class Empty(t.autograd.Function):
        pass

    return Empty.apply(leaf(t))


def without_backward(t):
    class Half(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    Half.apply(leaf(t)).sum().backward()


def saves_a_number(t):
    class Saves(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 3)
            return x * 2

    return Saves.apply(leaf(t))


def dirty_and_not_returned(t):
    class Writes(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x.add_(1))
            return x * 2

    return Writes.apply(leaf(t) * 1)


@pytest.mark.parametrize(
    "program",
    [without_forward, without_backward, saves_a_number, dirty_and_not_returned],
    ids=lambda program: program.__name__,
)
def test_mistakes_have_pytorch_s_words(program):
    check(program)


def test_old_forms_are_refused():
    with pytest.raises(RuntimeError, match="Legacy autograd function"):
        square_of(gt)()(leaf(gt))
    x = leaf(gt)
    with pytest.raises(RuntimeError, match="Please only use `grad_tensors`"):
        gt.autograd.backward(x * 2, gt.ones(3), grad_variables=gt.ones(3))
    gt.autograd.backward(x * 2, grad_variables=gt.ones(3))
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_view_marked_as_dirty_is_refused():
    class Writes(gt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x.add_(1))
            return x

    with pytest.raises(gt.errors.NotSupported, match=r"write into a copy"):
        Writes.apply((leaf(gt) * 1)[:2])


def test_a_function_is_freed_with_its_result():
    """Tensors that forward saves, its own output among them, form no reference cycle."""

    class Keeps(gt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

    x = leaf(gt)
    y = Keeps.apply(x)
    context = weakref.ref(y.grad_fn.saved_tensors and _context_of(y))
    gc.disable()
    try:
        del y
        assert context() is None
    finally:
        gc.enable()


def _context_of(y):
    return y.grad_fn.save_for_backward.__self__


# ---- passes ----


def several_roots(t):
    x, y = leaf(t), leaf(t)
    t.autograd.backward([(x * y).sum(), x * 2], [None, t.tensor([1.0, 10.0, 100.0])])
    return x.grad, y.grad


def only_some(t):
    x, y = leaf(t), leaf(t)
    middle = x * y
    t.autograd.backward((middle * 2).sum(), inputs=[y, middle])
    return x.grad, y.grad, middle.grad


def with_zeros(t):
    x, y = leaf(t), leaf(t)
    return t.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)


def unused(t):
    x, y = leaf(t), leaf(t)
    return t.autograd.grad((x * 2).sum(), [x, y])


def allowed(t):
    x, y = leaf(t), leaf(t)
    return t.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)


def of_middle(t):
    x = leaf(t)
    y = x * x
    z = (y * y).sum()
    return t.autograd.grad(z, [y, x], retain_graph=True), t.autograd.grad(z, y)


def of_itself(t):
    x = leaf(t)
    return t.autograd.grad(x.sum(), x), t.autograd.grad([x], [x], [t.ones(3)])


def no_inputs(t):
    return t.autograd.grad(leaf(t).sum(), [])


def empty_inputs(t):
    return t.autograd.backward(leaf(t).sum(), inputs=[])


def seed_of_another_shape(t):
    t.autograd.backward([leaf(t)], [t.ones(2)])


def seedless(t):
    return t.autograd.grad(leaf(t) * 2, leaf(t))


def impossible_zeros(t):
    x = leaf(t)
    return t.autograd.grad(x.sum(), x, materialize_grads=True, allow_unused=False)


@pytest.mark.parametrize(
    "program",
    [
        several_roots,
        only_some,
        with_zeros,
        unused,
        allowed,
        of_middle,
        of_itself,
        no_inputs,
        empty_inputs,
        seed_of_another_shape,
        seedless,
        impossible_zeros,
    ],
    ids=lambda program: program.__name__,
)
def test_passes_do_what_pytorch_s_do(program):
    check(program)


def batches(t, **options):
    x, unused = leaf(t), leaf(t)
    seeds = [t.stack([x.detach() * i for i in range(3)]), t.tensor([1.0, 0.0, -2.0])]
    outputs, inputs = [x * x, x.exp().sum()], [x, unused]
    return x, t.autograd.grad(outputs, inputs, seeds, is_grads_batched=True, **options)


def batches_with_an_unused_input(t):
    return batches(t, allow_unused=True)[1]


def batches_with_zeros(t):
    return batches(t, materialize_grads=True)[1][0]


def batches_of_an_unused_input(t):
    return batches(t)


def batches_that_are_differentiated_again(t):
    x, (jacobian, _) = batches(t, allow_unused=True, create_graph=True)
    jacobian.sum().backward()
    return x.grad, jacobian


def batches_of_another_shape(t):
    x = leaf(t)
    return t.autograd.grad(x * 2, x, t.ones(3), is_grads_batched=True)


@pytest.mark.parametrize(
    "program",
    [
        batches_with_an_unused_input,
        batches_with_zeros,
        batches_of_an_unused_input,
        batches_that_are_differentiated_again,
        batches_of_another_shape,
    ],
    ids=lambda program: program.__name__,
)
def test_batches_of_gradients_are_as_many_passes(program):
    check(program)


@pytest.mark.parametrize("shape", [(), (0, 2)])
def test_batches_of_gradients_that_are_none(shape):
    x = gt.ones(2, requires_grad=True)
    with pytest.raises(gt.errors.ShapeError, match=r"is_grads_batched=True|the same size of 1"):
        gt.autograd.grad(x * 2, x, gt.ones(shape), is_grads_batched=True)
    with pytest.raises(gt.errors.ShapeError, match="is_grads_batched=True"):
        gt.autograd.grad((x * 2).sum(), x, is_grads_batched=True)


# ---- anomaly mode ----


def test_anomaly_mode_names_the_line_of_the_forward_call():
    x = gt.tensor([0.0, -1.0], requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly Detection"):
        mode = gt.autograd.detect_anomaly()
    with mode:
        y = x.sqrt()  # the line
        loss = (y * 0).sum()
        with (
            pytest.warns(UserWarning, match=rf"SqrtBackward0.*{__file__}:\d+"),
            pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values"),
        ):
            loss.backward()
    assert gt._core.anomaly_mode() == (False, False)


def test_anomaly_mode_explains_errors_and_passes_what_is_right():
    x = leaf(gt)
    with gt.autograd.set_detect_anomaly(True, check_nan=False):
        (x * x).sum().backward()
        y = (x * x).sum()
        y.backward()
        with pytest.warns(UserWarning, match="MulBackward0"), pytest.raises(RuntimeError):
            y.backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]
