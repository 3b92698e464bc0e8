"""Learners of users: `learner_class`, losses on arrays, events around updates, what is state."""

import copy
import logging
from dataclasses import replace

import numpy as np
import pytest

from checkpoints import CheckpointError, encode
from tests.small_runs import killing, learnt, small_ppo
from trainer import (
    Algorithm,
    ConfigError,
    DQNConfig,
    DQNLearner,
    ModuleError,
    PGConfig,
    PGLearner,
    PPOConfig,
    PPOLearner,
    SACConfig,
    SACLearner,
    TD3Config,
    TD3Learner,
)
from trainer.learners import EpisodeLearner, Learner, ReplayLearner
from trainer.testing.envs import CountdownEnv
from trainer.testing.multi_agent_envs import MultiAgentCartPole


class Unchanged(PPOLearner):
    """Adds nothing."""


def two_policies():
    made = small_ppo().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    return made.multi_agent(policies={"a", "b"}, policy_mapping_fn={0: "a", 1: "b"})


class Bounded(PPOLearner):
    """Draws values towards zero, counts its steps, and logs."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.num_steps = 0
        self.seen = []

    def compute_loss(self, batch, outputs, coefficients):
        loss = super().compute_loss(batch, outputs, coefficients)
        values, weight = outputs["vf_preds"], self.config.learner_config_dict["weight"]
        self.num_steps += 1
        weight *= 1.0 + self.num_steps % 3  # so that a forgotten count shows
        size = float(np.square(values).mean())
        self.metrics.log_value((self.module_id, "value_size"), size, window=5)
        return replace(
            loss,
            total_loss=loss.total_loss + weight * size,
            d_vf_preds=loss.d_vf_preds + 2.0 * weight * values / len(values),
        )

    def before_gradient_based_update(self, *, timesteps):
        self.seen.append(("before", timesteps["num_env_steps_sampled_lifetime"], self.num_updates))

    def after_gradient_based_update(self, *, timesteps):
        self.seen.append(("after", timesteps["num_env_steps_sampled_lifetime"], self.num_updates))


def bounded(num_env_runners=0, *, weight=0.1, **settings):
    return small_ppo(
        num_env_runners,
        learner_class=Bounded,
        learner_config_dict={"weight": weight},
        num_epochs=2,
        **settings,
    )


def small_of(algorithm):
    """A config of every algorithm."""
    replay = {
        "train_batch_size": 16,
        "num_steps_sampled_before_learning_starts": 30,
        "replay_buffer_config": {"capacity": 100},
    }
    made = {
        "PPO": lambda: small_ppo(),
        "PG": lambda: PGConfig().environment(CountdownEnv).training(train_batch_size=40),
        "DQN": lambda: DQNConfig().environment(CountdownEnv).training(**replay),
        "SAC": lambda: SACConfig().environment("Pendulum-v1").training(**replay),
        "TD3": lambda: TD3Config().environment("Pendulum-v1").training(**replay),
    }[algorithm]()
    return made.env_runners(num_env_runners=0).reporting(min_sample_timesteps_per_iteration=50)


LEARNERS = {
    "PPO": PPOLearner,
    "PG": PGLearner,
    "DQN": DQNLearner,
    "SAC": SACLearner,
    "TD3": TD3Learner,
}


# ---- losses


def test_a_class_that_changes_nothing_learns_the_same_bytes():
    outcomes = []
    for cls in (None, Unchanged):
        with small_ppo(learner_class=cls).build_algo() as algo:
            algo.train()
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]["rl_module"]))
    assert outcomes[0] == outcomes[1]


def test_a_loss_of_ones_own_decides_what_is_learnt():
    sizes = {}
    for weight in (0.0, 100.0):
        with bounded(weight=weight, lr=3e-3).build_algo() as algo:
            for _ in range(15):
                result = algo.train()
            sizes[weight] = result["learners/default_policy/value_size"]
    assert sizes[100.0] < 0.1 * sizes[0.0]


def test_a_loss_of_pg():
    class Still(PGLearner):
        def compute_loss(self, batch, outputs):
            loss = super().compute_loss(batch, outputs)
            return replace(loss, d_action_dist_inputs=0.0 * loss.d_action_dist_inputs)

    with small_of("PG").training(learner_class=Still).build_algo() as algo:
        before = algo.get_weights()
        algo.train()
        assert encode(algo.get_weights()) == encode(before)


# ---- state


def test_a_restored_run_goes_on_with_its_attributes_and_its_log(tmp_path):
    with bounded().build_algo() as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "saved"))
        num_steps, seen = algo.learner.num_steps, list(algo.learner.seen)
        result = algo.train()
        expected = learnt(algo), result["learners/default_policy/value_size"]
    assert num_steps > 0
    with Algorithm.from_checkpoint(path, env=CountdownEnv) as algo:
        assert (algo.learner.num_steps, algo.learner.seen) == (num_steps, seen)
        result = algo.train()
        assert (learnt(algo), result["learners/default_policy/value_size"]) == expected


def test_a_forgotten_attribute_changes_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.own_attributes.restore_attributes", lambda owner, state: None)
    with bounded().build_algo() as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "saved"))
        algo.train()
        expected = learnt(algo)
    with Algorithm.from_checkpoint(path, env=CountdownEnv) as algo:
        algo.train()
        assert learnt(algo) != expected


def test_what_cannot_be_saved_is_named_once(caplog):
    class Keeping(Unchanged):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.history = iter([1, 2])

    with caplog.at_level(logging.WARNING), small_ppo(learner_class=Keeping).build_algo() as algo:
        algo.train()
        algo.train()
    (message,) = [text for text in caplog.messages if "history" in text]
    assert "learner" in message
    assert "Override extra_state and set_extra_state" in message


def test_an_update_that_fails_takes_back_what_the_learner_has_counted():
    class Failing(Bounded):
        fails = False

        def after_gradient_based_update(self, *, timesteps):
            super().after_gradient_based_update(timesteps=timesteps)
            if type(self).fails:
                raise InterruptedError("at the end of an update")

    made = bounded().training(learner_class=Failing)
    with made.build_algo() as algo, bounded().build_algo() as undisturbed:
        algo.train()
        undisturbed.train()
        before = encode(algo.get_state()["learner"])
        Failing.fails = True
        with pytest.raises(InterruptedError):
            algo.train()
        Failing.fails = False
        assert encode(algo.get_state()["learner"]) == before
        algo.train()
        undisturbed.train()
        assert learnt(algo) == learnt(undisturbed)


FORGED = {
    "what is ours": lambda own: own["attributes"].update(num_updates=7),
    "a method": lambda own: own["attributes"].update(compute_loss=7),
    "a method of the class": lambda own: own["attributes"].update(helper=7),
    "a property": lambda own: own["attributes"].update(size=7),
    "no name": lambda own: own["attributes"].update({"a b": 7}),
    "no dict": lambda own: own.update(attributes=5),
    "no log": lambda own: own.update(metrics={}),
    "no number": lambda own: own.update(kl_coeff="x"),
    "unknown": lambda own: own.update(more=1),
}


class Described(Bounded):
    @property
    def size(self):
        return 3

    def helper(self):
        return 4


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_state_changes_nothing(name):
    with bounded().training(learner_class=Described).build_algo() as algo:
        algo.train()
        before, state = encode(algo.get_state()["learner"]), algo.get_state()
        FORGED[name](state["learner"]["learner"])
        state["learner"]["rl_module"] = {
            name: array + 1 for name, array in state["learner"]["rl_module"].items()
        }
        for take in (algo.learner.set_state, lambda learner: algo.set_state({"learner": learner})):
            with pytest.raises((ModuleError, CheckpointError)):
                take(state["learner"])
            assert encode(algo.get_state()["learner"]) == before


@pytest.mark.parametrize("own", [5, [], None])
def test_what_is_no_state_is_told(own):
    with bounded().build_algo() as algo:
        state = algo.get_state()["learner"]
        state["learner"] = own
        with pytest.raises(CheckpointError, match="learner"):
            algo.set_state({"learner": state})


def test_an_attribute_that_a_failed_update_has_made_is_gone():
    class Late(PPOLearner):
        fails = True

        def compute_loss(self, *given):
            self.count = getattr(self, "count", 0) + 1
            return super().compute_loss(*given)

        def after_gradient_based_update(self, *, timesteps):
            if type(self).fails:
                raise InterruptedError("at the end of the first update")

    with small_ppo(learner_class=Late).build_algo() as algo:
        with pytest.raises(InterruptedError):
            algo.train()
        assert not hasattr(algo.learner, "count")
        Late.fails = False
        algo.train()
        assert algo.learner.count == 2


# ---- what is logged


class Logging(PPOLearner):
    def after_gradient_based_update(self, *, timesteps):
        self.metrics.log_value("mine", 3.0, window=1)
        self.metrics.log_value((self.module_id, "total_loss"), -1.0, window=1)
        self.metrics.log_value("num_module_steps_trained", -5, reduce="sum")


class SayingItself(Logging):
    def extra_state(self):
        return {**super().extra_state(), "more": 1}

    def set_extra_state(self, state):
        super().set_extra_state(state)


@pytest.mark.parametrize("cls", [Logging, SayingItself])
def test_a_log_is_shown_and_replaces_nothing_of_ours(cls, caplog):
    with small_ppo(learner_class=cls).build_algo() as algo:
        result = algo.train()
    shown = result["learners/default_policy"]
    assert shown["mine"] == 3.0
    assert shown["total_loss"] > 0.0
    assert shown["num_module_steps_trained"] == 60
    assert any("total_loss" in text for text in caplog.messages), "it is told"


@pytest.mark.parametrize("made", ["a stretch", "rounds", "a runner"])
def test_a_log_counts_every_update_from_replay(made):
    class Counting(DQNLearner):
        def after_gradient_based_update(self, *, timesteps):
            self.metrics.log_value("count", 1, reduce="sum", clear_on_reduce=True)

    config = small_of("DQN").training(learner_class=Counting)
    if made == "rounds":
        config.callbacks(on_sample_end=lambda **_: None)
    if made == "a runner":
        config.env_runners(num_env_runners=1)
    with config.build_algo() as algo:
        for _ in range(2):
            before = algo.learner.num_updates
            result = algo.train()
            made_updates = algo.learner.num_updates - before
            assert result["learners/default_policy/count"] == made_updates > 10


def test_a_module_may_have_a_class_of_its_own():
    made = two_policies().rl_module(
        algorithm_config_overrides_per_module={"b": {"learner_class": Logging}}
    )
    with made.build_algo() as algo:
        result = algo.train()
        assert {id_: type(each) for id_, each in algo.learners.items()} == {
            "a": PPOLearner,
            "b": Logging,
        }
        assert result["learners/b/mine"] == 3.0
        assert "mine" not in result["learners/a"]


def test_a_copy_goes_on_alone():
    with bounded().build_algo() as algo:
        algo.train()
        twin = copy.deepcopy(algo.learner)
        assert encode(twin.get_state()) == encode(algo.learner.get_state())
        algo.train()
        assert twin.num_steps < algo.learner.num_steps


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_no_attribute_of_ours_is_taken_for_one_of_the_user(algorithm):
    cls = type("Derived", (LEARNERS[algorithm],), {})
    with small_of(algorithm).training(learner_class=cls).build_algo() as algo:
        algo.train()
        assert algo.learner.num_updates > 0
        assert algo.get_state()["learner"]["learner"]["attributes"] == {}
    for one in (Learner, EpisodeLearner, ReplayLearner, LEARNERS[algorithm]):
        assert one.settings_class is not None


# ---- events around updates


def test_events_stand_around_every_update():
    with bounded().build_algo() as algo:
        algo.train()
        algo.train()
        assert algo.learner.seen == [
            ("before", 0, 0), ("after", 0, 1), ("before", 60, 1), ("after", 60, 2)
        ]  # fmt: skip


@pytest.mark.parametrize("algorithm", ["DQN", "SAC", "TD3"])
def test_events_stand_around_every_update_from_replay(algorithm):
    class Counting(LEARNERS[algorithm]):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.num_before = self.num_after = 0

        def before_gradient_based_update(self, *, timesteps):
            assert self.num_before == self.num_updates
            self.num_before += 1

        def after_gradient_based_update(self, *, timesteps):
            self.num_after += 1
            self.metrics.log_value("num_after", self.num_after, reduce="max")

    with small_of(algorithm).training(learner_class=Counting).build_algo() as algo:
        result = algo.train()
        learner = algo.learner
        assert learner.num_before == learner.num_after == learner.num_updates > 0
        assert result["learners/default_policy/num_after"] == learner.num_updates


# ---- processes


@pytest.mark.process
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    file = tmp_path / "kill"
    file.touch()
    made = bounded(2).callbacks(on_episode_step=killing(file, at_step=3))
    outcomes = []
    for config in (bounded(), made):
        with config.build_algo() as algo:
            algo.train()
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]))
    assert outcomes[0] == outcomes[1]
    assert not file.exists(), "no runner was killed"


# ---- wrong classes


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (PPOLearner, "compute_loss_for_module"),
        (PPOLearner, "configure_optimizers_for_module"),
        (PGLearner, "compute_loss_for_module"),
        (DQNLearner, "compute_loss"),
        (SACLearner, "compute_loss_for_module"),
        (TD3Learner, "compute_loss_for_module"),
        (DQNLearner, "postprocess_gradients_for_module"),
    ],
)
def test_what_would_never_be_called_is_refused(base, name):
    with pytest.raises(ConfigError, match=f"Mine overrides what nothing here calls: `{name}`"):
        type("Mine", (base,), {name: lambda self: None})


def test_a_class_of_another_algorithm_is_refused():
    with pytest.raises(ConfigError, match="PPO learns by a PPOLearner, and this class is not"):
        small_ppo(learner_class=DQNLearner).build_algo()


def test_what_is_no_class_is_a_problem_of_the_config():
    with pytest.raises(ConfigError, match="learner_class"):
        PPOConfig().training(learner_class="Bounded").validate()
    with pytest.raises(ConfigError, match="learner_class"):
        PPOConfig().training(learner_class=int).validate()
