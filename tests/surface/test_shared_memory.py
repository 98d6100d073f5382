"""Memory sharing: PyTorch's functions that return views, and similar ones that do not.

Each is called as a method and as a function, on tensors of many layouts. A write into a result
reaches its base where PyTorch's does, and a write to the base reaches the result; so do gradients.
"""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gt

# By the least number of dimensions: what is called as a method of x, and as a function of x.
ANY = """
    alias() adjoint() as_strided(x.shape,x.stride())
    as_strided(x.shape,x.stride(),x.storage_offset()) as_strided((),()) atleast_1d()
    atleast_2d() atleast_3d() broadcast_to(x.shape) broadcast_to((2,*x.shape)) clone() conj()
    conj_physical() contiguous() cpu() detach() expand_as(x) expand((2,*x.shape))
    expand(x.shape) flatten() flip(()) mul(1) add(0) positive() ravel() real reshape(x.shape)
    reshape((-1,)) reshape_as(x) resolve_conj() resolve_neg() squeeze() squeeze(0) squeeze(-1)
    squeeze((0,-1)) to(x.dtype) to(x) to(x.dtype,copy=True) type_as(x) type(x.dtype)
    unsqueeze(0) unsqueeze(-1) view(x.shape) view(-1) view(x.dtype) view_as(x) data T mT mH H
    abs() round() clip(0,100) clamp_min(0) relu() nan_to_num() where(x==x,x) masked_fill(x!=x,0)
    zeros_like() new_tensor(x) cumsum(0) sort()[0] roll(0) repeat((1,1,1)) tile((1,)) float()
    double() requires_grad_(False) sum(()) mean(()) diag_embed() triu() tril() fliplr() rot90(0)
    movedim((),()) moveaxis((),()) permute(()) t() squeeze(()) __getitem__(...) __getitem__(())
    __getitem__(None) __getitem__(True) __getitem__((...,None)) block_diag()
    broadcast_tensors(x)[0] meshgrid()[0] cartesian_prod() atleast_1d(x)[0] atleast_2d(x)[0]
    atleast_3d(x)[0] unsafe_chunk(1) unsafe_split(1) sum_to_size(x.shape) asarray() as_tensor()
    tensor_split(1) special.expit() softmax(0) nn.functional.relu() nn.functional.dropout(0.0)
    nn.functional.dropout(0.5,False) nn.functional.alpha_dropout(0.5,False)
    nn.functional.pad((0,0)) nn.functional.pad(()) nn.functional.dropout1d(0.0) __copy__()
    swapaxes(0,-1) swapdims(0,-1) transpose(0,-1) transpose(0,0) narrow_copy(0,0,1)
    view_as_real() view_as_complex() imag repeat_interleave(1) index_select(0,T.tensor([0]))
    __getitem__(T.tensor([0])) __getitem__(x==x) masked_select(x==x) to_dense() bool() long()
    copysign(1) nonzero() view_copy(x.shape) alias_copy() detach_copy() expand_copy(x.shape)
    unsqueeze_copy(0) squeeze_copy() as_strided_copy(x.shape,x.stride()) permute_copy(())
    t_copy() transpose_copy(0,-1) select_copy(0,0) slice_copy(0) chunk(1) split(1)
"""
FROM_1 = """
    chunk(2) chunk(2,-1) split(2) split([1,x.shape[0]-1]) split_with_sizes([1,x.shape[0]-1])
    tensor_split(2) tensor_split((1,)) hsplit((1,)) unbind() unbind(-1) unsafe_chunk(2)
    unsafe_chunk(2,-1) unsafe_split(2) unsafe_split(1,-1)
    unsafe_split_with_sizes([1,x.shape[0]-1]) narrow(0,0,1) narrow(-1,1,1)
    narrow(0,T.tensor(1),1) select(0,0) select(-1,-1) slice(0) unfold(0,2,1) unfold(0,1,2)
    unfold(-1,2,2) as_strided((2,),(1,)) as_strided((2,2),(1,1)) as_strided((2,2),(0,1))
    as_strided((2,),(1,),1) as_strided((1,2),(7,1),2) as_strided((x.shape[0],),(0,))
    as_strided((2,),(2,),1) as_strided((0,),(1,)) unflatten(0,(1,-1)) unflatten(0,(-1,1))
    flatten(0,0) flatten(0,-1) split_copy(2)[0] unbind_copy()[0] __getitem__(0)
    __getitem__(slice(1,None)) __getitem__(slice(None,None,2)) __getitem__([0])
    __getitem__((0,...)) __getitem__((None,0)) diff() index_select(0,T.tensor([0])) flip((0,))
    roll(1) cat() take(T.tensor([0])) gather(0,T.zeros(x.shape,dtype=T.int64))
    take_along_dim(T.zeros(x.shape,dtype=T.int64),0) repeat((2,)) tile((2,)) movedim(0,-1)
    moveaxis(0,-1) narrow_copy(0,0,1) diag_embed() chunk(1)[0] tensor_split(1)[0] split(100)[0]
    unsafe_split(100)[0] unsafe_chunk(1)[0] msort()
"""
FROM_2 = """
    t() T mT mH H adjoint() diagonal() diagonal(1) diagonal(-1) linalg.diagonal()
    linalg.diagonal(offset=1) diagonal(0,1,0) vsplit((1,)) hsplit((1,)) vsplit(1) permute((1,0))
    swapaxes(0,1) swapdims(0,1) transpose(0,1) movedim(0,1) movedim((0,1),(1,0)) moveaxis(1,0)
    chain_matmul() linalg.multi_dot() diag() diag(1) diag(-1) fliplr() flipud() rot90() rot90(2)
    rot90(4) flatten(0,1) unflatten(1,(1,-1)) __getitem__((0,1)) matmul(T.eye(3).to(x.dtype))
    __getitem__((slice(None),0)) __getitem__((slice(None),slice(1,None)))
    as_strided((2,2),(3,1)) as_strided((3,2),(1,3)) as_strided((2,2),(2,1),1)
    as_strided((2,),(4,)) as_strided((2,3),(1,2)) chunk(2,1) split(1,1) unbind(1) unfold(1,2,1)
    squeeze((0,1)) triu() tril() trace() diagonal_copy() permute_copy((1,0)) cov() corrcoef()
    tensor_split(2,1)
"""
FROM_3 = """
    dsplit((1,)) dsplit(1) permute((2,0,1)) mT mH adjoint() movedim(0,2) movedim((0,1),(2,0))
    diagonal(0,0,2) diagonal(1,1,2) linalg.diagonal(dim1=0) flatten(1) flatten(0,1) flatten(1,2)
    unflatten(2,(1,-1)) __getitem__((0,...,1)) select(1,0) as_strided((2,2,2),(1,2,1))
    unfold(1,2,1)
"""
CALLS = {0: ANY, 1: FROM_1, 2: FROM_2, 3: FROM_3}
SHAPES = {0: (), 1: (4,), 2: (3, 3), 3: (2, 3, 4)}
# Each takes a part of `base`, where what is written arrives.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda base: base,
    "transposed": lambda base: base.transpose(0, -1) if base.ndim else base.view(()),
    "of an expanded one": lambda base: base.unsqueeze(0).expand(2, *base.shape)[1],
    "of one element": lambda base: base.select(0, 0).expand(base.shape) if base.ndim else base,
    "sliced": lambda base: base[1:] if base.ndim else base[...],
    "strided": lambda base: base[..., ::2] if base.ndim else base[...],
    "empty": lambda base: base[:0] if base.ndim else base[...],
    "detached": lambda base: base[..., 1:].detach() if base.ndim else base.detach(),
}
COMPLEX = {"contiguous", "transposed", "of one element", "sliced"}
RANKS_AND_LAYOUTS = [
    (rank, layout)
    for rank in SHAPES
    for layout in LAYOUTS
    if rank or layout in {"contiguous", "detached"}
]
# Not writable, see docs/from_pytorch.md: parts of complex tensors.
PARTS = {"real", "imag", "view_as_real", "view_as_complex"}
# PyTorch does not record writes into `x.view(dtype)` of the tensor's own dtype.
UNRECORDED = {"x.view(x.dtype)"}
MODULES = ("linalg", "nn", "special")


