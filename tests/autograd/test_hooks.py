"""Hooks on gradients, on nodes and on what the tape saves: one program for PyTorch and GT."""

import pytest
from same_program import check

import gt


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def noting(log, name, result=None):
    def hook(g):
        log.append((name, g.tolist()))
        return None if result is None else result(g)

    return hook


def of_a_leaf(t):
    """They see the sum of all that arrives, and what they return accumulates."""
    log, x = [], leaf(t)
    x.register_hook(noting(log, "first", lambda g: g * 2))
    x.register_hook(noting(log, "second", lambda g: g + 1))
    (x * x + x * 3).sum().backward()
    (x * 1).sum().backward()
    return log, x.grad


def of_an_intermediate(t):
    log, x = [], leaf(t)
    y = x * 2
    y.register_hook(noting(log, "y", lambda g: g * 10))
    y.retain_grad()
    (y * y).sum().backward()
    return log, y.grad, x.grad


def order(t):
    """By the tape: a result's before those of its operands, a leaf's as soon as it is complete."""
    log, x, w = [], leaf(t), leaf(t)
    y = x * w
    z = y.exp()
    for name, tensor in (("x", x), ("y", y), ("z", z)):
        tensor.register_hook(noting(log, name))
    (z * w).sum().backward()
    return [name for name, _ in log]


def removed(t):
    log, x = [], leaf(t)
    handle = x.register_hook(noting(log, "gone"))
    with x.register_hook(noting(log, "within")):
        x.sum().backward()
    handle.remove()
    handle.remove()
    x.register_hook(noting(log, "last"))
    x.sum().backward()
    return [name for name, _ in log], x.grad


def accumulated(t):
    log, x = [], leaf(t)
    y = leaf(t)
    x.register_post_accumulate_grad_hook(lambda p: log.append((p is x, p.grad.tolist())))
    x.register_hook(lambda g: g * 2)
    (x * x * y).sum().backward()
    (x * 1).sum().backward()
    before = len(log)
    t.autograd.grad((x * 2).sum(), x)
    t.autograd.backward((x * y).sum(), inputs=[x])
    return [values for _, values in log], before


def optimizer_in_backward(t):
    x = leaf(t)

    def step(p):
        with t.no_grad():
            p.sub_(p.grad, alpha=0.1)
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()
    return x, x.grad


def of_grad(t):
    """autograd.grad runs the hooks of what it is asked for, and of what leads there."""
    log, x, y = [], leaf(t), leaf(t)
    x.register_hook(noting(log, "x", lambda g: g * 2))
    y.register_hook(noting(log, "y"))
    z = x * y
    z.register_hook(noting(log, "z", lambda g: g + 1))
    return t.autograd.grad((z * z).sum(), [x, z]), log


def differentiable(t):
    x = leaf(t)
    x.register_hook(lambda g: g * x)
    (first,) = t.autograd.grad((x * x).sum(), x, create_graph=True)
    x2 = first.sum()
    return first, t.autograd.grad(x2, x)


def of_nodes(t):
    log, x = [], leaf(t)
    y = x * x
    y.grad_fn.register_prehook(lambda go: (log.append(go[0].tolist()), (go[0] * 3,))[1])
    y.grad_fn.register_hook(lambda gi, go: (log.append(go[0].tolist()), (gi[0] * 2, gi[1]))[1])
    y.sum().backward()
    return log, x.grad


def several(t):
    log, x, y = [], leaf(t), leaf(t)
    handle = t.autograd.graph.register_multi_grad_hook(
        (x, y), lambda grads: log.append([g.tolist() for g in grads])
    )
    (x * y).sum().backward()
    (x * y).sum().backward()
    handle.remove()
    (x * y).sum().backward()
    return log


def of_a_root(t):
    x = leaf(t)
    x.register_hook(lambda g: g * 4)
    x.backward(t.ones(3))
    return x.grad


def before_a_write(t):
    """A hook belongs to the value that the tensor had."""
    log, x = [], leaf(t)
    y = x * 2
    y.register_hook(noting(log, "before"))
    y.mul_(3)
    y.register_hook(noting(log, "after"))
    y.sum().backward()
    return log, x.grad


def graph(t):
    x, y = leaf(t), leaf(t)
    z = (x * y).exp()
    product = z.grad_fn.next_functions[0][0]
    names = [fn.name() for fn, _ in product.next_functions]
    leaves = [fn.variable is not None for fn, _ in product.next_functions]
    constant = (x * t.ones(3)).grad_fn.next_functions[1]
    same = product == z.grad_fn.next_functions[0][0]
    return z.grad_fn.name(), product.name(), names, leaves, constant, same


def parameters_of_a_graph(t):
    """Walked from the loss, as programs do that draw a graph: the very objects of the program."""
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.Tanh(), t.nn.Linear(2, 1, bias=False))
    x, y = leaf(t), t.ones(3).requires_grad_()
    z = t.tensor([1.0, 2.0])
    z.requires_grad = True
    known = {**dict(model.named_parameters()), "x": x, "y": y, "z": z}
    found, roots = set(), [(model(x * y).sum() * z).sum().grad_fn]
    while roots:
        node = roots.pop()
        if hasattr(node, "variable"):
            found |= {name for name, tensor in known.items() if tensor is node.variable}
        roots += [each for each, _ in node.next_functions if each is not None]
    return sorted(found)


def a_leaf_that_is_gone(t):
    """Its node keeps what it needs, and leads to one new object."""
    y = leaf(t) * 2
    node = y.grad_fn.next_functions[0][0]
    one = node.variable
    y.sum().backward()
    return one is node.variable, one, one.grad


