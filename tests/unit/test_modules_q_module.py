"""The Q-network: gradients, row-exactness, and what its values mean."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.modules import QModule, RLModuleSpec

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))


def build(dtype=np.float32, actions=None, **config):
    spec = RLModuleSpec(
        module_class=QModule,
        observation_space=OBSERVATIONS,
        action_space=actions or spaces.Discrete(4),
        model_config={"fcnet_hiddens": [6, 5], **config},
    )
    return spec.build(np.random.default_rng(0), dtype=dtype)


def rows(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def test_dueling_values_have_the_state_value_as_their_mean():
    module = build()
    obs = rows(7, 3)
    q_values = module.forward_acting(obs)
    module.parameters.views["vf/0/bias"][:] += 2.0
    np.testing.assert_allclose(module.forward_acting(obs), q_values + 2.0, rtol=1e-5)
    module.parameters.views["af/0/bias"][:] += 3.0  # the same for all actions: no advantage
    np.testing.assert_allclose(module.forward_acting(obs), q_values + 2.0, rtol=1e-5, atol=1e-5)


def test_values_of_distributions_are_the_means_of_the_atoms():
    module = build(num_atoms=3, v_min=0.0, v_max=4.0)
    assert module.atoms.tolist() == [0.0, 2.0, 4.0]
    probs = np.array([[[0.5, 0.25, 0.25]] * 4], np.float32)
    np.testing.assert_allclose(module.expected_values(np.log(probs)), [[1.5] * 4], rtol=1e-6)


class OptimisticModule(QModule):
    """Adds one to all values, by the method that is documented for it."""

    def expected_values(self, outputs):
        return super().expected_values(outputs) + 1.0


@pytest.mark.parametrize(
    "config", [{"dueling": False}, {"num_atoms": 5, "v_min": -1.0, "v_max": 2.0}]
)
def test_an_own_way_to_expect_values_is_what_acting_goes_by(config):
    plain = build(**config)
    spec = RLModuleSpec(OptimisticModule, OBSERVATIONS, spaces.Discrete(4), plain.model_config)
    optimistic = spec.build(np.random.default_rng(0))
    batch = {"obs": rows(7, 3)}
    for forward in ("forward_inference", "forward_exploration"):
        values = getattr(plain, forward)(batch)["action_dist_inputs"].copy()
        found = getattr(optimistic, forward)(batch)["action_dist_inputs"]
        np.testing.assert_allclose(found, values + 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "actions", [spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]
)
def test_other_actions_are_refused_with_what_to_do(actions):
    with pytest.raises(UnsupportedSpaceError, match=r"needs a Discrete action space.*Use PPO"):
        build(actions=actions)