def expressions(calls: str) -> Iterator[str]:
    """Each call as a method or property, and as a function, where PyTorch has them."""
    for call in calls.split():
        name, bracket, rest = call.partition("(")
        if name.partition(".")[0] not in MODULES and hasattr(torch.Tensor, name):
            yield f"x.{call}"
        owner: Any = torch
        for part in name.split("."):
            owner = getattr(owner, part, None)
        if bracket and callable(owner):
            first = "[x]" if name in {"cat", "linalg.multi_dot"} else "x"
            yield f"T.{name}({first}" + (rest if rest.startswith(")") else f", {rest}")


def cases(rank: int) -> list[str]:
    return [
        expression
        for least, calls in CALLS.items()
        if least <= rank
        for expression in dict.fromkeys(expressions(calls))
    ]


def is_part(expression: str) -> bool:
    return re.split(r"[.(]", expression)[1] in PARTS


def base_of(m: Any, rank: int, dtype: str) -> Any:
    base = m.arange(1.0, torch.Size(SHAPES[rank]).numel() + 1).reshape(SHAPES[rank])
    return base * (1 + 2j) if dtype == "complex64" else base.to(getattr(m, dtype))


def results(m: Any, x: Any, expression: str) -> list[Any]:
    result = eval(expression, {"T": m, "x": x})
    parts = [*result] if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, torch.Tensor | gt.Tensor)]


