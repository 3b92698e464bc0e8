"""States, checkpoints and switches that a user gives to an algorithm, and that do not fit."""

import pytest

from checkpoints import CheckpointMismatchError, CheckpointWriteError, encode
from tests.small_runs import small_ppo
from trainer import PPO, Algorithm, DQNConfig
from trainer.errors import ConfigError
from trainer.testing.envs import CountdownEnv


def config():
    return small_ppo(num_slots=1, batch=20, model={"fcnet_hiddens": [2]}, seed=1)


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
