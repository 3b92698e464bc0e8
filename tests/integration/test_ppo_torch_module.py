"""PPO's ready-made network in Torch: the same as the one in NumPy, and a base of users' classes."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from gymnasium import spaces

from checkpoints import encode
from tests.integration.test_torch_exactness import fork_server_with_torch as fork_server_with_torch
from tests.torch_cells import spread
from trainer import (
    Algorithm,
    ConfigError,
    PPOConfig,
    PPOTorchLearner,
    PPOTorchRLModule,
    RLModuleSpec,
)
from trainer.modules import ActorCriticModule
from trainer.testing.checks import check_module
from trainer.testing.envs import TargetEnv

SMALL = {"fcnet_hiddens": [16, 16]}
CELLS = {
    "apart": ("CartPole-v1", {}, SMALL),
    "shared": ("CartPole-v1", {}, {**SMALL, "vf_share_layers": True, "head_fcnet_hiddens": [8]}),
    "box": ("Pendulum-v1", {}, {**SMALL, "free_log_std": True, "log_std_init": -1.0}),
    "numbers drawn in another way": (
        "CartPole-v1",
        {},
        {**SMALL, "fcnet_kernel_initializer": "xavier_uniform_", "fcnet_activation": "relu"},
    ),
    "image": (TargetEnv, {"size": 6}, SMALL),
    "image, shared": (TargetEnv, {"size": 6}, {**SMALL, "vf_share_layers": True}),
    "mask": ("masked CartPole", {}, SMALL),
}


class Masked(TargetEnv):
    """Numbers and a mask, no image."""

    def __init__(self, config=None):
        super().__init__({**(config or {}), "mask": True})
        inner = self.observation_space["observations"]
        flat = spaces.Box(0.0, 1.0, (int(np.prod(inner.shape)),))
        self.observation_space = spaces.Dict(
            {**self.observation_space.spaces, "observations": flat}
        )

    def reset(self, **given):
        observation, info = super().reset(**given)
        return self._flat(observation), info

    def step(self, action):
        observation, *others = super().step(action)
        return self._flat(observation), *others

    def _flat(self, observation):
        image = np.ravel(observation["observations"]).astype(np.float32) / 255.0
        return {**observation, "observations": image}


def config(name, num_env_runners=0, **settings):
    env, env_config, model_config = CELLS[name]
    made = (
        PPOConfig()
        .environment(Masked if env == "masked CartPole" else env, env_config=env_config)
        .env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=4 // max(1, num_env_runners)
        )
        .training(train_batch_size=120, minibatch_size=40, num_epochs=2, lr=1e-3)
        .rl_module(model_config=model_config)
        .debugging(seed=2)
    )
    return made.update_from_dict(settings)


@pytest.mark.parametrize("name", CELLS)
def test_a_learner_in_torch_alone_changes_nothing_but_the_last_digits(name):
    results = []
    for cls in (None, PPOTorchLearner):
        with config(name, learner_class=cls).build_algo() as algo:
            assert type(algo.get_module()) is (PPOTorchRLModule if cls else ActorCriticModule)
            results.append([algo.train()["learners/default_policy"] for _ in range(3)])
    for mine, theirs in zip(*results, strict=True):
        assert theirs["num_trainable_parameters"] == mine["num_trainable_parameters"]
        for key in ("total_loss", "mean_kl_loss", "gradients_default_optimizer_global_norm"):
            assert theirs[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-6), key


@pytest.mark.parametrize(
    ("observation_space", "action_space", "model_config"),
    [
        (spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(3), {}),
        (spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (2,)), {"free_log_std": True}),
        (spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2, 2))), spaces.Discrete(2), {}),
        (spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]), spaces.MultiBinary(2), {}),
    ],
)
def test_it_is_a_right_module(observation_space, action_space, model_config):
    check_module(
        PPOTorchRLModule,
        observation_space=observation_space,
        action_space=action_space,
        model_config={"fcnet_hiddens": [4], **model_config},
    )


def test_it_has_rllibs_parts():
    made = config("apart", learner_class=PPOTorchLearner)
    with made.build_algo() as algo:
        module = algo.get_module()
        assert isinstance(module.encoder.actor_encoder, torch.nn.Module)
        assert isinstance(module.encoder.critic_encoder, torch.nn.Module)
        names = set(module.state_dict())
        acting = {name for name in names if module.is_for_acting(name)}
    assert names - acting == {
        name for name in names if name.startswith(("vf.", "encoder.critic_encoder."))
    }
    with config("shared", learner_class=PPOTorchLearner).build_algo() as algo:
        assert isinstance(algo.get_module().encoder.encoder, torch.nn.Module)


class Doubled(PPOTorchRLModule):
    """Reads a key of its own in `model_config`."""

    def _forward(self, batch, **kwargs):
        found = super()._forward(batch, **kwargs)
        return {name: self.model_config["times"] * one for name, one in found.items()}


def test_a_class_derived_from_it_has_further_keys():
    module = RLModuleSpec(
        module_class=Doubled,
        observation_space=spaces.Box(-1.0, 1.0, (3,)),
        action_space=spaces.Discrete(2),
        model_config={"times": 2.0, "fcnet_hiddens": [4]},
    ).build(np.random.default_rng(0))
    assert len(module.encoder.encoder) == 2


@pytest.mark.parametrize(
    ("model_config", "match"),
    [
        ({"use_lstm": True}, "use_lstm=True` is not offered"),
        ({"free_log_std": True, "log_std_by_feature": True}, "log_std_by_feature"),
    ],
)
def test_what_it_lacks_is_refused(model_config, match):
    made = PPOConfig().environment("Pendulum-v1").env_runners(num_env_runners=0)
    made.rl_module(model_config=model_config).training(learner_class=PPOTorchLearner)
    with pytest.raises(ConfigError, match=match):
        made.build_algo()


def test_a_catalog_is_refused():
    with pytest.raises(ConfigError, match="not by catalogs"):
        PPOTorchRLModule(
            observation_space=spaces.Box(-1.0, 1.0, (3,)),
            action_space=spaces.Discrete(2),
            catalog_class=object,
        )


# ---- masks, as RLlib's example applies them


class OwnMasks(PPOTorchRLModule):
    """Makes its layers for what is inside; reads the mask where `compute_values` leaves it."""

    def __init__(self, *, observation_space, action_space, **others):
        self.whole_space = observation_space
        super().__init__(
            observation_space=observation_space["observations"],
            action_space=action_space,
            **others,
        )

    def setup(self):
        super().setup()
        self.observation_space = self.whole_space

    def _parted(self, batch):
        mask = batch["obs"].pop("action_mask")
        batch["obs"] = batch["obs"].pop("observations")
        return mask

    def _masked(self, outputs, mask):
        outputs["action_dist_inputs"] += torch.clamp(torch.log(mask), min=-3.4e38)
        return outputs

    def _forward_inference(self, batch, **kwargs):
        mask = self._parted(batch)
        return self._masked(super()._forward_inference(batch, **kwargs), mask)

    def _forward_exploration(self, batch, **kwargs):
        mask = self._parted(batch)
        return self._masked(super()._forward_exploration(batch, **kwargs), mask)

    def _forward_train(self, batch, **kwargs):
        return self._masked(super()._forward_train(batch, **kwargs), batch["action_mask"])

    def compute_values(self, batch, embeddings=None):
        if isinstance(batch["obs"], dict):
            batch["action_mask"] = self._parted(batch)
        return super().compute_values(batch, embeddings)


def test_a_module_that_masks_itself_learns_as_if_masks_were_built_in():
    results = []
    for cls in (PPOTorchRLModule, OwnMasks):
        spec = RLModuleSpec(module_class=cls, model_config={**SMALL, "vf_share_layers": False})
        with config("mask", rl_module_spec=spec).build_algo() as algo:
            results.append([algo.train()["learners/default_policy/total_loss"] for _ in range(3)])
            assert algo.get_module().action_masks is not None
    assert results[1] == pytest.approx(results[0], rel=1e-4)


# ---- exactness


def test_a_restored_run_goes_on_with_the_same_bytes(tmp_path):
    with config("shared", learner_class=PPOTorchLearner).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "half")
        algo.train()
        expected = encode(algo.get_state(not_components=["config", "metrics"])["learner"])
    with Algorithm.from_checkpoint(tmp_path / "half", learner_class=PPOTorchLearner) as algo:
        algo.train()
        assert encode(algo.get_state()["learner"]) == expected


@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    alone, made = (config("apart", count, learner_class=PPOTorchLearner) for count in (0, 2))
    assert spread(made, tmp_path) == spread(alone)
    assert not list(tmp_path.iterdir()), "a runner was not killed"
