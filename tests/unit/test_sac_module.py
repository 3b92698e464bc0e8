"""The networks of SAC: shapes, acting, critics and their gradients, spaces that are refused."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.modules import SACModule
from trainer.testing.checks import gradient_check

RNG = np.random.default_rng(3)
OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
BOX = spaces.Box(-2.0, 2.0, (2,))
OBS = RNG.standard_normal((6, 3))
ACTIONS = np.tanh(RNG.standard_normal((6, 2)))
WEIGHTS = RNG.standard_normal((2, 6))


def module(actions=BOX, *, observations=OBSERVATIONS, **more):
    shape = {"fcnet_hiddens": [5, 4], "fcnet_activation": "tanh", **more.pop("model_config", {})}
    arguments = {"rng": np.random.default_rng(1), "dtype": np.float64, **more}
    return SACModule(
        observation_space=observations, action_space=actions, model_config=shape, **arguments
    )


def critics_of(subject):
    assert subject.critics is not None
    return subject.critics


def test_the_critics_differ_and_read_the_action():
    critics = critics_of(module())
    first, second = (values.copy() for values in critics.forward(OBS, ACTIONS))
    assert first.shape == (6,)
    assert not np.allclose(first, second)
    assert not np.allclose(critics.forward(OBS, -ACTIONS)[0], first)


@pytest.mark.parametrize("twin_q", [True, False])
def test_gradients_with_respect_to_actions_leave_those_of_the_critics_alone(twin_q):
    subject = module(model_config={"twin_q": twin_q})
    critics = critics_of(subject)
    weights = WEIGHTS[: len(critics.networks)]

    def value(actions):
        values = critics.forward(OBS, actions)
        return sum(float(q @ w) for q, w in zip(values, weights, strict=True))

    value(ACTIONS)
    subject.gradients.flat[:] = 7.0
    gradient_check(value, critics.d_actions(list(weights)), ACTIONS)
    assert (subject.gradients.flat == 7.0).all()


def test_the_first_policy_hardly_depends_on_the_observation_and_alpha_is_given():
    subject = module(model_config={"initial_alpha": 0.5})
    assert np.abs(subject.forward_acting(OBS)).max() < 0.1
    assert subject.parameters.views["log_alpha"].tolist() == [np.log(0.5)]


def test_copied_critics_have_weights_of_their_own():
    subject = module()
    copied = subject.copy_critics()
    assert copied.parameters.num_parameters == critics_of(subject).block.size
    copied.parameters.flat[:] = critics_of(subject).block
    expected = [values.copy() for values in copied.forward(OBS, ACTIONS)]
    np.testing.assert_array_equal(critics_of(subject).forward(OBS, ACTIONS), expected)
    subject.parameters.flat[:] = 0.0
    np.testing.assert_array_equal(copied.forward(OBS, ACTIONS), expected)


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
