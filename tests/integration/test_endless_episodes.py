"""Whole episodes of an env that does not end them: said once, with advice, and not broken off."""

import logging
import math
from types import SimpleNamespace

import pytest

from tests.small_runs import small_ppo
from trainer.env_runners import episode_player as endless_episodes
from trainer.env_runners.episode_player import EndlessEpisodes
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import wait_until


class LongEpisodes(CountdownEnv):
    """Ends an episode some steps after the warning came."""

    def __init__(self, log):
        super().__init__()
        self._log = log

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        is_over = self.steps > 30 and len(self._log.records) > 0
        return observation, reward, is_over, truncated or self.steps > 5000, info


@pytest.fixture
def log(monkeypatch, caplog):
    monkeypatch.setattr(endless_episodes, "PATIENCE_S", 0.0)
    monkeypatch.setattr(endless_episodes, "PATIENCE_STEPS", 20)
    with caplog.at_level(logging.WARNING, endless_episodes.__name__):
        yield caplog


def config(log, **settings):
    made = small_ppo(env=lambda context: LongEpisodes(log), num_slots=2, batch=20)
    return made.update_from_dict(settings)


def test_an_evaluation_without_an_end_says_so_once_and_goes_on(log):
    with config(log, evaluation_duration=2).build_algo() as algo:
        results = algo.evaluate()
    assert results["env_runners/num_episodes"] == 2
    assert len(log.messages) == 1
    told = log.messages[0]
    assert "no episode has ended for 0 s; the one of sub-env 0 of env runner 0 has 20 steps" in told
    assert "TimeLimit(env, max_episode_steps=…)" in told
    assert 'evaluation(evaluation_duration_unit="timesteps")' in told


def test_complete_episodes_without_an_end_name_the_other_batch_mode(log):
    with config(log, batch_mode="complete_episodes").build_algo() as algo:
        algo.train()
    assert 'env_runners(batch_mode="truncate_episodes")' in log.messages[0]


def test_steps_that_are_counted_need_no_end_of_an_episode(log):
    with config(log, train_batch_size=100, minibatch_size=100).build_algo() as algo:
        algo.train()
    assert not log.messages


def test_a_request_is_patient_while_episodes_end():
    now = [0.0]
    spec = SimpleNamespace(
        episode_limit_s=None
    )  # no more is looked at before there is something to tell
    watch = EndlessEpisodes(spec, clock=lambda: now[0])
    slot = SimpleNamespace(num_steps_played=10_000)
    for num_ended in range(1, 4):
        now[0] += 50
        watch.look([slot], num_ended=num_ended)
        now[0] += 59
        watch.look([slot], num_ended=num_ended)
    now[0] += 2
    with pytest.raises(AttributeError, match="in_evaluation"):
        watch.look([slot], num_ended=3)


class SomeEpisodesNeverEnd(CountdownEnv):
    """In evaluation, those whose length would be the greatest go on for ever."""

    def __init__(self, env_config):
        super().__init__({"min_length": 6, "max_length": env_config["max_length"]})

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.length == self.max_length:
            terminated = truncated = False
        return observation, reward, terminated, truncated, info


def endless(max_length, **settings):
    made = small_ppo(num_slots=8, batch=20, env_config={"min_length": 6, "max_length": 12})
    made.evaluation(
        evaluation_interval=1,
        evaluation_duration=8,
        evaluation_sample_timeout_s=0.2,
        evaluation_config={"env": SomeEpisodesNeverEnd, "env_config": {"max_length": max_length}},
    )
    return made.update_from_dict(settings)


MODES = {
    "in the main process": {},
    "one runner": {"evaluation_num_env_runners": 1},
    "beside training": {"evaluation_num_env_runners": 2, "evaluation_parallel_to_training": True},
    "asynchronous": {"evaluation_num_env_runners": 1, "enable_async_evaluation": True},
}


@pytest.mark.parametrize(
    ("mode", "max_length"), [*((mode, 7) for mode in MODES), ("beside training", 6)]
)
def test_an_evaluation_of_episodes_that_never_end_ends_after_its_timeout(mode, max_length, caplog):
    """With 6 none ends, with 7 about half of them do."""
    found = []

    def is_evaluated():
        found.append(algo.train().get("evaluation"))
        return found[-1] is not None

    with endless(max_length, **MODES[mode]).build_algo() as algo:
        assert wait_until(is_evaluated, within_s=30)
    evaluation = found[-1]
    num_ended = evaluation["num_episodes"]
    assert evaluation["num_episodes_missing"] == 8 - num_ended > 0
    assert math.isnan(evaluation["env_runners/episode_return_mean"]) == (num_ended == 0)
    assert num_ended == 0 if max_length == 6 else num_ended > 0
    assert "evaluation_sample_timeout_s=0.2" in caplog.text
