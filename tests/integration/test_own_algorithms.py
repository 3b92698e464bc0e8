"""Algorithms of users: a config that names learner and network, a loss in Torch, RLlib's steps."""

import pytest

pytest.importorskip("torch")

import torch

from checkpoints import encode
from tests.small_runs import killing
from trainer import (
    PPO,
    Algorithm,
    AlgorithmConfig,
    ConfigError,
    ModuleError,
    PPOConfig,
    PPOTorchLearner,
    RLModuleSpec,
    TorchLearner,
    TorchRLModule,
    UnknownSettingError,
)
from trainer.algorithms import building
from trainer.algorithms.on_and_off_policy import OnPolicyAlgorithm
from trainer.connectors import ComputeReturnsToGo
from trainer.modules import ActorCriticModule
from trainer.testing.envs import CountdownEnv


class Network(TorchRLModule):
    def setup(self):
        self.pi = torch.nn.Linear(self.obs_size, self.action_distribution.num_inputs)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.model_config["scale"] * self.pi(batch["obs"])}


class Reinforce(TorchLearner):
    def build(self):
        super().build()
        self._learner_connector.prepend(ComputeReturnsToGo(gamma=self.config.gamma))
        self.num_losses = 0

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        self.num_losses += 1
        policy = (
            self.module[module_id]
            .get_train_action_dist_cls()
            .from_logits(fwd_out["action_dist_inputs"])
        )
        return -(policy.logp(batch["actions"]) * batch["returns_to_go"]).mean()


class VPGConfig(AlgorithmConfig):
    """As RLlib's example: settings come into being in `__init__`."""

    is_class_attribute: bool = True

    def __init__(self, algo_class=None):
        super().__init__(algo_class=algo_class or VPG)
        self.num_whole_episodes_each = 4
        self.num_env_runners = 0
        self.lr = 0.01

    def training(self, *, num_whole_episodes_each=None, **others):
        super().training(**others)
        if num_whole_episodes_each is not None:
            self.num_whole_episodes_each = num_whole_episodes_each
        return self

    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Network, model_config={"scale": 1.0})

    def get_default_learner_class(self):
        return Reinforce


class VPG(Algorithm):
    """Fetches episodes itself, as RLlib's example does."""

    @classmethod
    def get_default_config(cls):
        return VPGConfig()

    def training_step(self):
        count = self.config.num_whole_episodes_each // (self.config.num_env_runners or 1)
        answers = self.env_runner_group.foreach_env_runner(
            lambda env_runner: (env_runner.sample(num_episodes=count), env_runner.get_metrics()),
            local_env_runner=self.env_runner_group.num_remote_workers() <= 0,
        )
        self.metrics.aggregate([metrics for _, metrics in answers], key="env_runners")
        steps = self.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"))
        results = self.learner_group.update(
            episodes=[one for episodes, _ in answers for one in episodes],
            timesteps={"num_env_steps_sampled_lifetime": steps},
        )
        self.metrics.aggregate(results, key="learners")
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True
        )


class Simple(OnPolicyAlgorithm):
    """The same in our manner: `training_step` is inherited."""

    @classmethod
    def get_default_config(cls):
        return VPGConfig(algo_class=cls)


def vpg(cls=VPG, num_env_runners=0, **settings):
    made = cls.get_default_config().environment(CountdownEnv)
    made.env_runners(num_env_runners=num_env_runners).debugging(seed=4)
    return made.update_from_dict(settings)


def outcome(algo, num_iterations):
    for _ in range(num_iterations):
        algo.train()
    return encode(algo.get_state()["learner"])


# ---- RLlib's steps


def test_what_was_fetched_is_learnt_from_and_counted():
    with vpg().build_algo() as algo:
        result = algo.train()
        assert type(algo.learner) is Reinforce
        assert type(algo.get_module()) is Network
        assert algo.learner.num_losses == 1
        steps = result["env_runners/num_env_steps_sampled_lifetime"]
        assert steps == algo.counters.num_env_steps_sampled > 0
        assert result["env_runners/num_episodes"] == 4
        assert (
            result["env_runners/episode_return_mean"] == result["env_runners/episode_return_mean"]
        )
        assert result["learners/default_policy/total_loss"] != 0.0
        assert algo.train()["num_env_steps_sampled_lifetime"] > steps


def test_weights_that_were_learnt_act():
    with vpg().build_algo() as algo:
        algo.train()
        expected = algo.learner.module.get_state()["pi.weight"]
        (found,) = algo.env_runner_group.foreach_env_runner(
            lambda env_runner: env_runner.module.get_state()["pi.weight"]
        )
    assert (found == expected).all()


def test_a_restored_run_goes_on_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_ALGORITHMS", {**building._ALGORITHMS, "VPG": VPG})
    with vpg().build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "half")
        expected = outcome(algo, 2)
    with VPG.from_checkpoint(tmp_path / "half", env=CountdownEnv) as algo:
        assert algo.config.num_whole_episodes_each == 4
        assert outcome(algo, 2) == expected


@pytest.mark.process
def test_a_runner_that_is_killed_changes_nothing(tmp_path):
    file = tmp_path / "kill"
    outcomes = []
    for is_killed in (False, True):
        made = vpg(num_env_runners=2)
        if is_killed:
            file.touch()
            made.callbacks(on_episode_step=killing(file, at_step=1))
        with made.build_algo() as algo:
            outcomes.append(outcome(algo, 2))
    assert outcomes[0] == outcomes[1]
    assert not file.exists(), "no runner was killed"


