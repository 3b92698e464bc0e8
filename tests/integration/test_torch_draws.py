"""Modules in Torch that draw actions themselves: draws follow from the position."""

import numpy as np
import pytest

pytest.importorskip("torch")

import gymnasium as gym
import torch
from gymnasium import spaces

from checkpoints import encode
from tests.integration.test_torch_exactness import fork_server_with_torch as fork_server_with_torch
from tests.torch_cells import spread
from trainer import Algorithm, ConfigError, ModuleError, PPOConfig, RLModuleSpec, TorchRLModule
from trainer.modules.torch_draws import draw_seeds
from trainer.rllib_names.torch_names import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiDistribution,
    one_hot,
)

ACTIONS = spaces.Tuple([spaces.Discrete(3), spaces.Box(-2.0, 2.0, (1,), np.float32)])


class Correlated(gym.Env):
    """The second action should undo what the first one makes of the observation."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = ACTIONS

    def __init__(self, config=None):
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.shown = 0, self._drawn()
        return self.shown, {}

    def _drawn(self):
        return self.np_random.uniform(-1.0, 1.0, (1,)).astype(np.float32)

    def step(self, action):
        first, second = action
        reward = -abs(self.shown[0] + first + second[0])
        self.count, self.shown = self.count + 1, self._drawn()
        return self.shown, float(reward), self.count == 7, False, {}


class OneAfterAnother(TorchRLModule):
    """The second action is drawn given the first one."""

    def setup(self):
        width = self.model_config.get("width", 16)
        self.first = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Linear(width, 3))
        self.second = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 2))
        self.vf = torch.nn.Linear(1, 1)

    def _pi(self, obs, *, is_greedy):
        prior = self.first(obs)
        one = TorchCategorical.from_logits(prior)
        one = one.to_deterministic() if is_greedy else one
        first = one.sample()
        posterior = self.second(torch.cat([obs, one_hot(first, self.action_space[0])], dim=-1))
        other = TorchDiagGaussian.from_logits(posterior)
        other = other.to_deterministic() if is_greedy else other
        actions = (first, other.sample())
        return {
            "actions": actions,
            "action_logp": TorchMultiDistribution((one, other)).logp(actions),
            "action_dist_inputs": torch.cat([prior, posterior], dim=-1),
        }

    def _forward_inference(self, batch, **kwargs):
        return self._pi(batch["obs"], is_greedy=True)

    def _forward_exploration(self, batch, **kwargs):
        return self._pi(batch["obs"], is_greedy=False)

    def _forward_train(self, batch, **kwargs):
        prior = self.first(batch["obs"])
        first = one_hot(batch["actions"][0], self.action_space[0])
        posterior = self.second(torch.cat([batch["obs"], first], dim=-1))
        return {"action_dist_inputs": torch.cat([prior, posterior], dim=-1)}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"]).squeeze(-1)

    def get_inference_action_dist_cls(self):
        return TorchMultiDistribution.get_partial_dist_cls(
            child_distribution_cls_struct=(TorchCategorical, TorchDiagGaussian), input_lens=(3, 2)
        )


class WithoutActionsInLearning(OneAfterAnother):
    """As RLlib's example: learning draws again."""

    def _forward_train(self, batch, **kwargs):
        return self._forward_exploration(batch)


def config(num_env_runners=0, *, module_class=WithoutActionsInLearning, **settings):
    made = (
        PPOConfig()
        .environment(Correlated)
        .env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=4 // max(1, num_env_runners)
        )
        .training(train_batch_size=61, minibatch_size=32, num_epochs=2, lr=3e-3)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
        .debugging(seed=7)
    )
    return made.update_from_dict(settings)


def module_of(cls=OneAfterAnother, space=ACTIONS):
    spec = RLModuleSpec(cls, observation_space=Correlated.observation_space, action_space=space)
    return spec.build(np.random.default_rng(0))


def acted(module, obs, seeds, forward="forward_exploration"):
    return getattr(module, forward)({"obs": obs, "draw_seeds": seeds})


# ---- draws


def test_a_row_is_drawn_from_its_seed_whatever_stands_beside_it():
    module, rng = module_of(), np.random.default_rng(1)
    obs = rng.uniform(-1.0, 1.0, (9, 1)).astype(np.float32)
    seeds = draw_seeds(rng.random((9, 2)))
    whole = acted(module, obs, seeds)
    order = rng.permutation(9)
    mixed = acted(module, obs[order], seeds[order])
    alone = acted(module, obs[4:5], seeds[4:5])
    for mine, theirs, one in zip(
        *[found["actions"] for found in (whole, mixed, alone)], strict=True
    ):
        assert mine[order].tobytes() == theirs.tobytes()
        assert mine[4:5].tobytes() == one.tobytes()
    others = acted(module, obs, draw_seeds(rng.random((9, 2))))
    assert others["actions"][1].tobytes() != whole["actions"][1].tobytes()