def listed(x: Any) -> object:
    return x.detach().resolve_conj().tolist()


def overlaps(x: Any) -> bool:
    """True where several elements share memory, so that the last write is undefined."""
    if 0 in x.shape:
        return False
    end = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride < end:
            return True
        end += (size - 1) * stride
    return False


def refusal(error: Exception) -> str:
    return re.split(r"[.:]", str(error).partition(" view and ")[0])[0]


def written(m: Any, layout: str, rank: int, dtype: str, expression: str) -> Iterator[object]:
    """Writes into each result, into the whole, and into the tensor itself."""
    base = base_of(m, rank, dtype)
    x = LAYOUTS[layout](base)
    parts = results(m, x, expression)
    yield [listed(part) for part in parts]
    for number, part in enumerate(parts):
        try:
            part.fill_(50 + number)
            yield listed(base)
            if not overlaps(part):
                part.copy_(m.arange(part.numel()).reshape(part.shape))
        except RuntimeError as error:
            yield refusal(error)
        yield listed(base)
        yield [listed(other) for other in parts]
    base.mul_(2)
    yield [listed(part) for part in parts]
    if layout != "of one element":
        x.fill_(7)
        yield [listed(part) for part in parts]


def differentiated(m: Any, layout: str, rank: int, dtype: str, expression: str) -> Iterator[object]:
    """A recorded write into the last result, and the gradient of the whole after it."""
    leaf = base_of(m, rank, dtype).requires_grad_()
    base = leaf * 3
    part = results(m, LAYOUTS[layout](base), expression)[-1]
    if overlaps(part):
        return
    yield listed(part)
    try:
        part.mul_(m.arange(1, part.numel() + 1).reshape(part.shape).to(part.dtype))
    except RuntimeError as error:
        yield refusal(error)
        return
    yield listed(base)
    (base * base.conj()).real.sum().backward()
    yield listed(part)
    yield None if leaf.grad is None else listed(leaf.grad)


def outcome(program: Callable[..., Iterator[object]], m: Any, *case: Any) -> list[object]:
    values: list[object] = []
    try:
        values.extend(program(m, *case))
    except Exception:  # noqa: BLE001 - which one other tests compare
        values.append("refused")
    return values


def differences(
    program: Callable[..., Iterator[object]], layout: str, rank: int, skipped: set[str]
) -> list[object]:
    found: list[object] = []
    for dtype in ("float32", "complex64") if layout in COMPLEX else ("float32",):
        for expression in cases(rank):
            if expression in skipped or is_part(expression):
                continue
            case = (layout, rank, dtype, expression)
            expected = outcome(program, torch, *case)
            got = outcome(program, gt, *case)
            if repr(got) != repr(expected):  # a NaN is a NaN
                found.append((dtype, expression, expected, got))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rank", "layout"), RANKS_AND_LAYOUTS)
def test_writes_arrive_where_pytorchs_do(rank: int, layout: str) -> None:
    assert differences(written, layout, rank, set()) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rank", "layout"), RANKS_AND_LAYOUTS)
def test_recorded_writes_arrive_where_pytorchs_do(rank: int, layout: str) -> None:
    assert differences(differentiated, layout, rank, UNRECORDED) == []


def resized(m: Any) -> Iterator[object]:
    x = m.arange(6.0)
    row, matrix = x[1:3], x.view(2, 3)
    x.resize_(2, 3)
    x.mul_(10)
    yield [x, row, matrix, x._version, x.is_leaf]
    x.resize_(2)
    x.fill_(7)
    yield [x, row, matrix, x.resize_(6), x.resize_(6)._version]


def resized_views(m: Any) -> Iterator[object]:
    base = m.arange(6.0)
    part = base[1:]
    part.resize_(2, 2)
    part.add_(100)
    yield [base, part, part.storage_offset(), base._version, part._is_view()]
    transposed = m.arange(6.0).reshape(2, 3).t()
    yield [transposed.resize_(3, 2), transposed.stride(), transposed.resize_as_(m.ones(2, 3))]