# ---- our way


@pytest.mark.process
def test_inherited_steps_are_exact_over_processes(tmp_path):
    settings = {"train_batch_size": 40, "minibatch_size": 20, "num_epochs": 2}
    outcomes = []
    for num_env_runners in (0, 2):
        slots = 2 // max(1, num_env_runners)
        made = vpg(Simple, num_env_runners, num_envs_per_env_runner=slots, **settings)
        with made.build_algo() as algo:
            outcomes.append(outcome(algo, 2))
    assert outcomes[0] == outcomes[1]


def test_a_forgotten_attribute_changes_the_run():
    class Warming(Reinforce):
        def compute_loss_for_module(self, **given):
            return min(1.0, self.num_losses / 10) * super().compute_loss_for_module(**given)

    outcomes = []
    for is_forgotten in (False, True):
        with vpg(Simple, learner_class=Warming, train_batch_size=40).build_algo() as algo:
            algo.train()
            state = algo.get_state()
            if is_forgotten:
                state["learner"]["learner"]["attributes"]["num_losses"] = 0
            algo.set_state(state)
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]["rl_module"]))
    assert outcomes[0] != outcomes[1]


def test_it_learns():
    made = vpg(Simple, train_batch_size=400, num_epochs=1, gamma=0.99, lr=0.01)
    made = made.environment("CartPole-v1").env_runners(batch_mode="complete_episodes")
    made.rl_module(model_config={"scale": 3.0})
    with made.build_algo() as algo:
        first = algo.train()["env_runners/episode_return_mean"]
        for _ in range(30):
            last = algo.train()["env_runners/episode_return_mean"]
    assert last > 2 * first


# ---- configs


def test_a_setting_that_init_made_is_one_like_others():
    made = vpg().training(num_whole_episodes_each=8)
    assert made["num_whole_episodes_each"] == 8
    assert VPGConfig().num_whole_episodes_each == 4
    assert made.copy().to_dict()["num_whole_episodes_each"] == 8
    assert "num_whole_episodes_each" in made.given_settings()
    with pytest.raises(UnknownSettingError, match="num_whole_episodes_each"):
        made.num_whole_episode_each = 3
    with pytest.raises(UnknownSettingError):
        AlgorithmConfig().num_whole_episodes_each = 3


def test_a_misspelt_name_in_init_is_told():
    class Wrong(PPOConfig):
        def __init__(self):
            super().__init__()
            self.num_env_runner = 1

    with pytest.raises(UnknownSettingError, match="num_env_runners"):
        Wrong()


@pytest.mark.parametrize("name", ["n_steps", "total_timesteps", "learning_rate"])
def test_a_name_of_another_library_is_no_setting_that_init_makes(name):
    class Wrong(PPOConfig):
        def __init__(self):
            super().__init__()
            setattr(self, name, 1)

    with pytest.raises(UnknownSettingError, match=name):
        Wrong()


@pytest.mark.parametrize("is_dict", [False, True])
def test_a_learner_that_training_names_is_enough_for_an_algorithm(is_dict, monkeypatch):
    monkeypatch.setattr(building, "_ALGORITHMS", {**building._ALGORITHMS})

    class PlainConfig(PPOConfig):
        """A config of its own: an algorithm is what its config builds."""

    class LearnsAsNamed(OnPolicyAlgorithm):
        config_class = PlainConfig

    made = PlainConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    made.training(train_batch_size=20, minibatch_size=20)
    with pytest.raises(ConfigError, match=r"make_learner is missing.*`learner_class`"):
        LearnsAsNamed(made)
    made.training(learner_class=Reinforce)
    with LearnsAsNamed(made.to_dict() if is_dict else made) as algo:
        algo.train()
        assert type(algo.learner) is Reinforce


def test_settings_of_init_reach_derived_configs_too():
    class First(PPOConfig):
        def __init__(self):
            super().__init__()
            self.my_colour = "red"

    class Second(First):
        def __init__(self):
            super().__init__()
            self.my_shape = [1]

    made = Second()
    assert (made.my_colour, made.my_shape) == ("red", [1])
    assert "my_shape" not in First().to_dict()
    with pytest.raises(UnknownSettingError):
        made.my_size = 3


def test_a_config_names_learner_and_network_of_an_algorithm_of_ours():
    class Own(PPOConfig):
        def get_default_learner_class(self):
            return PPOTorchLearner

        def get_default_rl_module_spec(self):
            return RLModuleSpec(module_class=ActorCriticModule)

    with pytest.raises(ConfigError, match="computes its loss in Torch, but the network"):
        Own().environment(CountdownEnv).env_runners(num_env_runners=0).build_algo()
    del Own.get_default_rl_module_spec
    with Own().environment(CountdownEnv).env_runners(num_env_runners=0).build_algo() as algo:
        assert type(algo) is PPO
        assert type(algo.learner) is PPOTorchLearner


def test_a_learner_without_a_loss_says_so():
    made = vpg(Simple, learner_class=TorchLearner, train_batch_size=20)
    with made.build_algo() as algo, pytest.raises(ModuleError, match="has no loss"):
        algo.train()
