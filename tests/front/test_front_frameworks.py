"""Frameworks that choose their device themselves, and models of timm, on the device `mux`.

Each is beside itself on the host. Needs `accelerate`, `transformers`, `lightning` or
`pytorch_lightning`, `timm`; a test whose package is absent is skipped. One of each family takes
seconds; the others want --slow, as `just frameworks` has it, which installs the packages, too.
"""

import copy
import importlib
import importlib.util
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch_session import torch_workers

import gt.integrations

TOLERANCE = 1e-6
VOCABULARY = 99

PACKAGES = ("accelerate", "transformers", "lightning", "pytorch_lightning", "timm")

slow = pytest.mark.slow
pytestmark = [
    pytest.mark.skipif(
        not any(map(importlib.util.find_spec, PACKAGES)), reason="no framework is installed"
    ),
    pytest.mark.timeout(300),
    # Frameworks warn of what they will do otherwise in their next releases.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def close(seen: object, expected: object, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(seen, expected, rtol=tolerance, atol=tolerance)


def perceptron() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))


def batches() -> DataLoader[Any]:
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(32, 8, generator=draws)
    targets = torch.randint(0, 3, (32,), generator=draws)
    return DataLoader(
        TensorDataset(inputs, targets), batch_size=8, shuffle=True, pin_memory=True, generator=draws
    )


def accelerated(folder: pathlib.Path, *, cpu: bool, **options: Any) -> tuple[str, list[float]]:
    """Losses and norms of gradients of a loop in Accelerate's words."""
    accelerate = importlib.import_module("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=cpu, gradient_accumulation_steps=2, **options)
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, batches(), schedule)
    seen = []
    for _ in range(2):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = F.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    seen.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            seen.append(accelerator.gather_for_metrics(loss.detach()).mean().item())
        accelerator.save_state(str(folder))
        accelerator.load_state(str(folder))
    return accelerator.device.type, seen