def grown(m: Any) -> Iterator[object]:
    x = m.arange(3.0)
    x.resize_(0)
    yield [x.resize_(5)[:3], x.resize_(2, 2)[0], x.stride()]


def copied_list(m: Any) -> Iterator[object]:
    x = m.arange(6.0)
    tensors = [x, x[2:], x.view(2, 3).t(), x.detach(), x[:1].expand(3), m.ones(2)]
    copies = copy.deepcopy(tensors)
    copies[0].mul_(2)
    copies[1][0] = 50
    yield [*copies, *tensors]
    yield [(t.stride(), t.storage_offset(), t.is_leaf, t._is_view()) for t in copies]
    yield [t._version for t in copy.deepcopy([x, x[1:], m.ones(1), m.tensor([1j]).conj()])]
    copies[0].requires_grad_()
    (copies[0] * copies[0]).sum().backward()
    yield [copies[0].grad, copies[1].requires_grad]


def copied_dict(m: Any) -> Iterator[object]:
    x = m.tensor([1 + 2j, 3])
    copies = copy.deepcopy({"whole": x, "conjugate": x.conj(), "part": x[:1]})
    copies["part"].zero_()
    copies["conjugate"][1] = 9j
    yield [*copies.values(), x]


def copied_module(m: Any) -> Iterator[object]:
    module, memory = m.nn.Module(), m.arange(4.0)
    module.register_buffer("front", memory[:2])
    module.register_buffer("back", memory[1:])
    module.own = m.nn.Buffer(memory)
    module.weight = module.again = m.nn.Parameter(memory)
    twin = copy.deepcopy(module)
    twin.front.zero_()
    yield [twin.back, twin.own, twin.weight, memory]
    yield [twin.weight is twin.again, twin.weight.is_leaf]


def copied_gradients(m: Any) -> Iterator[object]:
    x = m.ones(3, requires_grad=True)
    x.grad = m.ones(3)
    twin, grad, part = copy.deepcopy([x, x.grad, x.grad[1:]])
    grad.mul_(5)
    yield [twin.grad, part, twin.requires_grad, twin.grad is grad, x.grad]


def split_without_a_record(m: Any) -> Iterator[object]:
    leaf = m.arange(4.0).requires_grad_()
    base = leaf * 3
    front, back = m.unsafe_split(base, 2)
    front.mul_(5)
    yield [front, base, front._is_view(), front._version, base._version]
    (front.sum() + (base * base).sum() + back.sum()).backward()
    yield [leaf.grad]


def conjugated(m: Any) -> Iterator[object]:
    leaf = m.tensor([[1 + 2j, 3 - 1j], [2j, 5.0]], requires_grad=True)
    base = leaf * (2 + 1j)
    transposed = base.mH
    transposed[0].mul_(3j)
    transposed.conj()[1, 1] = leaf[0, 0] * 7j
    base.conj().unfold(1, 2, 1).mul_(1 - 1j)
    base.conj().as_strided((2,), (2,), 1).add_(leaf[1])
    yield [base.resolve_conj(), transposed, transposed.stride(), transposed._is_view()]
    (base * transposed).real.sum().backward()
    yield [leaf.grad]


def strided_anywhere(m: Any) -> Iterator[object]:
    leaf = m.arange(12.0).requires_grad_()
    base = leaf.reshape(3, 4) * 2
    last = base[2]
    whole = last.as_strided((12,), (1,), 0)
    whole[::5].mul_(3)
    last.pow_(2)
    (whole * whole).sum().backward()
    yield [base, whole, whole.storage_offset(), whole._version, leaf.grad]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        resized, resized_views, grown, copied_list, copied_dict, copied_module, copied_gradients,
        split_without_a_record, conjugated, strided_anywhere,
    ],
)  # fmt: skip
def test_programs(program: Callable[[Any], Iterator[Any]]) -> None:
    def described(value: object) -> object:
        return listed(value) if isinstance(value, torch.Tensor | gt.Tensor) else value

    def run(m: Any) -> list[object]:
        return [[described(value) for value in values] for values in program(m)]

    assert run(gt) == run(torch)


def test_shared_memory_does_not_grow() -> None:
    x = gt.zeros(3)
    row = x[1:]
    with pytest.raises(gt.errors.NotSupported, match=r"needs more memory than the 3 elements"):
        x.resize_(4)
    x.fill_(5)
    assert row.tolist() == [5, 5]
