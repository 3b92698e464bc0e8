"""How much more is sampled with more runners: a model, and where the learner is the wall.

An iteration of N env steps with n runners takes

    latency + (N / n) (env step + acting) + n answer + bytes / bandwidth + N / learner

where the bytes are the columns of all steps and the weights once per machine (s, B, B/s; learner in
env steps per s). Two parameters are fitted to measurements; how far the model is off from each of
them is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
_BAR = 40


@dataclass(frozen=True)
class Throughput:
    """The parameters of the model.

    Attributes:
        env_step_s: an env step, where nothing but it happens.
        acting_s: what a runner does besides, per env step.
        learner_steps_per_s: env steps that the main process learns from per second.
        latency_s: a round trip to one runner.
        answer_s: work of the main process per answer.
        num_steps: of an iteration.
        bytes_per_step: of the columns.
        weights_bytes: of the networks.
        bytes_per_s: of the network.
        runners_per_machine: among which weights are sent once.
    """

    env_step_s: float
    acting_s: float = 20e-6
    learner_steps_per_s: float = 26_000.0
    latency_s: float = 1e-3
    answer_s: float = 0.3e-3
    num_steps: int = 2048
    bytes_per_step: float = 52.0
    weights_bytes: float = 37_000.0
    bytes_per_s: float = 125e6
    runners_per_machine: int = 16

    def iteration_s(self, num_runners: int) -> float:
        """Seconds of one iteration."""
        machines = -(-num_runners // self.runners_per_machine)
        sent = self.num_steps * self.bytes_per_step + machines * self.weights_bytes
        sampling_s = self.num_steps / num_runners * (self.env_step_s + self.acting_s)
        work_s = num_runners * self.answer_s + self.num_steps / self.learner_steps_per_s
        return self.latency_s + sampling_s + work_s + sent / self.bytes_per_s

    def steps_per_s(self, num_runners: int) -> float:
        """Env steps per second of training."""
        return self.num_steps / self.iteration_s(num_runners)

    def saturation(self) -> int:
        """The number of runners from which twice as many gain less than a tenth."""
        number = 1
        while self.steps_per_s(2 * number) > 1.1 * self.steps_per_s(number):
            number *= 2
        return number


def fitted(start: Throughput, measured: Mapping[int, float]) -> Throughput:
    """The model with the `acting_s` and `answer_s` that fit all measurements best.

    Least squares of the relative errors. Where runners share the cores of the main process, both
    parameters hold the work of either side.

    Args:
        start: all other parameters.
        measured: seconds of an iteration by number of runners; at least two numbers.
    """
    fixed = dataclasses.replace(start, acting_s=0.0, answer_s=0.0)
    counts, seconds = np.array(list(measured)), np.array(list(measured.values()))
    # measured - fixed = steps / n · acting + n · answer, each divided by what was measured.
    factors = np.stack([start.num_steps / counts, counts]) / seconds
    left = 1.0 - np.array([fixed.iteration_s(int(number)) for number in counts]) / seconds
    (acting_s, answer_s), *_ = np.linalg.lstsq(factors.T, left, rcond=None)
    return dataclasses.replace(
        start, acting_s=max(0.0, float(acting_s)), answer_s=max(0.0, float(answer_s))
    )


def draw(model: Throughput) -> str:
    """Env steps per second by number of runners, one bar each, and where it saturates."""
    top = max(model.steps_per_s(number) for number in COUNTS)
    lines = [
        f"{number:>6} runners {model.steps_per_s(number):>9,.0f} steps/s  "
        f"{'█' * round(_BAR * model.steps_per_s(number) / top)}"
        for number in COUNTS
    ]
    wall = model.learner_steps_per_s
    lines.append(
        f"       the learner alone: {wall:,.0f} steps/s; twice as many gain < 10 % from "
        f"{model.saturation()} runners on"
    )
    return "\n".join(lines)
