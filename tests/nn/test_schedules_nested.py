"""Each schedule alone, chained and in sequences, of float and tensor rates; beside PyTorch."""

import pytest
import torch

import gt

LIBRARIES = (torch, gt)
STEPS = 12

SCHEDULES = {
    "constant": lambda m, o: m.lr_scheduler.ConstantLR(o, 0.25, 3),
    "cosine": lambda m, o: m.lr_scheduler.CosineAnnealingLR(o, 5, eta_min=0.01),
    "cyclic": lambda m, o: m.lr_scheduler.CyclicLR(o, 0.01, 0.2, 2, 3, mode="triangular2"),
    "exponential": lambda m, o: m.lr_scheduler.ExponentialLR(o, 0.9),
    "lambda": lambda m, o: m.lr_scheduler.LambdaLR(o, lambda epoch: 0.5 + 0.1 * epoch),
    "linear": lambda m, o: m.lr_scheduler.LinearLR(o, 0.3, 0.8, 4),
    "multiplicative": lambda m, o: m.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.8 + epoch),
    "multistep": lambda m, o: m.lr_scheduler.MultiStepLR(o, [0, 2, 5, 5], gamma=0.3),
    "one cycle": lambda m, o: m.lr_scheduler.OneCycleLR(o, 0.5, total_steps=14),
    "polynomial": lambda m, o: m.lr_scheduler.PolynomialLR(o, 6, 2.0),
    "restarts": lambda m, o: m.lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.02),
    "step": lambda m, o: m.lr_scheduler.StepLR(o, 2, 0.5),
    "swa": lambda m, o: m.swa_utils.SWALR(o, 0.05, anneal_epochs=4),
}


def warmup(m, o):
    """A user's own schedule, whose first rate is not the base rate."""

    class Warmup(m.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * (self.last_epoch + 1) / 4 for base in self.base_lrs]

    return Warmup(o)


SCHEDULES["own"] = warmup


def exponential(m, o):
    return m.lr_scheduler.ExponentialLR(o, 0.7)


def in_sequence(milestones, *makers):
    def make(m, o):
        return m.lr_scheduler.SequentialLR(o, [one(m, o) for one in makers], milestones)

    return make


def chained(*makers):
    def make(m, o):
        return m.lr_scheduler.ChainedScheduler([one(m, o) for one in makers])

    return make


FORMS = {
    "alone": lambda one: one,
    "chained": lambda one: chained(one, exponential),
    "first": lambda one: in_sequence([4], one, exponential),
    "second": lambda one: in_sequence([4], exponential, one),
    "from 0": lambda one: in_sequence([0], exponential, one),
    "from 0 of three": lambda one: in_sequence([0, 5], exponential, one, exponential),
    "twice at once": lambda one: in_sequence([3, 3], exponential, exponential, one),
    "sequence in a sequence": lambda one: in_sequence(
        [6], in_sequence([3], exponential, one), exponential
    ),
    "chain in a sequence": lambda one: in_sequence([5], chained(one, exponential), exponential),
    "sequence in a chain": lambda one: chained(in_sequence([3], one, exponential), exponential),
    "chain as the second": lambda one: in_sequence([3], exponential, chained(one, exponential)),
    "sequence as the second": lambda one: in_sequence(
        [3], exponential, in_sequence([2], one, exponential)
    ),
}
RATES = {
    "float": lambda library: 0.1,
    "tensor": lambda library: library.tensor(0.1),
    "tensor of one element": lambda library: library.tensor([0.1], dtype=library.float64),
}


def plain(value):
    return value.tolist() if isinstance(value, (torch.Tensor, gt.Tensor)) else value


def listed(made, schedule):
    """Rates, momentum and the kind of each rate after a step."""
    groups = made.param_groups
    assert [plain(x) for x in schedule.get_last_lr()] == [plain(group["lr"]) for group in groups]
    rows = [[plain(group[x]) for x in ("lr", "initial_lr", "momentum")] for group in groups]
    return (
        rows,
        [type(group["lr"]) is float for group in groups],
        getattr(schedule, "last_epoch", 0),
    )


def run(library, make, rate):
    def begin():
        groups = [
            {"params": library.nn.Parameter(library.ones(2)), "lr": RATES[rate](library)}
            for _ in range(2)
        ]
        made = library.optim.SGD(groups, lr=0.1, momentum=0.9)
        objects = [group["lr"] for group in groups]
        return made, make(library.optim, made), objects

    made, schedule, objects = begin()
    rows = [listed(made, schedule)]
    for step in range(STEPS):
        if step == STEPS // 2:
            saved, options = schedule.state_dict(), made.state_dict()
            made, schedule, objects = begin()
            made.load_state_dict(options)
            schedule.load_state_dict(saved)
            objects = [group["lr"] for group in made.param_groups]
        made.step()
        schedule.step()
        rows.append(listed(made, schedule))
        if rate != "float":
            assert all(
                group["lr"] is one for group, one in zip(made.param_groups, objects, strict=True)
            )
    return rows


def outcome(library, make, rate):
    """All rows, or the class and the text of the error."""
    try:
        return run(library, make, rate)
    except (ArithmeticError, NotImplementedError, RuntimeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("form", FORMS)
def test_schedules_have_pytorchs_rates_and_write_into_tensors(form, rate):
    wrong = {}
    for name, one in SCHEDULES.items():
        theirs, ours = (outcome(library, FORMS[form](one), rate) for library in LIBRARIES)
        if isinstance(theirs, tuple) or isinstance(ours, tuple):
            if theirs != ours:
                wrong[name] = theirs, ours
            continue
        for step, (wanted, row) in enumerate(zip(theirs, ours, strict=True)):
            if row[1:] != wanted[1:] or not torch.allclose(
                *(torch.tensor(flat(x[0]), dtype=torch.float64) for x in (row, wanted)), rtol=1e-6
            ):
                wrong[name] = step, wanted, row
                break
    assert not wrong, "\n".join(f"{name}: {rows}" for name, rows in wrong.items())


def flat(rows):
    return [y for row in rows for x in row for y in (x if isinstance(x, list) else [x])]


@pytest.mark.parametrize("rate", RATES)
def test_a_plateau_writes_into_tensors(rate):
    results = []
    for library in LIBRARIES:
        value = RATES[rate](library)
        made = library.optim.SGD([library.nn.Parameter(library.ones(2))], lr=value)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(made, patience=1, min_lr=0.003)
        rows = []
        for step in range(STEPS):
            schedule.step(float(step))
            rows += flat([[plain(x) for x in schedule.get_last_lr()]])
            assert rate == "float" or made.param_groups[0]["lr"] is value
        results.append(rows)
    assert results[1] == pytest.approx(results[0], rel=1e-6)


def test_a_plateau_is_refused_in_a_sequence_with_pytorchs_text():
    def told(library, name, *more):
        made = library.optim.SGD([library.nn.Parameter(library.ones(2))], lr=0.1)
        kinds = library.optim.lr_scheduler
        listed = [kinds.StepLR(made, 2), kinds.ReduceLROnPlateau(made)]
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the texts are compared below
            kinds.ChainedScheduler(listed) if name == "chain" else kinds.SequentialLR(
                made, listed, *more
            )
        return str(error.value)

    assert told(gt, "chain") == told(torch, "chain")
    assert told(gt, "sequence", [2]) == told(torch, "sequence", [2])
