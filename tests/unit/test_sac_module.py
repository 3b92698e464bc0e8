"""The networks of SAC: first weights, critics, spaces that are refused."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.sac_updates import BOX, MODEL, OBSERVATIONS
from trainer.errors import UnsupportedSpaceError
from trainer.modules import SACModule

OBS = np.random.default_rng(3).standard_normal((6, 3))
ACTIONS = np.tanh(np.random.default_rng(4).standard_normal((6, 2)))


def module(actions=BOX, **model_config):
    return SACModule(
        observation_space=OBSERVATIONS,
        action_space=actions,
        model_config={**MODEL, **model_config},
        rng=np.random.default_rng(1),
        dtype=np.float64,
    )


def test_the_critics_differ_and_read_the_action():
    critics = module().critics
    first, second = (values.copy() for values in critics.forward(OBS, ACTIONS))
    assert first.shape == (6,)
    assert not np.allclose(first, second)
    assert not np.allclose(critics.forward(OBS, -ACTIONS)[0], first)


def test_the_first_policy_hardly_depends_on_the_observation_and_alpha_is_given():
    subject = module(initial_alpha=0.5)
    assert np.abs(subject.forward_acting(OBS)).max() < 0.1
    assert subject.parameters.views["log_alpha"].tolist() == [np.log(0.5)]


@pytest.mark.parametrize(
    "actions",
    [
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(np.zeros(2, np.float32), np.array([1.0, np.inf], np.float32)),
        spaces.Box(0, 3, (2,), np.int64),
        spaces.Box(-1.0, 1.0, (2, 0)),
        spaces.MultiDiscrete([2, 3]),
        spaces.Tuple([BOX, BOX]),
    ],
)
def test_other_action_spaces_are_refused_with_what_is_possible(actions):
    with pytest.raises(UnsupportedSpaceError, match=r"Box of floats with bounds.*PPO"):
        module(actions)
