"""Faults that whole PyTorch programs met on the device `mux`, each with its neighbours."""

import pytest

torch = pytest.importorskip("torch")

import gt.torch  # noqa: E402

F = torch.nn.functional


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
@pytest.mark.parametrize(
    "make",
    [
        lambda **named: torch.eye(3, **named),
        lambda **named: torch.eye(3, 2, **named),
        lambda **named: torch.ones(2, **named),
        lambda **named: torch.full((2,), 1, **named),
    ],
    ids=["eye", "eye of two sizes", "ones", "full"],
)
def test_a_factory_gives_the_dtype_that_is_asked_for(make, dtype):
    for named in ({"dtype": dtype}, {"out": torch.empty(0, dtype=dtype, device="mux")}):
        got = make(**{"device": "mux"} | named)
        assert got.dtype == dtype
        assert torch.equal(got.cpu(), make(dtype=dtype))


def test_no_backward_pass_minds_a_write_through_data():
    gradients = []
    for device in ("cpu", "mux"):
        x = torch.ones(3, device=device, requires_grad=True)
        product = x * x
        x.data.add_(1)
        assert x.data._version == 0
        product.sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("padding_idx", [None, 1])
@pytest.mark.parametrize("ends_with_length", [False, True])
def test_the_largest_of_bags_have_gradients(padding_idx, ends_with_length):
    table = torch.tensor([[1.0, 5, -1], [3, 2, -1], [3, 5, -2], [0, 0, 0]])
    indices, starts = torch.tensor([0, 1, 2, 1, 2, 1]), [0, 0, 3, 5]
    offsets = torch.tensor([*starts, 6] if ends_with_length else starts)
    found = []
    for device in ("cpu", "mux"):
        weight = table.clone().to(device).requires_grad_()
        bags = F.embedding_bag(
            indices.to(device), weight, offsets.to(device), mode="max",
            include_last_offset=ends_with_length, padding_idx=padding_idx,
        )  # fmt: skip
        (bags * bags.detach().cos()).sum().backward()
        found.append((bags.detach().cpu(), weight.grad.cpu()))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_indices_of_the_device_into_a_tensor_of_the_host_are_an_error_as_in_pytorch():
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.arange(3)[torch.tensor([1], device="mux")]


@pytest.mark.parametrize("dims", [(), []])
def test_a_roll_of_no_dimensions_goes_through_all_elements(dims):
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(torch.roll(x.to("mux"), [2], dims).cpu(), torch.roll(x, [2], dims))
    assert gt.roll(gt.from_torch(x), [2], dims).tolist() == torch.roll(x, 2).tolist()
    with pytest.raises(RuntimeError, match="shifts and dimensions must align"):
        gt.roll(gt.from_torch(x), [1, 2], dims)
