"""A config as a dict: round trips, dict configs, item access, state, comparison, repr."""

import copy
import itertools
import pickle

import pytest

from callbacks import RLlibCallback
from tests.unit.test_config_values import Env, busy_config
from trainer.algorithms.ppo.ppo import PPOConfig
from trainer.config import AlgorithmConfig
from trainer.config.settings import is_plain_data
from trainer.errors import ConfigError, UnknownSettingError


def test_dict_round_trip():
    config = busy_config()
    assert PPOConfig.from_dict(config.to_dict()) == config
    assert set(config.to_dict()) == set(config) == set(config.keys())
    assert dict(config.items()).keys() == config.keys()
    assert len(list(config.values())) == len(list(config.keys()))
    assert {**config}["gamma"] == 0.99


def test_order_of_a_dict_config_makes_no_difference():
    entries = {
        "env_config": {"a": 1},
        "model": {"fcnet_hiddens": [4]},
        "vf_share_layers": True,
        "lr_schedule": [[0, 1], [1, 2]],
        "lr": 0.1,
        "evaluation_config": {"num_sgd_iter": 2, "env_config": {"b": 1}},
        "multiagent": {"policies": {"default_policy"}},
    }
    orders = itertools.islice(itertools.permutations(entries.items()), 0, None, 97)
    configs = [PPOConfig.from_dict(dict(order)) for order in orders]
    assert all(config == configs[0] for config in configs)
    assert configs[0].model_config == {"vf_share_layers": True, "fcnet_hiddens": [4]}
    assert configs[0].evaluation_config == {"num_epochs": 2, "env_config": {"b": 1}}
    assert configs[0].policies == {"default_policy"}


def test_caller_dict_is_not_changed():
    def fresh():
        return {
            "num_workers": 1,
            "env_config": {"a": {"b": 1}},
            "exploration_config": {"type": "StochasticSampling"},
            "evaluation_config": {"num_workers": 3, "env_config": {"a": {"c": 1}}},
            "multiagent": {"policies": ["default_policy"]},
            "model": {"fcnet_hiddens": [4]},
        }

    config_dict = fresh()
    config = PPOConfig.from_dict(config_dict)
    config.env_config["a"]["b"] = 2
    config.evaluation_config["env_config"]["a"]["c"] = 2
    config.model_config["fcnet_hiddens"].append(2)
    config.update_from_dict({"env_config": {"a": {"z": 1}}})
    assert config_dict == fresh()


@pytest.mark.parametrize(
    "config_dict",
    [
        {"env": Env, "env_task_fn": print},
        {"num_gpus": 0, "num_workers": 2},
        {"exploration_config": {"type": "StochasticSampling", "constructor_arg": "value"}},
        {"custom_eval_function": print, "callbacks": Env},
        {"ignore_worker_failures": True, "recreate_failed_workers": True},
    ],
)
def test_dict_configs_of_the_old_documentation_are_understood(config_dict):
    config = PPOConfig.from_dict(config_dict)
    for key, value in config_dict.items():
        assert config[key] == value


def test_multiagent_entries_are_checked():
    config = PPOConfig.from_dict({"multiagent": {"count_steps_by": "agent_steps"}})
    assert config.count_steps_by == "agent_steps"
    config["multiagent"] = {"policies": {"a": None}}
    assert config.is_multi_agent
    assert not PPOConfig().is_multi_agent


def test_pop_gives_the_value_and_sets_the_default_again():
    config = PPOConfig().training(num_sgd_iter=3, vf_share_layers=True)
    assert config.pop("num_sgd_iter") == 3
    assert config.num_epochs == 30
    assert config.pop("vf_share_layers") is True
    assert config.vf_share_layers is False
    assert config.pop("nothing", 1) == 1
    with pytest.raises(ConfigError, match="cannot be deleted"):
        del config.gamma


