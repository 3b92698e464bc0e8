"""The model of throughput against what was measured, and against itself."""

import pytest

from benchmarks.throughput_model import Throughput, draw, fitted

_MEASURED_MS = {
    "local": {1: 2227, 2: 1122, 4: 556, 8: 286, 16: 175},
    "ray": {1: 2213, 2: 1162, 4: 581, 8: 320, 16: 298},
}
"""Iterations of 400 env steps of 5 ms by number of runners, all on an idle machine of two cores."""


@pytest.mark.parametrize("engine", list(_MEASURED_MS))
def test_the_model_is_off_by_less_than_15_percent_from_1_to_16_runners(engine):
    measured = {number: ms / 1e3 for number, ms in _MEASURED_MS[engine].items()}
    model = fitted(Throughput(0.005, num_steps=400), measured)
    for number, seconds in measured.items():
        assert model.iteration_s(number) == pytest.approx(seconds, rel=0.15)


def test_parameters_that_made_the_measurements_are_found_again():
    made = Throughput(0.001, acting_s=2e-4, answer_s=5e-4)
    measured = {number: made.iteration_s(number) for number in (1, 3, 50)}
    found = fitted(Throughput(0.001), measured)
    assert found.acting_s == pytest.approx(2e-4)
    assert found.answer_s == pytest.approx(5e-4)


def test_the_learner_is_the_wall():
    free = Throughput(0.001, answer_s=0.0, latency_s=0.0, weights_bytes=0.0, bytes_per_step=0.0)
    assert free.steps_per_s(10**6) == pytest.approx(free.learner_steps_per_s, rel=1e-3)
    assert free.steps_per_s(10) < 10 / free.env_step_s
    assert "the learner alone: 26,000 steps/s" in draw(free)