def test_seeds_follow_from_all_bits_of_the_noise():
    seeds = draw_seeds(np.array([[0.5, 1.0], [np.nextafter(0.5, 1.0), 1.0], [-1.3, 0.0]]))
    assert len(set(seeds.tolist())) >= 2
    assert (seeds < 2**63).all()
    assert draw_seeds(np.zeros((3, 0))).tolist() == [0, 0, 0]


def test_the_generator_of_the_user_stays_as_it_is():
    module = module_of()
    torch.manual_seed(3)
    before = torch.default_generator.get_state()
    acted(module, np.zeros((2, 1), np.float32), np.array([1, 2], np.uint64))
    assert torch.equal(before, torch.default_generator.get_state())


def test_log_probabilities_are_those_of_the_space():
    module = module_of()
    obs, rng = np.linspace(-1, 1, 50, dtype=np.float32)[:, None], np.random.default_rng(0)
    found = acted(module, obs, draw_seeds(rng.random((50, 1))))
    logp = module.action_distribution.logp(found["action_dist_inputs"], found["actions"])
    inputs = torch.from_numpy(found["action_dist_inputs"])
    cls = module.get_inference_action_dist_cls()
    tensors = [torch.from_numpy(part) for part in found["actions"]]
    np.testing.assert_allclose(cls.from_logits(inputs).logp(tensors), logp, rtol=1e-4)
    np.testing.assert_allclose(
        cls.from_logits(inputs).entropy(),
        module.action_distribution.entropy(found["action_dist_inputs"]),
        rtol=1e-4,
    )


def test_what_is_played_is_what_was_drawn():
    with config().build_algo() as algo:
        algo.train()
        module = algo.get_module()
        obs = np.array([0.3], np.float32)
        greedy = algo.compute_single_action(obs, explore=False, unsquash_action=False)
        expected = module.forward_inference({"obs": obs[None]})["actions"]
        assert greedy[0] == expected[0][0]
        np.testing.assert_array_equal(greedy[1], expected[1][0])
        drawn = {float(algo.compute_single_action(obs, explore=True)[1][0]) for _ in range(5)}
        assert len(drawn) == 5


@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(one, marks=pytest.mark.slow)
        for one in (OneAfterAnother, WithoutActionsInLearning)
    ],
)
def test_it_learns(cls):
    made = config(module_class=cls, train_batch_size=500, minibatch_size=100, num_epochs=6)
    with made.training(lr=0.01).build_algo() as algo:
        first = algo.train()["env_runners/episode_return_mean"]
        for _ in range(14):
            last = algo.train()["env_runners/episode_return_mean"]
    assert last > 0.75 * first
    assert first < 0.0


# ---- exactness


def test_a_restored_run_goes_on_with_the_same_bytes(tmp_path):
    made = config()
    with made.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "half")
        algo.train()
        expected = encode(algo.get_state()["learner"])
    given = {"rl_module_spec": made.rl_module_spec, "env": Correlated}
    with Algorithm.from_checkpoint(tmp_path / "half", **given) as algo:
        algo.train()
        assert encode(algo.get_state()["learner"]) == expected


@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    assert spread(config(2), tmp_path) == spread(config())
    assert not list(tmp_path.iterdir()), "a runner was not killed"


# ---- refused


def failing(change):
    class Failing(OneAfterAnother):
        def _forward_exploration(self, batch, **kwargs):
            return change(super()._forward_exploration(batch, **kwargs))

    return Failing


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda found: {**found, "action_logp": found["action_logp"] + 1.0}, "losses compute with"),
        (lambda found: {**found, "actions": found["actions"][0]}, "with the shapes"),
    ],
)
def test_what_losses_would_take_for_something_else_is_refused(change, match):
    with pytest.raises(ModuleError, match=match):
        module_of(failing(change))


def test_actions_while_exploring_alone_are_refused():
    class Half(OneAfterAnother):
        def _forward_inference(self, batch, **kwargs):
            found = super()._forward_inference(batch, **kwargs)
            del found["actions"]
            return found

    with pytest.raises(ModuleError, match="returned no 'actions'"):
        module_of(Half).forward_inference({"obs": np.zeros((1, 1), np.float32)})


class DrawingOne(TorchRLModule):
    """Draws one choice."""

    def setup(self):
        self.pi, self.vf = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

    def _forward(self, batch, **kwargs):
        logits = self.pi(batch["obs"])
        return {"action_dist_inputs": logits, "actions": TorchCategorical(logits).sample()}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"]).squeeze(-1)


def test_a_strategy_has_nothing_to_say():
    made = config(module_class=DrawingOne, env="CartPole-v1")
    with made.build_algo() as algo:
        algo.train()
    with pytest.raises(ConfigError, match="draws actions itself"):
        made.copy(copy_frozen=False).env_runners(exploration_config={"type": "Random"}).build_algo()


def test_other_parts_than_those_of_the_space_are_refused():
    class Wrong(OneAfterAnother):
        def get_inference_action_dist_cls(self):
            return TorchMultiDistribution.get_partial_dist_cls((TorchCategorical,) * 2, (3, 2))

    with pytest.raises(ModuleError, match="would not be used here"):
        module_of(Wrong)
