"""Backward hooks of modules, and hooks of all modules: what they see and replace, as in PyTorch."""

import copy

import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])


def shown(value):
    """Gradients as lists, rounded; None stays."""
    if isinstance(value, (tuple, list)):
        return [shown(x) for x in value]
    return (
        None
        if value is None
        else (str(value.dtype).rpartition(".")[2], [round(x, 4) for x in flat(value)])
    )


def flat(value):
    return value.detach().reshape(-1).double().tolist()


def numbers(m, *shape):
    return m.arange(1.0, 1 + torch.Size(shape).numel()).reshape(*shape) / 4


def linear(m):
    layer = m.nn.Linear(3, 2)
    with m.no_grad():
        layer.weight.copy_(numbers(m, 2, 3))
        layer.bias.copy_(numbers(m, 2))
    return layer


def recording(log, name, replacement=None):
    def hook(module, *gradients):
        log.append((name, type(module).__name__, *map(shown, gradients)))
        return replacement and replacement(*gradients)

    return hook


def mixed(m):
    """Arguments and outputs that are no tensors, need no gradient, are no floats, or go unused."""

    class Mixed(m.nn.Module):
        def forward(self, x, c, i, text, y):
            return x * c, text, y * 2, i

    net, log = Mixed(), []
    net.register_full_backward_hook(recording(log, "after"))
    net.register_full_backward_pre_hook(recording(log, "before"))
    x, y = numbers(m, 2).requires_grad_(), numbers(m, 2).requires_grad_()
    first, text, *_ = net(x, m.ones(2), m.tensor([1]), "a", y)
    first.sum().backward()
    return log, text, shown((x.grad, y.grad))


def replaced(m):
    """Replacements in both places, the order of hooks, prepend, and removal."""
    net, log = m.nn.Sequential(linear(m), m.nn.Tanh()), []
    handles = [
        net[0].register_full_backward_hook(recording(log, 1, lambda given, _: (given[0] * 2,))),
        net[0].register_full_backward_hook(recording(log, 2)),
        net[0].register_full_backward_hook(recording(log, 3), prepend=True),
        net[0].register_full_backward_pre_hook(recording(log, 4, lambda given: (given[0] * 3,))),
        net[0].register_full_backward_pre_hook(recording(log, 5), prepend=True),
        net.register_full_backward_hook(recording(log, "outer")),
    ]
    x = numbers(m, 4, 3).requires_grad_()
    grads = []
    for _ in range(2):
        net(x).sum().backward()
        grads.append(shown((x.grad, net[0].weight.grad)))
        handles.pop(0).remove()
    return log, grads


def without_inputs(m):
    """No argument requires a gradient: the hook is called with the outputs', and a warning."""
    net, log = linear(m), []
    net.register_full_backward_hook(recording(log, "after"))
    with pytest.warns(UserWarning, match="Full backward hook is firing when gradients are"):
        net(numbers(m, 4, 3)).sum().backward()
    with m.no_grad():
        net(numbers(m, 4, 3))
    return log


def shared_and_twice(m):
    """One tensor for two arguments, and a module that is called twice in one graph."""

    class Product(m.nn.Module):
        def forward(self, x, y):
            return x * y

    net, log = Product(), []
    net.register_full_backward_hook(recording(log, "after"))
    x = numbers(m, 2).requires_grad_()
    net(net(x, x), x).sum().backward()
    return log, shown(x.grad)


def second_derivative(m):
    net, log = m.nn.Sigmoid(), []
    net.register_full_backward_hook(recording(log, "after"))
    x = numbers(m, 3).requires_grad_()
    (first,) = m.autograd.grad(net(x).sum(), x, create_graph=True)
    (second,) = m.autograd.grad(first.sum(), x)
    return log, shown((first, second))


def only_parameters(m):
    """A pass for parameters does not reach the arguments, so that the hook is not called."""
    net, log = linear(m), []
    net.register_full_backward_hook(recording(log, "after"))
    net.register_full_backward_pre_hook(recording(log, "before"))
    x = numbers(m, 4, 3).requires_grad_()
    return shown(m.autograd.grad(net(x).sum(), net.weight)), log


def of_all_modules(m):
    net, log = m.nn.Sequential(linear(m), m.nn.Tanh()), []
    module = m.nn.modules.module
    net[0].register_full_backward_hook(recording(log, "own"))
    net[0].register_forward_hook(lambda *given: log.append("own forward"))
    names = ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"]
    handles = [getattr(module, f"register_module_{name}")(recording(log, name)) for name in names]
    try:
        x = numbers(m, 4, 3).requires_grad_()
        net(x).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    net(x)
    return log


def registering(m):
    log, module = [], m.nn.modules.module
    handles = [
        getattr(module, f"register_module_{kind}_registration_hook")(
            lambda owner, name, value, kind=kind: log.append((kind, type(owner).__name__, name))
        )
        for kind in ("parameter", "buffer", "module")
    ]
    doubling = module.register_module_buffer_registration_hook(lambda o, n, value: value * 2)
    try:
        net = m.nn.Sequential(m.nn.Linear(1, 1))
        net.register_buffer("b", m.ones(1))
        net.child = m.nn.ReLU()
        net.p = m.nn.Parameter(m.ones(1))
        net.b = m.ones(1)
    finally:
        for handle in (*handles, doubling):
            handle.remove()
    return log, net.b.tolist()


