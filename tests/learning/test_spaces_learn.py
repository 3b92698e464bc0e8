"""Images, masks and nested actions are learnt, whatever the seed."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.learning.test_ppo_learns import SEEDS, learnt_return
from trainer import PPOConfig
from trainer.testing.envs import TargetEnv

pytestmark = pytest.mark.learning


class NestedBandit(gymnasium.Env[Any, Any]):
    """Pays up to 3 for an action whose three parts follow the number that is shown."""

    def __init__(self, env_config=None):
        self.observation_space = spaces.Box(-1.0, 1.0, (1,))
        self.action_space = spaces.Dict(
            {
                "bits": spaces.MultiBinary(2),
                "both": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(0.0, 4.0, (1,))]),
            }
        )
        self._shown = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._shown = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self._shown, {}

    def step(self, action):
        shown = float(self._shown[0])
        choice, number = action["both"]
        reward = float(choice == (3 if shown > 0.0 else 1))
        reward += float((action["bits"] == [shown > 0.0, shown <= 0.0]).mean())
        reward += 1.0 - (float(number[0]) - 2.0 - 2.0 * shown) ** 2
        return self._shown, reward, True, False, {}


def config(env, seed, **training):
    return (
        PPOConfig()
        .environment(env, env_config=training.pop("env_config", {}))
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(
            train_batch_size=1000,
            minibatch_size=125,
            lr=training.pop("lr", 1e-3),
            use_kl_loss=False,
            **training,
        )
        .evaluation(evaluation_duration=50, evaluation_config={"explore": False})
        .debugging(seed=seed)
    )


IMAGES = {
    "lr": 3e-3,
    "num_epochs": 4,
    "gamma": 0.5,
    "lambda_": 0.9,
    "model": {
        "conv_filters": [[8, 3, 1], [16, 3, 2]],
        "fcnet_hiddens": [64],
        "fcnet_activation": "relu",
        "vf_share_layers": True,
    },
}


@pytest.mark.slow  # the image beside something else is learnt from by the same layers
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mask", [False, True])
def test_a_target_is_found_in_an_image(seed, mask):
    made = config(TargetEnv, seed, env_config={"mask": mask}, **IMAGES)
    before, after = learnt_return(made, 10)
    assert before < 0.3
    assert after > 0.85


class Shown(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A target shown in another form: channels first, or beside something else."""

    def __init__(self, env_config):
        super().__init__(TargetEnv({"size": 6}))
        self.form = env_config["form"]
        image = spaces.Box(0, 255, (2, 6, 6) if self.form == "first" else (6, 6, 2), np.uint8)
        self.observation_space = image
        if self.form == "dict":
            self.observation_space = spaces.Dict({"image": image, "n": spaces.Discrete(3)})

    def observation(self, observation):
        if self.form == "dict":
            return {"image": observation, "n": 1}
        return observation.transpose(2, 0, 1) if self.form == "first" else observation


def shown_config(form, seed):
    return config(Shown, seed, env_config={"form": form}, **IMAGES)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_image_beside_something_else_is_learnt_from(seed):
    before, after = learnt_return(shown_config("dict", seed), 8)
    assert before < 0.4
    assert after > 0.85


def test_wherever_channels_stand_the_same_is_learnt_byte_by_byte():
    weights, sizes = [], []
    for form in ("last", "first", "dict"):
        with shown_config(form, 0).training(train_batch_size=250).build_algo() as algo:
            sizes.append(algo.learner.module.parameters.shapes)
            weights.append(encode([algo.train() and algo.get_weights() for _ in range(2)]))
    assert weights[0] == weights[1]
    convolutions = [name for name in sizes[0] if "/conv/" in name]
    assert all(size[name] == sizes[0][name] for size in sizes for name in convolutions)
    assert convolutions


@pytest.mark.parametrize("seed", SEEDS)
def test_all_parts_of_a_nested_action_are_learnt(seed):
    made = config(NestedBandit, seed, lr=3e-3, num_epochs=10, model={"fcnet_hiddens": [32]})
    before, after = learnt_return(made, 4)
    assert before < 2.0
    assert after > 2.8
