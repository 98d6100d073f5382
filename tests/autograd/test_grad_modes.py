"""Grad modes as decorators, with and without a call, of functions and of generators."""

import pytest
import torch

import gt

LIBRARIES = (torch, gt)


def test_a_mode_decorates_without_a_call():
    for m in LIBRARIES:
        for mode, enabled in ((m.no_grad, False), (m.enable_grad, True), (m.inference_mode, False)):
            decorated = mode(lambda m=m: m.is_grad_enabled())
            assert decorated() is enabled
            with m.no_grad():
                assert decorated() is enabled
            assert m.is_grad_enabled()


def test_a_decorator_that_sets_the_mode_leaves_that_of_the_program():
    for m in LIBRARIES:

        @m.set_grad_enabled(False)
        def within(m=m):
            return m.is_grad_enabled()

        assert m.is_grad_enabled()
        assert not within()
        assert m.is_grad_enabled()


def conversation(m, seen):
    @m.no_grad()
    def talker(count):
        seen.append(m.is_grad_enabled())
        try:
            for turn in range(count):
                try:
                    answer = yield turn, m.is_grad_enabled()
                except ValueError as error:
                    answer = str(error)
                seen.append((answer, m.is_grad_enabled()))
        finally:
            seen.append(("closed", m.is_grad_enabled()))
        return "over"

    return talker


def test_a_generator_runs_in_the_mode_and_its_caller_does_not():
    notes = []
    for m in LIBRARIES:
        seen: list[object] = []
        talker = conversation(m, seen)
        talk = talker(3)
        seen += [next(talk), m.is_grad_enabled(), talk.send("sent"), m.is_grad_enabled()]
        seen.append(talk.throw(ValueError("thrown")))
        with pytest.raises(StopIteration) as end:
            next(talk)
        seen.append(end.value.value)
        talk = talker(2)
        next(talk)
        talk.close()
        talk = talker(2)
        next(talk)
        with pytest.raises(KeyError):
            talk.throw(KeyError("through"))
        seen += [*talker(2), m.is_grad_enabled()]
        notes.append(seen)
    assert notes[0] == notes[1]


def test_a_gradient_is_deleted():
    for m in LIBRARIES:
        x = m.ones(2, requires_grad=True)
        for _ in range(2):
            x.sum().backward()
            assert x.grad.tolist() == [1, 1]
            del x.grad
            assert x.grad is None
        del x.grad
