"""What earlier versions saved names classes where they were then; it is found where it is now."""

from __future__ import annotations

import importlib.util
import pickle

import cloudpickle
import gymnasium
import pytest

from callbacks import EarlyStopping, NonFiniteGuard
from callbacks.chain import matched_states
from checkpoints import CodeNotAllowedError, encode
from checkpoints.moved_names import _moved, current_class, current_module, load_code
from trainer import RLModule
from trainer.envs.env_factory import make_env_factory
from trainer.exploration.strategies import EpsilonGreedy
from trainer.modules.actor_critic import PolicyModule
from trainer.name_resolution import stranger
from trainer.testing import CountdownEnv


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is gone as well
        return False


def test_every_module_of_the_table_is_gone_and_what_replaces_it_is_there() -> None:
    moved = _moved()
    assert len(moved) > 200
    assert [name for name in moved if _is_there(name)] == []
    assert [name for name in set(moved.values()) if not _is_there(name)] == []


@pytest.mark.parametrize(
    ("saved", "today"),
    [
        ("trainer.modules.policy_module.PolicyModule", "trainer.modules.actor_critic.PolicyModule"),
        (
            "callbacks.ready_made.early_stopping.EarlyStopping",
            "callbacks.ready_made.stopping.EarlyStopping",
        ),
        ("trainer.nn.mlp.A.B", "trainer.nn.layers.A.B"),
        ("trainer.errors.ConfigError", "trainer.errors.ConfigError"),
        ("my.callbacks.Mine", "my.callbacks.Mine"),
        ("Mine", "Mine"),
    ],
)
def test_a_class_is_found_where_it_is_today(saved: str, today: str) -> None:
    assert current_class(saved) == today


def test_pickled_code_refers_to_classes_where_they_were() -> None:
    old = pickle.dumps(EpsilonGreedy, protocol=0).replace(
        b"trainer.exploration.strategies", b"trainer.exploration.epsilon_greedy"
    )
    with pytest.raises(ModuleNotFoundError):
        cloudpickle.loads(old)
    assert load_code(old) is EpsilonGreedy
    assert current_module("trainer.exploration.epsilon_greedy") == EpsilonGreedy.__module__


def test_states_of_callbacks_and_modules_find_their_class() -> None:
    saved = [
        {"class": "callbacks.ready_made.early_stopping.EarlyStopping", "state": {"best": 1.0}},
        {"class": "callbacks.ready_made.no_such.Thing", "state": {}},
    ]
    names = [f"{cls.__module__}.{cls.__qualname__}" for cls in (NonFiniteGuard, EarlyStopping)]
    matches = matched_states(saved, names)
    assert matches.pairs == {1: {"best": 1.0}}
    assert matches.states_without_object == ("callbacks.ready_made.no_such.Thing",)


def test_a_module_saved_under_its_old_name_is_made_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = PolicyModule(
        observation_space=gymnasium.spaces.Box(-1, 1, (3,)),
        action_space=gymnasium.spaces.Discrete(2),
        model_config={},
    )
    with monkeypatch.context() as earlier:
        earlier.setattr(PolicyModule, "__module__", "trainer.modules.policy_module")
        path = module.save_to_path(f"{tmp_path}/module")
    restored = RLModule.from_checkpoint(path)
    assert type(restored) is PolicyModule
    assert encode(restored.get_state()) == encode(module.get_state())


def test_an_env_that_settings_name_by_its_old_path_is_found() -> None:
    name = "trainer.testing.debug_envs.CountdownEnv"
    assert make_env_factory(name, {}, source=stranger("")).create is CountdownEnv
    with pytest.raises(CodeNotAllowedError):
        make_env_factory("trainer.testing.faulty_envs.FailingEnv", {}, source=stranger(""))
