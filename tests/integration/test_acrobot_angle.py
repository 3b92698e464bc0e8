"""The angle of Acrobot's first joint, as the documents log it, against the recorded episodes.

Two runners with four envs each, of unequal speed: what `train()` reports must be what anybody
computes from the observations of the whole episodes, in order of iteration, runner and time.
"""

import json
import math
import os
import signal
from pathlib import Path

import gymnasium
import pytest

from callbacks import RLlibCallback
from tests.small_runs import small_ppo

TOLERANCE = 1e-9
OPTIONS = {
    "theta1_mean": {"reduce": "mean", "window": 50},
    "theta1_plain": {},
    "theta1_of_all": {"window": float("inf")},
    "theta1_lowest": {"reduce": "min"},
    "theta1_highest": {"reduce": "max", "window": 50},
    "theta1_total": {"reduce": "sum"},
    "theta1_new_total": {"reduce": "sum", "clear_on_reduce": True},
    "theta1_list": {"reduce": None},
}


def short_acrobot(context):
    """Acrobot whose episodes last 17 to 27 steps: the runners play unequal numbers of them."""
    limit = 10 + 7 * context.worker_index + context.vector_index
    return gymnasium.make("Acrobot-v1", max_episode_steps=limit)


def angle_deg(observation):
    return math.degrees(math.atan2(observation[1], observation[0]))


class LogAngle(RLlibCallback):
    """Logs the mean angle of every episode."""

    def on_episode_start(self, *, episode, **_):
        episode.custom_data["theta1"] = []

    def on_episode_step(self, *, episode, **_):
        episode.custom_data["theta1"].append(angle_deg(episode.get_observations(-1)))

    def on_episode_end(self, *, episode, metrics_logger, **_):
        angles = episode.custom_data["theta1"]
        for key, options in OPTIONS.items():
            metrics_logger.log_value(key, math.fsum(angles) / len(angles), **options)


class RecordEpisodes(RLlibCallback):
    """Writes all observations of each finished episode into a file of its runner."""

    directory = ""

    def on_episode_end(self, *, episode, prev_episode_chunks, env_runner, **_):
        steps = [
            [float(number) for number in observation]
            for chunk in (*prev_episode_chunks, episode)
            for observation in list(chunk.get_observations())[1:]
        ]
        path = Path(self.directory) / f"{env_runner.worker_index}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(steps) + "\n")


class Recorded:
    """Reads the records of an iteration, runner by runner, and makes numbers of them."""

    def __init__(self, directory):
        self.paths = [directory / f"{index}.jsonl" for index in (1, 2)]
        self.num_read = [0, 0]
        self.history = []

    def means_by_runner(self):
        found = []
        for place, path in enumerate(self.paths):
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            new, self.num_read[place] = lines[self.num_read[place] :], len(lines)
            episodes = [list(map(angle_deg, json.loads(line))) for line in new]
            found.append([sum(angles) / len(angles) for angles in episodes])
        return found

    def expected(self, new):
        self.history += new
        last = self.history[-50:]
        return {
            "theta1_mean": sum(last) / len(last),
            "theta1_plain": sum(new) / len(new),
            "theta1_plain_min": min(new),
            "theta1_plain_max": max(new),
            "theta1_of_all": sum(self.history) / len(self.history),
            "theta1_lowest": min(self.history),
            "theta1_highest": max(last),
            "theta1_total": sum(self.history),
            "theta1_new_total": sum(new),
            "theta1_min": min(last),
            "theta1_max": max(last),
        }


@pytest.mark.process
def test_the_reported_angle_is_that_of_the_recorded_episodes_and_a_kill_changes_nothing(tmp_path):
    recorder = RecordEpisodes()
    recorder.directory = str(tmp_path)
    made = small_ppo(2, env=short_acrobot, num_slots=8, batch=480, minibatch_size=480, seed=3)
    recorded, counts = Recorded(tmp_path), []
    with made.callbacks([LogAngle, recorder]).build_algo() as algo:
        for iteration in range(4):
            if iteration == 2:
                os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            found = algo.train()["env_runners"]
            by_runner = recorded.means_by_runner()
            new = [mean for means in by_runner for mean in means]
            counts.append([len(means) for means in by_runner])
            for key, value in recorded.expected(new).items():
                assert found[key] == pytest.approx(value, abs=TOLERANCE, rel=0), key
            assert found["theta1_list"] == pytest.approx(new, abs=TOLERANCE, rel=0)
            assert found["num_episodes"] == len(new)
    assert len(recorded.history) > 60, "the window has moved"
    assert all(first > second > 0 for first, second in counts[1:]), counts
    # Negative controls: another order, and a mean of the runners' means, are other numbers.
    shifted = recorded.history[-51:-1]
    assert abs(found["theta1_mean"] - sum(shifted) / 50) > 1000 * TOLERANCE
    means = [sum(means) / len(means) for means in by_runner]
    assert abs(found["theta1_plain"] - sum(means) / 2) > 1000 * TOLERANCE
