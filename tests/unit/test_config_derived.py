"""What follows from a config: fragment lengths, the config of evaluation, the algorithm."""

import pytest

from callbacks import RLlibCallback
from trainer import DQN, PG, PPO, SAC, DQNConfig, PPOConfig
from trainer.algorithms.building import own_config, without_effect_in_evaluation
from trainer.config import AlgorithmConfig, algorithm_config
from trainer.config.algorithm_config import env_runner_spec
from trainer.errors import ConfigError
from trainer.seeding import Role
from trainer.testing.envs import CountdownEnv


@pytest.mark.parametrize(
    ("batch", "runners", "envs", "fragments"),
    [
        # fragments of runners 1, 2, ... (of the local one without runners)
        (4000, 2, 1, [2000, 2000]),
        (4000, 0, 8, [500]),
        (4000, 3, 1, [1334, 1333, 1333]),
        (4001, 3, 1, [1334, 1334, 1333]),
        (4000, 2, 3, [667, 667]),  # 4 steps are left: 3 envs of runner 1 take 3, runner 2 the rest
        (4002, 2, 3, [667, 667]),
        (4001, 3, 4, [334, 334, 333]),  # 5 are left for 4 envs each
        (1000, 0, 3, [334]),
        (10, 1, 10, [1]),
    ],
)
def test_auto_fragment_divides_the_train_batch_and_its_remainder(batch, runners, envs, fragments):
    config = PPOConfig().training(train_batch_size=batch)
    config.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
    indices = range(1, runners + 1) if runners else [0]
    assert [config.get_rollout_fragment_length(index) for index in indices] == fragments
    sampled = sum(fragments) * envs
    assert batch <= sampled < batch + envs


def test_fixed_fragment_is_given_as_it_is():
    config = PPOConfig().env_runners(rollout_fragment_length=7)
    assert [config.get_rollout_fragment_length(index) for index in (0, 1, 5)] == [7, 7, 7]


def test_config_of_evaluation_by_episodes():
    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"a": {"b": 1}})
        .debugging(seed=3)
        .evaluation(
            evaluation_num_workers=4,
            evaluation_config={"explore": False, "env_config": {"a": {"c": 2}}},
        )
    )
    before = config.copy()
    config.freeze()
    evaluation = config.get_evaluation_config_object()
    assert evaluation.in_evaluation
    assert not evaluation.is_frozen
    assert not evaluation.explore
    assert evaluation.env_config == {"a": {"b": 1, "c": 2}}
    assert evaluation.evaluation_config is None
    assert evaluation.num_env_runners == 4
    assert (evaluation.batch_mode, evaluation.rollout_fragment_length) == ("complete_episodes", 1)
    assert evaluation.metrics_num_episodes_for_smoothing is None
    assert evaluation.seed == 3
    assert config == before


@pytest.mark.parametrize(
    ("duration", "runners", "fragment"), [(200, 7, 29), (200, 0, 200), (100, 4, 25)]
)
def test_config_of_evaluation_by_steps(duration, runners, fragment):
    config = PPOConfig().evaluation(
        evaluation_duration=duration,
        evaluation_duration_unit="timesteps",
        evaluation_num_env_runners=runners,
        evaluation_seed=5,
    )
    evaluation = config.get_evaluation_config_object()
    assert evaluation.batch_mode == "truncate_episodes"
    assert evaluation.rollout_fragment_length == fragment
    assert evaluation.seed == 5


def test_statistics_of_evaluation_are_smoothed_only_when_asked():
    config = PPOConfig().reporting(metrics_num_episodes_for_smoothing=7)
    assert config.get_evaluation_config_object().metrics_num_episodes_for_smoothing is None
    config.evaluation(evaluation_config={"metrics_num_episodes_for_smoothing": 3})
    assert config.get_evaluation_config_object().metrics_num_episodes_for_smoothing == 3


def test_evaluation_config_may_be_a_changed_copy_of_the_config():
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
    config.evaluation(evaluation_interval=1, evaluation_config={"gamma": 0.5})
    copied = config.copy().env_runners(explore=False)
    config.evaluation(evaluation_config=copied, evaluation_num_env_runners=2)
    config.validate()
    evaluation = config.get_evaluation_config_object()
    assert (evaluation.explore, evaluation.num_env_runners) == (False, 2)
    config.evaluation(evaluation_config=copied.evaluation(evaluation_interval=3))
    with pytest.raises(ConfigError, match=r"evaluation_config: `evaluation_interval=3`"):
        config.validate()


def test_evaluation_config_may_be_a_config_and_is_merged_and_removed():
    config = PPOConfig().evaluation(evaluation_config=PPOConfig().env_runners(explore=False))
    config.evaluation(evaluation_config=AlgorithmConfig.overrides(gamma=0.5))
    assert config.evaluation_config == {"explore": False, "gamma": 0.5}
    config.evaluation(evaluation_config=None)
    assert config.evaluation_config is None
    assert config.get_evaluation_config_object().explore


def test_what_a_config_given_for_evaluation_says_to_no_effect_is_told(caplog):
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=3)
    own_config(PPO, config.evaluation(evaluation_config=config.copy()), None, {})
    assert not caplog.messages  # a copy says nothing of its own
    given = PPOConfig().env_runners(num_env_runners=1, explore=False)
    config.evaluation(evaluation_config=given)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "`num_env_runners=1` of the PPOConfig has no effect" in caplog.messages[0]
    assert "Set that with evaluation()" in caplog.messages[0]
    assert "`evaluation_num_env_runners`" in caplog.messages[0]


