"""Small networks of every kind under autocast: what each layer gives is of PyTorch's dtype, losses
and gradients are PyTorch's.
"""

import numpy as np
import pytest
import torch

import gt

IMAGES = (4, 3, 12, 12)
NETS = {
    "convolutions": (
        lambda nn: nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(8, 4),
        ),
        IMAGES,
    ),
    "transposed": (
        lambda nn: nn.Sequential(
            nn.ConvTranspose2d(3, 4, 3, stride=2), nn.InstanceNorm2d(4, affine=True),
            nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(4, 2, 3),
        ),
        IMAGES,
    ),
    "dense": (
        lambda nn: nn.Sequential(
            nn.Linear(4, 4), nn.PReLU(), nn.Softmax(-1), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2)
        ),
        (3, 4),
    ),
    "gru": (lambda nn: nn.GRU(5, 6, bidirectional=True), (3, 4, 5)),
    "cell": (lambda nn: nn.LSTMCell(5, 6), (3, 5)),
    "transformer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (3, 4, 8),
    ),
}  # fmt: skip


def run(t, model, values, dtype):
    """Dtypes by layer, the loss, and gradients with their dtypes."""
    dtypes = {}

    def note(title):
        def hook(layer, given, made):
            made = made[0] if isinstance(made, tuple) else made
            dtypes[title] = str(made.dtype).rpartition(".")[2]

        return hook

    for title, layer in model.named_modules():
        layer.register_forward_hook(note(title))
    with t.autocast("cpu", dtype=getattr(t, dtype)):
        made = model(t.tensor(values))
        made = made[0] if isinstance(made, tuple) else made
        loss = (made.float() + t.tensor(np.sin(np.arange(made.shape[-1], dtype=np.float32)))).pow(2)
        loss = loss.mean()
    loss.backward()
    gradients = {
        name: (str(p.grad.dtype).rpartition(".")[2], torch.tensor(p.grad.tolist()))
        for name, p in model.named_parameters()
    }
    return dtypes, loss.item(), gradients


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NETS)
def test_layers_losses_and_gradients_are_pytorchs(name, dtype):
    make, shape = NETS[name]
    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(gt.nn)
    ours.load_state_dict({key: gt.from_numpy(x.numpy()) for key, x in theirs.state_dict().items()})
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    dtypes, loss, gradients = run(torch, theirs, values, dtype)
    # Layers inside one fused kernel of PyTorch's are not called there.
    got_dtypes, got_loss, got = run(gt, ours, values, dtype)
    assert {title: got_dtypes[title] for title in dtypes} == dtypes
    assert got_loss == pytest.approx(loss, rel=2e-3)
    for key, (kind, gradient) in gradients.items():
        assert got[key][0] == kind
        scale = float(gradient.abs().max())
        torch.testing.assert_close(got[key][1], gradient, rtol=0.02, atol=0.02 * scale + 1e-4)
