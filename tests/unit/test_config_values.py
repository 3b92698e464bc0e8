"""Values: copies are independent, and a frozen config is frozen down to its last list."""

import copy
import pickle

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.ppo.ppo import PPOConfig
from trainer.config import FrozenConfigError, NotProvided
from trainer.config.settings import copy_value, deep_merge, freeze_value, is_plain_data
from trainer.errors import ConfigError
from trainer_toolkit.trees import same


class Env:
    pass


def busy_config():
    return (
        PPOConfig()
        .environment(Env, env_config={"a": {"b": [1, {"c": 2}]}, "n": np.arange(3)})
        .training(lr=[[0, 1e-3], [10, 1e-4]], model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_interval=2, evaluation_config={"env_config": {"a": {"x": 1}}})
    )


# ---- copies


@pytest.mark.parametrize("make", [PPOConfig.copy, copy.copy, copy.deepcopy])
def test_a_copy_shares_no_container(make):
    config = busy_config()
    copied = make(config)
    assert copied == config
    copied.env_config["a"]["b"][1]["c"] = 3
    copied.env_config["n"][0] = 9
    copied.lr[0][1] = 5.0
    copied.model_config["fcnet_hiddens"].append(4)
    assert config == busy_config()
    assert copied != config


def _to_first(agent_id, episode, **_):
    return "first"


def _to_second(agent_id, episode, **_):
    return "second"


def test_configs_with_different_functions_are_different():
    def config(function):
        return PPOConfig().multi_agent(policy_mapping_fn=function)

    assert config(_to_first) == config(_to_first) == config(_to_first).copy()
    assert config(_to_first) != config(_to_second)
    one, other = (PPOConfig().callbacks(on_episode_end=f) for f in (_to_first, _to_second))
    assert one != other


def test_config_keeps_its_own_copy_of_what_it_was_given():
    given_config = {"a": {"b": [1]}}
    config = PPOConfig().environment(env_config=given_config)
    config.env_config["a"]["b"].append(2)
    assert given_config == {"a": {"b": [1]}}
    config.env_config = given_config
    given_config["a"]["b"].append(3)
    assert config.env_config == {"a": {"b": [1]}}


def test_defaults_cannot_be_changed_through_a_config():
    PPOConfig().env_config["a"] = 1
    PPOConfig().model_config["fcnet_hiddens"] = [1]
    assert PPOConfig().env_config == {}
    assert PPOConfig().model_config == {"vf_share_layers": False}


def test_changing_a_dict_in_place_changes_the_config():
    config = PPOConfig()
    config.model["fcnet_hiddens"] = [4]
    config["env_config"]["a"] = 1
    assert config.model_config["fcnet_hiddens"] == [4]
    assert config.env_config == {"a": 1}


@pytest.mark.parametrize(
    ("was_frozen", "argument", "is_frozen"),
    [
        (False, None, False),
        (False, True, True),
        (True, None, True),
        (True, False, False),
        (True, True, True),
    ],
)
def test_copy_is_frozen_as_asked(was_frozen, argument, is_frozen):
    config = busy_config()
    if was_frozen:
        config.freeze()
    copied = config.copy(copy_frozen=argument)
    assert copied.is_frozen is is_frozen
    assert config.is_frozen is was_frozen
    assert copied == config


# ---- frozen


def _change(value):
    """Change the innermost container."""
    if isinstance(value, dict):
        value["new"] = 1
    elif isinstance(value, list):
        value.append(1)
    else:
        value[0] = 1


def test_frozen_config_refuses_changes_on_every_level():
    config = busy_config()
    config.freeze()
    changes = {
        "attribute": lambda: setattr(config, "gamma", 0.5),
        "old attribute": lambda: setattr(config, "num_workers", 5),
        "item": lambda: config.__setitem__("gamma", 0.5),
        "section": lambda: config.training(gamma=0.5),
        "dict": lambda: config.update_from_dict({"gamma": 0.5}),
        "pop": lambda: config.pop("gamma"),
        "algo_class": lambda: setattr(config, "algo_class", object),
        "dict value": lambda: _change(config.env_config),
        "inner dict": lambda: _change(config.env_config["a"]["b"][1]),
        "inner list": lambda: _change(config.env_config["a"]["b"]),
        "schedule": lambda: _change(config.lr),
        "inner schedule": lambda: _change(config.lr[0]),
        "unset default": lambda: _change(config.exploration_config),
        "evaluation": lambda: _change(config.evaluation_config["env_config"]["a"]),
    }
    for name, change in changes.items():
        with pytest.raises(FrozenConfigError, match="copy_frozen=False") as caught:
            change()
        assert isinstance(caught.value, AttributeError), "as of any read-only attribute"
        assert isinstance(caught.value, ConfigError)
        assert config == busy_config(), name
    with pytest.raises(ValueError, match="read-only"):
        _change(config.env_config["n"])


def test_reading_a_frozen_config_works_as_before():
    config = busy_config()
    config.freeze()
    config.freeze()
    assert config.env_config["a"] == {"b": [1, {"c": 2}]}
    assert isinstance(config.env_config, dict)
    thawed = config.to_dict()
    thawed["env_config"]["a"]["b"].append(1)
    assert type(thawed["env_config"]) is dict


@pytest.mark.parametrize("module", [pickle, cloudpickle])
def test_frozen_config_travels_and_stays_frozen(module):
    config = busy_config()
    config.freeze()
    arrived = pickle.loads(module.dumps(config))
    assert arrived == config
    with pytest.raises(FrozenConfigError):
        arrived.env_config["a"]["b"].append(1)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)
_DICTS = st.dictionaries(st.text(max_size=1), _TREES, max_size=3)


@given(_TREES)
def test_freezing_and_copying_keep_values_and_types(value):
    thawed = copy_value(freeze_value(value))
    assert same(thawed, value)
    assert type(thawed) is type(value)
    assert is_plain_data(value)


@given(_DICTS, _DICTS, _DICTS)
def test_deep_merge_lays_the_new_over_the_old(first, second, third):
    assert same(deep_merge(first, {}), first)
    assert same(deep_merge({}, first), first)
    assert same(deep_merge(first, first), first)
    merged = deep_merge(first, second)
    assert merged.keys() == first.keys() | second.keys()
    assert same(deep_merge(merged, second), merged)
    assert set(deep_merge(merged, third)) == set(deep_merge(first, deep_merge(second, third)))


def test_code_is_no_plain_data():
    assert not is_plain_data([object])
    assert not is_plain_data(np.array([None]))


def test_not_provided_is_one_object_everywhere():
    assert pickle.loads(pickle.dumps(NotProvided)) is NotProvided
    assert not NotProvided
    assert repr(NotProvided) == "NotProvided"
