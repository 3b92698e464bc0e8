"""The ready-made network: gradients, row-exactness, state."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.errors import ConfigError
from trainer.modules import RLModuleSpec
from trainer.modules.actor_critic import ActorCriticModule

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = {"discrete": spaces.Discrete(4), "box": spaces.Box(-1.0, 1.0, (2,))}
CONFIGS = {
    "apart": {"vf_share_layers": False},
    "shared": {"vf_share_layers": True},
    "heads": {"vf_share_layers": True, "head_fcnet_hiddens": [4], "head_fcnet_activation": "swish"},
    "no hidden layer": {"vf_share_layers": True, "fcnet_hiddens": []},
}


def build(actions="discrete", *, dtype=np.float32, **config):
    spec = RLModuleSpec(
        observation_space=OBSERVATIONS,
        action_space=ACTIONS[actions],
        model_config={"fcnet_hiddens": [6, 5], **config},
    )
    return spec.build(np.random.default_rng(0), dtype=dtype)


def random_rows(count, width, dtype=np.float32):
    return np.random.default_rng(1).standard_normal((count, width)).astype(dtype)


MEMORIES = [{}, {"use_lstm": True}, {"use_gru": True}]


@pytest.mark.parametrize("memory", MEMORIES)
def test_free_log_std_does_not_depend_on_the_observation(memory):
    module = build("box", free_log_std=True, **memory)
    module.parameters.views["pi/log_std"][:] = [0.5, -1.0]
    inputs = module.forward_inference({"obs": random_rows(3, 3)})["action_dist_inputs"]
    assert inputs[:, 2:].tolist() == [[0.5, -1.0]] * 3


@pytest.mark.parametrize("memory", MEMORIES)
def test_free_log_std_begins_where_it_is_told_to(memory):
    module = build("box", free_log_std=True, log_std_init=-1.5, **memory)
    assert module.parameters.views["pi/log_std"].tolist() == [-1.5, -1.5]


@pytest.mark.parametrize("wrong", [{"log_std_init": -1.5}, {"log_std_init": "0"}])
def test_a_first_log_std_is_a_number_and_of_a_free_one(wrong):
    with pytest.raises(ConfigError, match="log_std_init="):
        build("box", **wrong)


def test_first_policy_is_almost_uniform_and_first_values_are_not_zero():
    module = build()
    obs = random_rows(50, 3)
    entropy = module.action_distribution.entropy(module.forward_acting(obs))
    np.testing.assert_allclose(entropy, np.log(4.0), atol=1e-3)
    assert module.compute_values({"obs": obs}).std() > 0.1


def test_values_are_a_copy():
    module = build()
    first = module.compute_values({"obs": random_rows(4, 3)})
    kept = first.copy()
    module.compute_values({"obs": -random_rows(4, 3)})
    assert first.tobytes() == kept.tobytes()


@pytest.mark.parametrize("memory", MEMORIES)
def test_free_log_std_needs_box_actions(memory):
    with pytest.raises(ConfigError, match="free_log_std"):
        build("discrete", free_log_std=True, **memory)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_values_alone_have_the_bits_of_those_beside_the_policy(config):
    module, obs = build(**config), random_rows(9, 3)
    beside = module.forward_train({"obs": obs})["vf_preds"].copy()
    assert module.compute_values({"obs": obs}).tobytes() == beside.tobytes()
    with pytest.raises(TypeError, match="forward_train"):
        module.backward(d_action_dist_inputs=random_rows(9, 4), d_vf_preds=random_rows(9, 1)[:, 0])


class Doubled(ActorCriticModule):
    def forward_train(self, batch):
        outputs = super().forward_train(batch)
        return {**outputs, "vf_preds": 2.0 * outputs["vf_preds"]}


def test_values_are_those_of_a_forward_pass_that_a_subclass_changed():
    spec = RLModuleSpec(Doubled, OBSERVATIONS, ACTIONS["discrete"], {"fcnet_hiddens": [6, 5]})
    changed, plain = spec.build(np.random.default_rng(0)), build()
    batch = {"obs": random_rows(9, 3)}
    assert (changed.compute_values(batch) == 2.0 * plain.compute_values(batch)).all()
