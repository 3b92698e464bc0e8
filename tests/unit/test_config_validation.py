"""Validation: every problem is found, all are told at once, and nothing is ignored silently."""

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.ppo.ppo import PPOConfig
from trainer.config import AlgorithmConfig
from trainer.config.settings import schedule
from trainer.errors import ConfigError, UnknownSettingError
from trainer.modules import DefaultModelConfig, PolicySpec, RLModule, RLModuleSpec
from trainer.rllib_names.config import UNUSED_SETTINGS
from trainer_toolkit.checks import integer, number


def _problems(config):
    return "\n".join(str(problem) for problem in config.find_problems())


def _ppo(**given):
    return PPOConfig.from_dict(given)


def test_defaults_are_valid():
    AlgorithmConfig().validate()
    PPOConfig().validate()
    assert PPOConfig().get_evaluation_config_object().find_problems() == []


def test_all_problems_are_raised_as_one_numbered_list():
    config = _ppo(gamma=2.0, num_env_runners=-1, minibatch_size=5000, num_learners=2)
    config.callbacks([3], on_episode_end=lambda unknown: None, on_sample_end="print")
    with pytest.raises(ConfigError) as caught:
        config.validate()
    expected = [
        "PPOConfig: 7 problems",
        "  1. `num_env_runners=-1`: expected an int ≥ 0. See env_runners().",
        "  2. `gamma=2.0`: expected a number ≥ 0 and ≤ 1. See training().",
        "  3. `num_learners=2`: not offered in this version. ",
        "  4. callbacks(): callbacks_class[0]",
        "  5. callbacks(): on_episode_end",
        "  6. callbacks(): on_sample_end",
        "  7. `minibatch_size=5000`: it is larger than train_batch_size",
    ]
    for line, start in zip(str(caught.value).splitlines(), expected, strict=True):
        assert line.startswith(start)
    assert not isinstance(caught.value, UnknownSettingError)


def test_cpus_are_no_custom_resource():
    config = _ppo(num_cpus_per_env_runner=1, custom_resources_per_env_runner={"CPU": 2, "TPU": 1})
    config.evaluation(evaluation_interval=1)
    assert _problems(config).splitlines() == [
        "`custom_resources_per_env_runner={'CPU': 2, 'TPU': 1}`: CPUs are reserved by "
        "num_cpus_per_env_runner=1. Give num_cpus_per_env_runner=2, and leave 'CPU' out."
    ]
    assert not _problems(_ppo(custom_resources_per_env_runner={"TPU": 1, "GPU": 0.5}))


# What each setting accepts, docs/settings.md says, which is compared with the code (`test_docs`).
@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("num_env_runners", 1.5, np.int64(2)),
        ("num_env_runners", True, 0),
        ("explore", 1, False),
        ("env", 3, "CartPole-v1"),
        ("env", "", gym.Env),
        ("env_config", None, {"a": 1}),
        ("sample_timeout_s", math.nan, None),
        ("rollout_fragment_length", "AUTO", "auto"),
        ("batch_mode", "truncate", "complete_episodes"),
        ("delay_between_env_runner_restarts_s", math.inf, 0.5),
        ("seed", 1.0, 2**40),
        ("lr", -1e-3, [[0, 1e-3], [1e6, 0]]),
        ("lr", [[0, 1e-3]], 0),
        ("lr", [[5, 1e-3], [10, 1e-4]], ((0, 1), (1, 2))),
        ("lr", [[0, 1e-3], [10, 1e-4], [10, 0]], 1),
        ("lr", [[0, 1e-3], [10]], 1),
        ("entropy_coeff", [[0, 0.1], [10, -0.1]], 0),
        ("clip_param", 0.0, [[0, 0.2], [1000, 0.0]]),
        ("clip_param", [[0, 0.2], [1000, -0.1]], 0.2),
        ("lambda_", 1.1, 0.95),
        ("vf_clip_param", -1, math.inf),
        ("rl_module_spec", "Module", RLModuleSpec()),
        ("model_config", [], {"fcnet_hiddens": [8]}),
        ("policies", 3, ["default_policy"]),
    ],
)
def test_value_is_judged(name, wrong, right):
    assert f"{name}=" in _problems(_ppo(**{name: wrong}))
    assert _problems(_ppo(**{name: right})) == ""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"policies": {"a/b"}}, "'a/b' has '/' in it"),
        ({"policies": ["learner"]}, "'learner' is a name of checkpoints and results already"),
        ({"policies": []}, "Name at least one"),
        ({"policies": {"a": object}}, "expected None, a PolicySpec, or"),
        ({"policies": {"a": PolicySpec(config={"lr": -1.0})}}, "module 'a': `lr=-1.0`"),
        ({"policies": {"a": (None, None, None, {"lr": -1.0})}}, "module 'a': `lr=-1.0`"),
        ({"policies": {"a": (None, None)}}, "expected None, a PolicySpec, or"),
        ({"policies": {"a": PolicySpec(config={"rl": 1.0})}}, "module 'a': "),
        ({"policies": {"a": PolicySpec(config={"num_env_runners": 1})}}, "of the whole run"),
        ({"algorithm_config_overrides_per_module": {"a": {}}}, "there is no such module"),
        ({"policies_to_train": ["b"]}, "there is no module 'b'"),
        ({"policies_to_train": 3}, "or a function f(module_id, batch)"),
        ({"policies_to_train": "default_policy"}, "expected a list of module ids"),
    ],
)
def test_modules_that_cannot_be_are_refused(settings, problem):
    assert problem in _problems(_ppo(**settings))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exploration_config", {"type": "StochasticSampling", "random_timesteps": 0}),
        ("policies", {"default_policy"}),
        ("policies_to_train", ["default_policy"]),
        ("gym_env_vectorize_mode", "sync"),
        ("num_gpus", 1),
        ("framework", "tf2"),
        ("policy_mapping_fn", lambda agent_id, episode: "default_policy"),
    ],
)
def test_what_asks_for_nothing_more_is_accepted(name, value):
    assert _problems(_ppo(**{name: value})) == ""


