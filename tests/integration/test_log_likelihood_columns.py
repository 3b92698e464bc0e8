"""Log-likelihoods of actions are plain columns of an episode, like all others."""

import gc
import pickle
import weakref

import numpy as np
import pytest

from trainer import DQNConfig
from trainer.runner_group import EnvRunnerGroup
from trainer.testing.envs import CountdownEnv

INPUTS, LOGP = "action_dist_inputs", "action_logp"


@pytest.mark.parametrize("num_envs", [1, 2])
def test_log_likelihoods_follow_from_nothing_that_changes_later(num_envs):
    config = DQNConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.env_runners(num_envs_per_env_runner=num_envs).debugging(seed=1)
    expected, changed = (EnvRunnerGroup(config=config) for _ in range(2))
    first, second = (
        each.local_env_runner.sample(num_timesteps=8)[0] for each in (expected, changed)
    )

    second.extra_model_outputs[INPUTS].data[:] = 0.0
    second.actions.data[:] = 0
    column = pickle.loads(pickle.dumps(second.extra_model_outputs[LOGP]))
    np.testing.assert_array_equal(column.data, first.extra_model_outputs[LOGP].data)

    runner = weakref.ref(changed.local_env_runner)
    expected.stop()
    changed.stop()
    del changed
    gc.collect()
    assert runner() is None, "an episode that is kept holds its runner"