def test_settings_of_training_in_evaluation_config_are_told_once_to_have_no_effect(caplog):
    config = DQNConfig().environment("CartPole-v1").training(gamma=0.9)
    given = {"lr": 1.0, "gamma": 0.9, "sample_timeout_s": 3.0, "epsilon": 0.5, "explore": True}
    own_config(DQN, config.evaluation(evaluation_config=given), None, {})
    (told,) = caplog.messages
    assert "evaluation_config: lr=1.0 (" in told
    assert "sample_timeout_s=3.0 (evaluation_sample_timeout_s counts" in told
    for name in ("gamma", "epsilon", "explore"):  # as in training, or it has an effect
        assert f"{name}=" not in told


def test_events_that_evaluation_runners_never_fire_are_told(caplog):
    class OfRun(RLlibCallback):
        def on_train_result(self, **_):
            pass

    class OfEvaluation(OfRun):
        def on_evaluate_end(self, **_):
            pass

        def on_episode_end(self, **_):
            pass

    config = PPOConfig().environment("CartPole-v1").callbacks(OfRun)
    functions = {
        f"callbacks_on_{name}": lambda **_: None for name in ("evaluate_start", "episode_end")
    }
    own_config(PPO, config.evaluation(evaluation_config={"callbacks_class": OfRun}), None, {})
    assert not caplog.messages  # as in training
    own = {"callbacks_class": [OfRun, OfEvaluation], **functions}
    own_config(PPO, config.evaluation(evaluation_config=own), None, {})
    (told,) = caplog.messages
    assert "OfEvaluation.on_evaluate_end (The main process fires it" in told
    assert "callbacks(on_evaluate_start=...) (The main process" in told
    for name in ("OfRun.", "on_episode_end"):
        assert name not in told


@pytest.mark.parametrize("given", [{"dueling": False}, {"policies": {"red", "blue"}}])
def test_evaluation_config_asks_for_no_other_network(given):
    config = DQNConfig().environment("CartPole-v1").evaluation(evaluation_config=given)
    (name,) = given
    with pytest.raises(ConfigError, match=f"evaluation_config: `{name}=.*Remove it, or set"):
        config.validate()


@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC, PG])
def test_what_evaluation_runners_are_made_of_is_never_told_to_have_no_effect(
    algorithm, monkeypatch
):
    config = algorithm.get_default_config().environment("CartPole-v1")
    of_runners, read_value = config.get_evaluation_config_object(), config.read_value
    reads = set()

    def noted(_, name):
        reads.add(name)
        return read_value(name)

    monkeypatch.setattr(algorithm_config, "settings_for_callbacks", lambda _: {})  # reads all
    monkeypatch.setattr(AlgorithmConfig, "read_value", noted)
    env_runner_spec(of_runners, root_seed=0, role=Role.EVALUATION)
    assert {"env", "explore"} < reads
    assert not without_effect_in_evaluation(type(config)).keys() & reads


class _Algorithm:
    def __init__(self, config):
        self.config = config
        config.freeze()


class _OwnConfig(PPOConfig):
    default_algo_class = _Algorithm


def test_an_env_that_is_given_to_build_is_evaluated_in_too():
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.evaluation(evaluation_config={"env": "Acrobot-v1", "explore": False})
    with config.build_algo(env=CountdownEnv) as algo:
        assert algo.config.env is CountdownEnv
        assert algo.config.evaluation_config == {"env": CountdownEnv, "explore": False}
    assert config.evaluation_config == {"env": "Acrobot-v1", "explore": False}
    config.evaluation_config = {"explore": False}
    with config.build_algo(env=CountdownEnv) as algo:
        assert algo.config.evaluation_config == {"explore": False}


@pytest.mark.parametrize("method", ["build", "build_algo"])
@pytest.mark.parametrize("arguments", [{}, {"env": "Acrobot-v1"}, {"use_copy": False}])
def test_building_gives_the_algorithm_and_leaves_the_config(method, arguments):
    config = _OwnConfig().environment("CartPole-v1").evaluation(evaluation_config={"gamma": 1})
    before = config.copy()
    algorithm = getattr(config, method)(**arguments)
    assert isinstance(algorithm, _Algorithm)
    assert algorithm.config is not config
    assert algorithm.config.env == arguments.get("env", "CartPole-v1")
    assert config == before
    assert not config.is_frozen


def test_logger_creator_of_build_reaches_the_copy_only():
    config = _OwnConfig()
    assert config.build(logger_creator=print).config.logger_creator is print
    assert config.logger_creator is None


def test_config_names_its_algorithm():
    class Other(_Algorithm):
        pass

    assert _OwnConfig().algo_class is _Algorithm
    config = AlgorithmConfig(algo_class=Other)
    assert isinstance(config.copy().build(), Other)
    config.algo_class = _Algorithm
    assert type(config.build()) is _Algorithm
    with pytest.raises(ConfigError, match=r"AlgorithmConfig\(algo_class=PPO\)"):
        AlgorithmConfig().build()