def test_settings_without_effect_are_accepted_and_read_back():
    for name, setting in UNUSED_SETTINGS.items():
        assert _problems(_ppo(**{name: setting.default})) == ""
        config = _ppo(**{name: "something"})
        assert config[name] == "something"
        assert name in config
        assert config.copy()[name] == "something"
        assert name not in config.to_dict()
        assert PPOConfig()[name] == setting.default
        problems = _problems(config)
        assert ("not offered in this version." in problems) is setting.is_refused
        assert bool(problems) is setting.is_refused


@pytest.mark.parametrize("mode", ["ASYNC", gym.VectorizeMode.ASYNC])
def test_envs_in_processes_of_their_own_are_refused_with_what_to_do(mode):
    assert "use more runners" in _problems(_ppo(gym_env_vectorize_mode=mode))


@pytest.mark.parametrize(
    ("fragment", "runners", "envs", "batch", "proposal"),
    [
        (200, 2, 1, 4000, None),  # 10 rounds of 400
        (2000, 2, 1, 4000, None),
        (1100, 0, 1, 1000, None),  # exactly a tenth more
        (1101, 0, 1, 1000, '1000 or "auto"'),
        (300, 2, 4, 2000, '250 or "auto"'),  # 2400 in one round
        (90, 1, 1, 1000, None),  # 12 rounds: 1080
        (66, 3, 1, 100, '34 or "auto"'),  # 33 would take two rounds
        (7, 3, 1, 10, '"auto"'),  # 21; one round of 4 is 12, too many as well
        (5, 8, 2, 8, '"auto"'),
        ("auto", 3, 1, 1000, None),
    ],
)
def test_fragments_that_overfill_the_train_batch_are_refused_with_a_proposal(
    fragment, runners, envs, batch, proposal
):
    config = _ppo(
        rollout_fragment_length=fragment,
        num_env_runners=runners,
        num_envs_per_env_runner=envs,
        train_batch_size=batch,
        minibatch_size=None,
    )
    if proposal is None:
        assert _problems(config) == ""
    else:
        assert f"Give rollout_fragment_length={proposal}." in _problems(config)


def test_more_envs_than_steps_in_a_train_batch_are_refused():
    config = _ppo(train_batch_size=3, num_env_runners=2, num_envs_per_env_runner=2)
    assert "4 envs sample, so some of them would have nothing to do" in _problems(config)
    config.minibatch_size = None
    config.train_batch_size = 4
    assert _problems(config) == ""