@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=slow)])
def test_accelerate_trains_as_locally(precision: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("accelerate")
    gt.integrations.select_device()
    place, losses = accelerated(tmp_path / "local", cpu=True, mixed_precision=precision)
    assert place == "cpu", "the program says so"
    place, seen = accelerated(tmp_path / "remote", cpu=False, mixed_precision=precision)
    assert place == "mux"
    close(seen, losses, TOLERANCE if precision == "no" else 5e-3)


@slow
def test_accelerate_scales_losses_in_float16(tmp_path: pathlib.Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    gt.integrations.select_device()
    _, losses = accelerated(tmp_path / "local", cpu=True, mixed_precision="no")
    scaling = accelerate.GradScalerKwargs(init_scale=256.0, growth_interval=4)
    place, seen = accelerated(
        tmp_path / "remote", cpu=False, mixed_precision="fp16", kwargs_handlers=[scaling]
    )
    assert place == "mux"
    close(seen, losses, 5e-3)
    accelerator = accelerate.Accelerator()
    assert accelerator.mixed_precision == "fp16"
    assert accelerator.scaler is not None
    with accelerator.autocast():
        product = torch.ones(2, 2, device="mux") @ torch.ones(2, 2, device="mux")
    assert product.dtype == torch.float16
    # A loss whose gradients do not fit: the step is left out, and the factor halved.
    weight = torch.nn.Parameter(torch.ones(2, device="mux"))
    optimizer = accelerator.prepare(torch.optim.SGD([weight], lr=1.0))
    factor = accelerator.scaler.get_scale()
    accelerator.backward((weight * float("inf")).sum())
    optimizer.step()
    assert optimizer.step_was_skipped
    assert accelerator.scaler.get_scale() == factor / 2
    assert weight.tolist() == [1.0, 1.0]


def trained(folder: pathlib.Path, *, cpu: bool, **options: Any) -> tuple[str, Any, Any]:
    """Log of transformers' Trainer, and predictions."""
    transformers = importlib.import_module("transformers")
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=32,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    draws = torch.Generator().manual_seed(1)
    rows = [torch.randint(0, VOCABULARY, (16,), generator=draws) for _ in range(24)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, logging_steps=1,
        report_to=[], use_cpu=cpu, save_steps=3, eval_strategy="steps", eval_steps=3,
        learning_rate=1e-3, disable_tqdm=True, gradient_accumulation_steps=2, **options,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=data, eval_dataset=data[:8]
    )
    trainer.train()
    history = [
        entry[name]
        for entry in trainer.state.log_history
        for name in ("loss", "eval_loss", "grad_norm")
        if name in entry
    ]
    predictions = trainer.predict(data[:4]).predictions
    return next(model.parameters()).device.type, history, torch.from_numpy(predictions)


OPTIONS: list[dict[str, Any]] = [
    {"bf16": True},
    {"fp16": True},
    {"gradient_checkpointing": True},
    {"optim": "adamw_torch"},
    {"optim": "adafactor"},
    {"optim": "sgd", "lr_scheduler_type": "cosine", "warmup_steps": 2},
    {"max_grad_norm": 0.1, "weight_decay": 0.1, "label_smoothing_factor": 0.1},
]


@pytest.mark.parametrize(
    "options", [{}, *(pytest.param(options, marks=slow) for options in OPTIONS)], ids=str
)
def test_the_trainer_of_transformers_trains_as_locally(
    options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    gt.integrations.select_device()
    place, losses, predictions = trained(tmp_path / "local", cpu=True, **options)
    assert place == "cpu", "the program says so"
    place, seen, seen_predictions = trained(tmp_path / "remote", cpu=False, **options)
    assert place == "mux"
    tolerance = 5e-3 if {"bf16", "fp16"} & set(options) else 5e-6
    if options.get("optim") == "adafactor":
        tolerance = 2e-5  # rounding, amplified: in float64 the losses agree to 1e-15
    close(seen, losses, tolerance)
    # Steps of normalized gradients amplify what float32 loses where a gradient is almost nothing.
    close(seen_predictions, predictions, 2e-2 if {"bf16", "fp16"} & set(options) else 1e-4)


def fitted(lightning: Any, folder: pathlib.Path, **options: Any) -> tuple[str, list[float]]:
    """Losses of Lightning's Trainer, before and after a checkpoint that it takes up again."""

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.seen = perceptron(), []

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:
            self.log("validated", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    def trainer(epochs: int) -> Any:
        return lightning.Trainer(
            max_epochs=epochs, logger=False, enable_progress_bar=False, gradient_clip_val=1.0,
            enable_model_summary=False, default_root_dir=folder, **options,
        )  # fmt: skip

    first, model, loader = trainer(2), Classifier(), batches()
    first.fit(model, loader, batches())
    (scores,) = first.validate(model, batches(), verbose=False)
    path = first.checkpoint_callback.best_model_path
    read = Classifier.load_from_checkpoint(path, map_location="cpu")
    assert all(x.device.type == "cpu" for x in read.parameters())
    trainer(3).fit(read, batches(), ckpt_path=path)
    return first.strategy.root_device.type, [*model.seen, *scores.values(), *read.seen]


@pytest.mark.parametrize(
    ("package", "precision"),
    [
        ("pytorch_lightning", "32-true"),
        *(
            pytest.param(package, precision, marks=slow)
            for package in ("lightning", "pytorch_lightning")
            for precision in ("32-true", "64-true", "bf16-mixed")
            if (package, precision) != ("pytorch_lightning", "32-true")
        ),
    ],
)
def test_lightning_fits_as_locally(package: str, precision: str, tmp_path: pathlib.Path) -> None:
    lightning = pytest.importorskip(package)
    gt.integrations.select_device()
    local = tmp_path / "local"
    place, losses = fitted(lightning, local, accelerator="cpu", precision=precision)
    assert place == "cpu", "the program says so"
    for accelerator in ("auto", "gpu", "mux"):
        remote = tmp_path / accelerator
        place, seen = fitted(lightning, remote, accelerator=accelerator, precision=precision)
        assert place == "mux"
        close(seen, losses, TOLERANCE if "true" in precision else 5e-3)


@slow
def test_lightning_scales_losses_in_float16(tmp_path: pathlib.Path) -> None:
    lightning = pytest.importorskip("lightning")
    gt.integrations.select_device()
    _, losses = fitted(lightning, tmp_path / "local", accelerator="cpu")
    _, seen = fitted(lightning, tmp_path / "remote", precision="16-mixed")
    close(seen, losses, 5e-3)


@slow
@pytest.mark.parametrize("module", ["lightning.fabric", "lightning_fabric"])
def test_fabric_takes_the_device(module: str) -> None:
    fabric = pytest.importorskip(module)
    gt.integrations.select_device()
    losses = {}
    for place, options in {"cpu": {"accelerator": "cpu"}, "mux": {}}.items():
        chosen = fabric.Fabric(**options)
        model = perceptron()
        model, optimizer = chosen.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        loader = chosen.setup_dataloaders(batches())
        losses[place] = []
        for inputs, targets in loader:
            assert inputs.device.type == place
            loss = F.cross_entropy(model(inputs), targets)
            chosen.backward(loss)
            chosen.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses[place].append(loss.item())
    close(losses["mux"], losses["cpu"])


# Models of timm, with what makes them small.
VISION: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
    "efficientnet_b0": {},
    "mixer_s32_224": {"img_size": 64},
    "mobilenetv3_small_050": {},
    "regnety_002": {},
    "swin_tiny_patch4_window7_224": {
        "img_size": 56, "depths": (1, 1, 1, 1), "embed_dim": 24, "num_heads": (1, 2, 4, 8),
        "drop_path_rate": 0.0,
    },
    "densenet121": {},
    "deit_tiny_patch16_224": {"img_size": 64, "depth": 2},
}  # fmt: skip


def steps(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return [*seen, model.eval()(images).square().mean().item()]


QUICK = "deit_tiny_patch16_224"


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=slow) for name in VISION if name != QUICK)]
)
def test_a_model_of_timm_trains_as_locally(name: str) -> None:
    """In float64 to 1e-10; in float32 to 1e-6, or to what the host itself loses beside float64.

    Layers of few elements that normalize amplify each rounding, differently in each memory format.
    """
    timm = pytest.importorskip("timm")
    size = VISION[name].get("img_size", 64)
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **VISION[name])
    images, labels = torch.randn(8, 3, size, size), torch.randint(0, 5, (8,))

    def run(place: str, dtype: torch.dtype, form: Any = torch.contiguous_format) -> list[float]:
        there = images.to(place, dtype, memory_format=form)
        return steps(copy.deepcopy(model).to(place, dtype), there, labels.to(place))

    exact = run("cpu", torch.float64)
    close(run("mux", torch.float64), exact, 1e-10)
    local = run("cpu", torch.float32)
    lost = [
        abs(x - reference)
        for seen in (local, run("cpu", torch.float32, torch.channels_last))
        for x, reference in zip(seen, exact, strict=True)
    ]
    close(run("mux", torch.float32), local, max(TOLERANCE, 4 * max(lost)))
