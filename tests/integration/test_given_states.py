"""States, checkpoints and switches that a user gives to an algorithm, and that do not fit."""

import numpy as np
import pytest

from checkpoints import CheckpointMismatchError, CheckpointWriteError, encode
from tests.small_runs import small_ppo
from trainer import PPO, Algorithm, DQNConfig
from trainer.errors import ConfigError
from trainer.testing.envs import CountdownEnv


def config():
    return small_ppo(num_slots=1, batch=20, model={"fcnet_hiddens": [2]}, seed=1)


def _add_unknown(state):
    state["nope"] = 1


def _spoil_counter(state):
    state["counters"]["training_iteration"] = "x"


def _add_unknown_to_learner(state):
    state["learner"]["nope"] = 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_add_unknown, r"unknown 'nope'.*components of this PPO are.*Nothing was changed"),
        (_spoil_counter, r"component 'counters'.*training_iteration.*Nothing was changed"),
        (_add_unknown_to_learner, r"component 'learner'.*nope.*Nothing was changed"),
    ],
)
def test_states_that_do_not_fit_change_nothing(spoil, message):
    with config().build_algo() as algo:
        start = algo.get_state()
        algo.train()
        before = encode(algo.get_state())
        spoil(start)
        with pytest.raises(CheckpointMismatchError, match=message):
            algo.set_state(start)
        assert encode(algo.get_state()) == before
        algo.train()


def dqn(capacity=60):
    return (
        DQNConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=8, num_steps_sampled_before_learning_starts=5)
        .training(model={"fcnet_hiddens": [2]}, replay_buffer_config={"capacity": capacity})
        .reporting(min_sample_timesteps_per_iteration=10)
        .debugging(seed=1)
    )


@pytest.mark.parametrize(
    ("made", "path", "message"),
    [
        (config(), "learner/rl_module", r"'pi/0/kernel' has shape \(9, 9\)"),
        (config(), "learner/optimizer/first_moment", r"'pi/0/kernel' has shape \(9, 9\)"),
        (dqn(), "learner/target", r"'encoder/0/kernel' has shape \(9, 9\)"),
    ],
)
def test_weights_that_do_not_fit_name_their_component_and_change_nothing(made, path, message):
    with made.build_algo() as algo:
        algo.train()
        start = algo.get_state()
        algo.train()
        before, part = encode(algo.get_state()), start
        for name in path.split("/"):
            part = part[name]
        part[next(iter(part))] = np.zeros((9, 9), np.float32)
        component = "/".join(path.split("/")[:2])
        match = rf"component '{component}' does not fit.*{message}.*Nothing was changed"
        with pytest.raises(CheckpointMismatchError, match=match):
            algo.set_state(start)
        assert encode(algo.get_state()) == before
        algo.train()


def test_a_replay_buffer_of_another_size_leaves_all_components_as_they_were():
    with dqn(capacity=40).build_algo() as other:
        other.train()
        state = other.get_state()
    with dqn().build_algo() as algo:
        algo.train()
        before = encode(algo.get_state())
        with pytest.raises(CheckpointMismatchError, match=r"'replay_buffer' does not fit.*40"):
            algo.set_state(state)
        assert encode(algo.get_state()) == before
        algo.train()


def test_a_state_that_callbacks_give_within_an_iteration_is_undone_with_it():
    given = []

    def give_and_fail(algorithm, **_kwargs):
        if given:
            algorithm.set_state(given[0])
            raise ValueError("on purpose")

    with dqn().callbacks(on_train_result=give_and_fail).build_algo() as algo:
        start = algo.get_state()
        algo.train()
        before = encode(algo.get_state())
        given.append(start)
        with pytest.raises(Exception, match="on purpose"):
            algo.train()
        assert encode(algo.get_state()) == before


class WithSteps(PPO):
    """An algorithm with a state of its own, that counts how often states are checked."""

    steps = 0
    num_checks = 0

    def get_state(self, components=None, *, not_components=None):
        state = super().get_state(components, not_components=not_components)
        return {**state, "steps": self.steps}

    def check_state(self, state):
        self.num_checks += 1
        super().check_state(state)

    def set_state(self, state):
        super().set_state(state)
        self.steps = state.get("steps", self.steps)


def test_a_subclass_has_components_of_its_own_and_undoing_checks_nothing(tmp_path):
    def fail(**_kwargs):
        raise ValueError("on purpose")

    algo = WithSteps(config().callbacks(on_train_result=fail))
    with algo:
        algo.set_state({"steps": 3})
        assert (algo.steps, algo.num_checks) == (3, 1)
        algo.steps = 4
        with pytest.raises(Exception, match="on purpose"):
            algo.train()
        assert (algo.steps, algo.num_checks) == (4, 1)
        path = algo.save_to_path(tmp_path / "c")
        algo.steps = 0
        algo.restore_from_path(path)
        assert (algo.steps, algo.num_checks) == (4, 2)


def test_a_class_that_is_not_registered_is_asked_for(tmp_path):
    with WithSteps(config()) as algo:
        path = algo.save_to_path(tmp_path / "c")
    WithSteps.from_checkpoint(path, env=CountdownEnv).stop()
    for cls in (Algorithm, PPO):
        with pytest.raises(
            CheckpointMismatchError, match=r"WithSteps\.from_checkpoint\("
        ) as refused:
            cls.from_checkpoint(path)
        assert "Did you mean" not in str(refused.value)
        assert "finds the class" not in str(refused.value)


def test_switches_are_true_or_false(tmp_path):
    text = "no"
    with pytest.raises(TypeError, match=r"allow_code='no'.*True or False"):
        Algorithm.from_checkpoint(tmp_path / "not there", allow_code=text)
    with (
        config().build_algo() as algo,
        pytest.raises(TypeError, match=r"background='no'.*True or False"),
    ):
        algo.save_to_path(tmp_path / "c", background=text)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("background", [False, True])
def test_a_save_in_on_checkpoint_saved_is_refused(tmp_path, *, background):
    refused = []

    def save_again(algorithm, **_kwargs):
        with pytest.raises(CheckpointWriteError, match="from on_checkpoint_saved") as error:
            algorithm.save_to_path(tmp_path / "again")
        refused.append(error.value)

    with config().callbacks(on_checkpoint_saved=save_again).build_algo() as algo:
        algo.save_to_path(tmp_path / "c", background=background)
        algo.finish_saving()
        assert len(refused) == 1
        algo.train()
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("argument", ["components", "not_components"])
def test_a_component_that_there_is_not_is_named_with_the_nearest_one(argument):
    with config().build_algo() as algo:
        for name, nearest in [("lerner", "learner"), ("env_runner/slots", "env_runners")]:
            match = rf"unknown '{name}' \(did you mean '{nearest}'\?\); the components are"
            with pytest.raises(ConfigError, match=match):
                algo.get_state(**{argument: ["counters", name]})
        optional = ["connectors", "modules", "exploration", "replay_buffer", "actors"]
        algo.get_state(**{argument: optional})  # which other algorithms have
    with WithSteps(config()) as own:
        assert ("steps" in own.get_state(**{argument: "learner"})) is True
        own.get_state(**{argument: "steps"})
        with pytest.raises(ConfigError, match=r"unknown 'step' \(did you mean 'steps'"):
            own.get_state(**{argument: "step"})