def test_repr_shows_what_differs_from_the_defaults():
    config = PPOConfig().training(lr=0.1, gamma=0.99)
    assert repr(config) == "PPOConfig(lr=0.1)"
    assert config.changed_settings() == {"lr": 0.1}
    assert config.given_settings() == {"lr": 0.1, "gamma": 0.99}
    assert repr(PPOConfig()) == "PPOConfig()"
    long = repr(busy_config())
    assert long.startswith("PPOConfig(\n    env=")
    assert long.endswith(",\n)")


def test_equality_is_of_class_and_values():
    assert PPOConfig() != AlgorithmConfig()
    assert PPOConfig() != {}
    assert PPOConfig().training(gamma=0.99) == PPOConfig()
    with pytest.raises(TypeError, match="unhashable"):
        hash(PPOConfig())


# ---- state


def test_state_holds_data_and_names_code():
    config = busy_config().callbacks(on_sample_end=print)
    config.env_runners(num_env_runners=5)
    state = config.get_state()
    assert state["class"] == "PPOConfig"
    assert state["code"] == config.names_of_code() == ["env", "callbacks_on_sample_end"]
    assert is_plain_data(state)
    assert state["settings"]["num_env_runners"] == 5
    code = {"env": Env, "on_sample_end": print}
    with pytest.raises(ConfigError, match="`callbacks_on_sample_end`"):
        PPOConfig.from_state(state, code={"env": Env})
    again = PPOConfig.from_state(state, code={"env": code["env"], "callbacks_on_sample_end": print})
    assert again == config


def test_settings_given_to_from_state_win():
    state = PPOConfig().environment("CartPole-v1").get_state()
    again = PPOConfig.from_state(state, code={"env": Env, "num_workers": 0})
    assert (again.env, again.num_env_runners) == (Env, 0)


def test_old_names_read_and_write_what_to_dict_gives():
    given = PPOConfig().env_runners(num_env_runners=3).to_dict()
    given["num_workers"] = 0
    given["model"] = {"fcnet_hiddens": [8]}
    given["vf_share_layers"] = True
    assert given["num_env_runners"] == given["num_workers"] == given.get("num_workers") == 0
    assert given["model"] is given["model_config"]
    assert given["callbacks"] is None
    assert "callbacks" in given
    given.update(callbacks=RLlibCallback)
    assert given["callbacks_class"] is RLlibCallback
    assert given["multiagent"]["policies"] == {"default_policy": None}
    given["multiagent"] = {"policies": {"a": None}}
    assert given["policies"] == {"a": None}
    assert given.pop("multiagent", "gone") == "gone"
    assert given.setdefault("lr_schedule", [[0, 1.0], [1, 0.0]]) is None
    assert given.copy()["num_workers"] == copy.deepcopy(given)["num_workers"] == 0
    assert "policies" in given
    del given["policies"]
    made = PPOConfig().update_from_dict(given)
    assert made.num_env_runners == 0
    assert made.model_config == {"fcnet_hiddens": [8], "vf_share_layers": True}
    plain = pickle.loads(pickle.dumps(given))
    assert type(plain) is dict
    assert plain == given
    with pytest.raises(KeyError):
        given["num_wrkers"]
    given["num_wrkers"] = 1
    with pytest.raises(UnknownSettingError, match="num_wrkers"):
        PPOConfig().update_from_dict(given)


def test_an_old_name_wins_over_a_default_that_merely_stands_in_a_whole_dict():
    plain = dict(PPOConfig().to_dict())
    plain["num_workers"] = 7
    for given in (plain, dict(reversed(plain.items()))):
        assert PPOConfig().update_from_dict(given).num_env_runners == 7
    changed = {**PPOConfig().env_runners(num_env_runners=5).to_dict(), "num_workers": 7}
    with pytest.raises(ConfigError, match="two names of one setting"):
        PPOConfig().update_from_dict(changed)


def test_two_names_of_a_setting_without_effect_may_differ():
    given = {"_enable_learner_api": False, "_enable_rl_module_api": True}
    config = PPOConfig().update_from_dict(given)
    config.experimental(_enable_new_api_stack=False)
    config.rl_module(_enable_rl_module_api=True).training(_enable_learner_api=False)
    config.validate()