def packed(t):
    log, x, w = [], leaf(t), leaf(t)

    def pack(tensor):
        log.append(("pack", tensor.tolist(), tensor.requires_grad))
        return tensor * 1

    def unpack(kept):
        log.append(("unpack", kept.tolist()))
        return kept * 2

    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * w).exp()
    outside = y * w
    outside.sum().backward()
    return sorted(map(str, log)), x.grad, w.grad


def packed_innermost(t):
    x = leaf(t)
    hooks = t.autograd.graph.saved_tensors_hooks
    with hooks(lambda v: v, lambda v: v * 100):
        with hooks(lambda v: v, lambda v: v * 2):
            y = x * x
        z = y * y
    z.sum().backward()
    return x.grad


def packed_twice(t):
    """Second derivatives go through the hooks, too."""
    x = leaf(t)
    with t.autograd.graph.saved_tensors_hooks(lambda v: v.numpy(), t.from_numpy):
        y = (x**3).sum()
    (first,) = t.autograd.grad(y, x, create_graph=True)
    return first, t.autograd.grad(first.sum(), x)


def retains(t):
    x = leaf(t)
    y = x * 2
    before = y.retains_grad
    y.retain_grad()
    x.retain_grad()
    return before, y.retains_grad, x.retains_grad, (y * 1).retains_grad, y.detach().retains_grad


def optimizer_found_by_parameter(t):
    """PyTorch's tutorial: each parameter has an optimizer, which its hook finds by it."""
    t.manual_seed(0)
    layer = t.nn.Linear(2, 2)
    t.nn.init.constant_(layer.weight, 0.5)
    t.nn.init.zeros_(layer.bias)
    optimizers = {parameter: t.optim.SGD([parameter], lr=0.1) for parameter in layer.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        layer(t.ones(1, 2)).sum().backward()
    return list(layer.parameters()), [parameter.grad for parameter in layer.parameters()]


def names_of_nodes(t):
    x = leaf(t)
    functions = [
        x + 1, x * 2, x.exp(), x.sum(), x.mean(), x.relu(), x.softmax(0), t.cat([x, x]),
        x.double(), x[:1], x.sort()[0], t.nn.functional.layer_norm(x, x.shape), x.erfc(),
        t.cdist(x[None], x[None]),
    ]  # fmt: skip
    nodes = [y.grad_fn for y in functions]
    nodes.append(functions[0].grad_fn.next_functions[0][0])
    kinds = [type(node).__name__ for node in nodes]
    shown = [repr(node).partition(" at ")[0] for node in nodes]
    are_nodes = [isinstance(node, t.autograd.graph.Node) for node in nodes]
    return kinds, shown, are_nodes, [node.name() for node in nodes[:-1]]


PROGRAMS = [
    retains, names_of_nodes, optimizer_found_by_parameter,
    of_a_leaf, of_an_intermediate, order, removed, accumulated, optimizer_in_backward, of_grad,
    differentiable, of_nodes, several, of_a_root, before_a_write, graph,
    parameters_of_a_graph, a_leaf_that_is_gone, packed, packed_innermost,
    packed_twice,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_hooks_do_what_pytorch_s_do(program):
    check(program)


def returns(value, where=lambda x: x):
    def program(t):
        x = leaf(t)
        y = where(x)
        y.register_hook(lambda g: value(t))
        (y * 2).sum().backward()
        return x.grad

    return program


def no_gradient(t):
    return t.ones(2).register_hook(print)


def no_gradient_accumulates(t):
    return t.ones(2).register_post_accumulate_grad_hook(print)


def no_leaf(t):
    return (leaf(t) * 2).register_post_accumulate_grad_hook(print)


def after_accumulation(hook):
    def program(t):
        x = leaf(t)
        x.register_post_accumulate_grad_hook(hook)
        x.sum().backward()
        return x.grad

    return program


def node_count(t):
    y = leaf(t) ** 2
    y.grad_fn.register_hook(lambda gi, go: (*gi, None, None))
    y.sum().backward()


def node_kind(t):
    y = leaf(t).exp()
    y.grad_fn.register_hook(lambda gi, go: 3)
    y.sum().backward()


def unpack_kind(t):
    with t.autograd.graph.saved_tensors_hooks(lambda v: v, lambda v: 3):
        y = leaf(t).exp()
    y.sum().backward()


@pytest.mark.parametrize(
    "program",
    [
        returns(lambda t: 3),
        returns(lambda t: t.ones(4)),
        no_gradient,
        no_gradient_accumulates,
        returns(lambda t: t.ones(4), lambda x: x * 1),
        no_leaf,
        after_accumulation(lambda leaf: leaf),
        after_accumulation(lambda leaf: leaf.grad),
        after_accumulation(lambda leaf: 3),
        node_kind,
        unpack_kind,
    ],
)
def test_mistakes_have_pytorch_s_words(program):
    check(program)


def test_a_changed_dtype_is_refused():
    x = leaf(gt)
    x.register_hook(lambda g: g.double())
    with pytest.raises(RuntimeError, match="has changed the type of value"):
        x.sum().backward()


def test_a_failing_hook_leaves_no_trace_in_the_next_pass():
    x = leaf(gt)

    def fails(g):
        raise KeyError("mine")

    with x.register_hook(fails), pytest.raises(KeyError, match="mine"):
        (x * x).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]
    assert gt.is_grad_enabled()