def test_rule_is_not_asked_about_settings_that_are_wrong_already():
    text = _problems(_ppo(num_env_runners="two", rollout_fragment_length=3000))
    assert "num_env_runners" in text
    assert "rollout_fragment_length" not in text


def test_cut_episodes_need_value_estimates():
    assert "use_gae=False" in _problems(_ppo(use_gae=False))
    assert _problems(_ppo(use_gae=False, batch_mode="complete_episodes")) == ""


def test_evaluation_may_cut_episodes_for_nothing_is_learnt_from_them():
    config = _ppo(use_gae=False, batch_mode="complete_episodes")
    config.evaluation(
        evaluation_interval=1,
        evaluation_duration=20,
        evaluation_duration_unit="timesteps",
        evaluation_config={"explore": False},
    )
    assert _problems(config) == ""


def test_advantages_from_values_need_a_critic():
    """It is told with the other problems, not by the learner that cannot be made."""
    text = _problems(_ppo(use_critic=False, lr=-1.0))
    assert "`use_gae=True`: it needs values, but `use_critic=False` learns none" in text
    assert "Give use_gae=False, too" in text
    assert "lr=-1.0" in text
    settings = {"use_gae": False, "batch_mode": "complete_episodes"}
    assert _problems(_ppo(use_critic=False, **settings)) == ""


@pytest.mark.parametrize(
    "model", [{"fcnet_hidden": [8]}, {"fcnet_hiddens": [0]}, {"fcnet_activation": "swoosh"}]
)
def test_model_config_of_the_ready_made_network_is_judged(model):
    assert "model_config" in _problems(_ppo(model=model))
    own = RLModuleSpec(module_class=RLModule)
    assert _problems(_ppo(model=model, rl_module_spec=own)) == ""


def test_model_config_may_be_the_dataclass():
    config = PPOConfig().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    assert config.model_config["fcnet_hiddens"] == [8]
    assert _problems(config) == ""


def test_evaluation_config_is_judged_as_a_config():
    told = "`gamma=7`: expected a number ≥ 0 and ≤ 1. See training()."
    config = PPOConfig().evaluation(evaluation_config={"gamma": 7, "explore": False})
    assert _problems(config) == f"evaluation_config: {told}"
    of_training = _ppo(gamma=7, evaluation_config={"explore": False})
    assert _problems(of_training) == told, "it is not repeated"


@pytest.mark.parametrize(
    "name", ["num_workers", "batch_mode", "rollout_fragment_length", "evaluation_duration"]
)
def test_evaluation_config_cannot_decide_what_evaluation_settings_decide(name):
    value = "complete_episodes" if name == "batch_mode" else 1
    assert "in evaluation this follows from" in _problems(_ppo(evaluation_config={name: value}))


@pytest.mark.parametrize("name", ["model", "model_config"])
def test_evaluation_config_cannot_ask_for_another_network(name):
    config = _ppo(model={"fcnet_hiddens": [8]}, evaluation_config={name: {"fcnet_hiddens": [4]}})
    assert _problems(config).startswith("evaluation_config: `model_config={'fcnet_hiddens': [4]}`")
    assert "so with its network" in _problems(config)
    same = _ppo(model={"fcnet_hiddens": [8]}, evaluation_config={name: {"fcnet_hiddens": [8]}})
    assert _problems(same) == ""


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.floats(0, 1)), min_size=1, unique_by=lambda p: p[0]
    )
)
def test_schedule_check_accepts_exactly_what_ascends_from_zero(pairs):
    ascending = [(0, 0.5), *sorted(pairs)]
    accepts = schedule(0).accepts
    assert accepts(ascending)
    assert not accepts(ascending[1:])
    assert not accepts(ascending[::-1])
    assert not accepts([(0, -0.5), *sorted(pairs)])


def test_checks_say_what_they_expect():
    assert integer(1).expected == "an int ≥ 1"
    assert number(0, maximum=1).expected == "a number ≥ 0 and ≤ 1"
    assert number(above=0).expected == "a number > 0"
    assert number().expected == "a number"


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["large", "small"])
@pytest.mark.parametrize("setting", ["lr", "gamma", "env", "evaluation_duration_unit"])
def test_integers_that_python_does_not_print_are_refused_like_others(setting, value):
    config = PPOConfig().environment("CartPole-v1")
    config.write_value(setting, value)
    with pytest.raises(ConfigError, match=rf"`{setting}=<int of 16,610 bits>`"):
        config.validate()
