"""Schedules of users: written by themselves, made to go on, stepped too early; beside PyTorch."""

import io
import math
import warnings

import pytest
import torch

import gt

LIBRARIES = (torch, gt)


def optimizer(library, **options):
    groups = [{"params": library.nn.Parameter(library.ones(2)), **options} for _ in range(2)]
    return library.optim.SGD(groups, lr=0.1, momentum=0.9)


def warmup(library):
    """A class that many programs have; it warns as PyTorch's own schedules do."""

    class Warmup(library.optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            if not self._get_lr_called_within_step:
                warnings.warn("To get the last learning rate, use get_last_lr()", stacklevel=2)
            if self.last_epoch < 3:
                return [base * (self.last_epoch + 1) / 3 for base in self.base_lrs]
            return [base * math.cos(self.last_epoch / 9) for base in self.base_lrs]

    return Warmup


def rates(made, schedule, steps=8):
    listed = [schedule.get_last_lr()]
    for _ in range(steps):
        made.step()
        schedule.step()
        listed.append(schedule.get_last_lr())
    return listed


def test_a_schedule_of_the_users_own_asks_whether_a_step_calls_it():
    results = []
    for library in LIBRARIES:
        made = optimizer(library)
        schedule = warmup(library)(made)
        steps = rates(made, schedule)
        with pytest.warns(UserWarning, match="use get_last_lr"):
            schedule.get_lr()
        results.append((steps, schedule._step_count, schedule.state_dict()))
    assert results[0] == results[1]


@pytest.mark.parametrize("last_epoch", range(-1, 7))
@pytest.mark.parametrize(
    "make",
    [
        lambda s, o, **k: s.StepLR(o, 2, 0.5, **k),
        lambda s, o, **k: s.MultiStepLR(o, [2, 5, 5], gamma=0.3, **k),
        lambda s, o, **k: s.ExponentialLR(o, 0.9, **k),
        lambda s, o, **k: s.CosineAnnealingLR(o, 5, eta_min=0.01, **k),
        lambda s, o, **k: s.LinearLR(o, 0.3, 1.0, 4, **k),
        lambda s, o, **k: s.PolynomialLR(o, 6, 2.0, **k),
        lambda s, o, **k: s.LambdaLR(o, lambda epoch: 0.9**epoch, **k),
    ],
    ids=["step", "multistep", "exponential", "cosine", "linear", "polynomial", "lambda"],
)
def test_a_schedule_made_to_go_on_has_pytorchs_rates(make, last_epoch):
    results = []
    for library in LIBRARIES:
        made = optimizer(library, initial_lr=0.1)
        schedule = make(library.optim.lr_scheduler, made, last_epoch=last_epoch)
        results.append(rates(made, schedule))
    assert results[1] == [pytest.approx(row, rel=1e-12) for row in results[0]]


def test_milestones_go_over_from_pytorch_and_through_a_file():
    theirs = optimizer(torch)
    schedule = torch.optim.lr_scheduler.MultiStepLR(theirs, [2, 5, 5], gamma=0.3)
    rates(theirs, schedule, steps=3)
    wanted = rates(theirs, schedule, steps=4)
    theirs = optimizer(torch)
    other = torch.optim.lr_scheduler.MultiStepLR(theirs, [2, 5, 5], gamma=0.3)
    rates(theirs, other, steps=3)
    file = io.BytesIO()
    gt.save(other.state_dict(), file)
    file.seek(0)
    for state in (other.state_dict(), gt.load(file)):
        ours = optimizer(gt)
        loaded = gt.optim.lr_scheduler.MultiStepLR(ours, [1])
        loaded.load_state_dict(state)
        ours.load_state_dict(theirs.state_dict())
        assert rates(ours, loaded, steps=4) == [pytest.approx(row) for row in wanted]
        assert loaded.milestones == other.milestones


def test_a_step_of_the_schedule_before_the_optimizers_is_told():
    texts = []
    for library in LIBRARIES:
        made = optimizer(library)
        schedule = library.optim.lr_scheduler.StepLR(made, 2)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            schedule.step()
            made.step()
            schedule.step()
        assert [warning.filename for warning in told] == [__file__]
        texts.append([str(warning.message) for warning in told])
        made = optimizer(library)
        rates(made, library.optim.lr_scheduler.StepLR(made, 2))  # an error, were it to warn
    assert texts[0] == texts[1]


def test_a_plateau_takes_an_epoch_and_says_whether_it_cools_down():
    results = []
    for library in LIBRARIES:
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer(library), patience=0, cooldown=2
        )
        for metric in (3.0, 4.0):
            schedule.step(metric)
        with pytest.warns(UserWarning, match="The epoch parameter"):
            schedule.step(5.0, 7)
        results.append((schedule.in_cooldown, schedule.last_epoch, schedule.get_last_lr()))
    assert results[0] == results[1]