def copied(m):
    net, log = linear(m), []
    net.register_full_backward_hook(lambda *given: log.append(len(given)))
    copy.deepcopy(net)(numbers(m, 1, 3).requires_grad_()).sum().backward()
    return log, net._is_full_backward_hook, len(net._backward_hooks)


CASES = [mixed, replaced, without_inputs, shared_and_twice, second_derivative, only_parameters,
         of_all_modules, registering, copied]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_hooks_see_what_pytorch_shows(case):
    assert case(gt) == case(torch)


def failing(m, register, *hooks):
    """The error of a backward pass with hooks, or of registering them."""
    net, x = linear(m), numbers(m, 4, 3).requires_grad_()
    for name, hook in zip(register, hooks, strict=True):
        getattr(net, f"register_{name}")(hook)
    net(x).sum().backward()


FULL, BEFORE, OLD = "full_backward_hook", "full_backward_pre_hook", "backward_hook"


@pytest.mark.parametrize(
    ("register", "hooks"),
    [
        ([FULL], [lambda m, i, o: (None, None)]),
        ([FULL], [lambda m, i, o: (i[0][:2],)]),
        ([FULL], [lambda m, i, o: (i[0].double(),)]),
        ([FULL], [lambda m, i, o: (3.0,)]),
        ([BEFORE], [lambda m, o: (None, None)]),
        ([BEFORE], [lambda m, o: (o[0][:2],)]),
        ([FULL, OLD], [print, print]),
        ([OLD, FULL], [print, print]),
    ],
)
def test_errors_are_pytorchs(register, hooks):
    texts = []
    for m in (gt, torch):
        with pytest.raises((RuntimeError, TypeError)) as error:
            failing(m, register, *hooks)
        kind = TypeError if isinstance(error.value, TypeError) else RuntimeError
        texts.append((kind, str(error.value).split("'")[0]))
    assert texts[0] == texts[1]


@BOTH
def test_a_replacement_where_no_input_requires_a_gradient_is_refused(m):
    net = linear(m)
    net.register_full_backward_hook(lambda module, inputs, outputs: outputs)
    out = net(numbers(m, 4, 3)).sum()
    firing = pytest.warns(UserWarning, match="is firing")
    with firing, pytest.raises(RuntimeError, match="always return None"):
        out.backward()


@BOTH
def test_outputs_of_another_kind_warn(m):
    class Named(m.nn.Module):
        def forward(self, x):
            return {"y": x * 2}

    net = Named()
    net.register_full_backward_hook(lambda *given: None)
    x = numbers(m, 3).requires_grad_()
    with pytest.warns(UserWarning, match="output should be a Tensor or a tuple of Tensors"):
        assert net(x)["y"].requires_grad


def test_what_is_written_in_place_beside_a_hook_has_its_gradient():
    """PyTorch refuses it; the hook gets the gradient of what the module was called with."""
    log = []
    net = gt.nn.Sequential(gt.nn.ReLU(inplace=True), linear(gt))
    for module in net:
        module.register_full_backward_hook(recording(log, "after"))
    x = numbers(gt, 4, 3).requires_grad_()
    y = net(x * 1)
    y.mul_(3)
    y.sum().backward()
    theirs = torch.nn.Sequential(torch.nn.ReLU(), linear(torch))
    z = numbers(torch, 4, 3).requires_grad_()
    (theirs(z) * 3).sum().backward()
    assert shown((x.grad, net[1].weight.grad)) == shown((z.grad, theirs[1].weight.grad))
    assert [entry[1] for entry in log] == ["Linear", "ReLU"]
    assert log[0][3][0][1] == [3.0] * 8


def old(m):
    log = []
    net = m.nn.Tanh()
    net.register_backward_hook(recording(log, "old"))
    x = numbers(m, 3).requires_grad_()
    net(x * 2).sum().backward()
    return log, shown(x.grad)


def test_the_old_form():
    assert old(gt) == old(torch)
    net = gt.nn.Sequential(linear(gt), gt.nn.Tanh())
    net.register_backward_hook(lambda *given: None)
    with pytest.warns(FutureWarning, match="when the forward contains multiple autograd Nodes"):
        net(numbers(gt, 4, 3))
    handle = gt.nn.modules.module.register_module_backward_hook(print)
    with handle, pytest.raises(RuntimeError, match="global Module hook"):
        gt.nn.modules.module.register_module_full_backward_hook(print)


@BOTH
def test_hooks_that_are_always_called(m):
    class Failing(m.nn.Module):
        def forward(self, x):
            raise ValueError("forward")

    net, seen = Failing(), []

    def raising(*given):
        raise KeyError("hook")

    net.register_forward_hook(lambda *given: seen.append(given[-1]), always_call=True)
    net.register_forward_hook(lambda *given: seen.append("not"))
    net.register_forward_hook(raising, always_call=True)
    with pytest.warns(UserWarning, match="silenced"), pytest.raises(ValueError, match="forward"):
        net(m.ones(1))
    assert seen == [None]
