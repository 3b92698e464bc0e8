"""Every way to say which env is meant, and what an env is told when it is made."""

import pickle
import sys

import cloudpickle
import gymnasium
import pytest
from gymnasium.envs.registration import register as register_gymnasium_id

from trainer import EnvContext, EnvCreationError, register_env
from trainer.envs import make_env_factory, packed_registrations, take_over_registrations
from trainer.envs.env_factory import registered_creator
from trainer.name_resolution import PROGRAM
from trainer.testing.envs import CorridorEnv, CountdownEnv


@pytest.fixture
def gymnasium_id():
    """An id that only this process knows, with a class as entry point."""
    name = "OnlyHere-v0"
    register_gymnasium_id(name, entry_point=lambda **settings: CountdownEnv(settings))
    yield name
    del gymnasium.registry[name]


class EnvWithoutArgument(CountdownEnv):
    def __init__(self):
        super().__init__({"max_length": 7})


class KeywordEnv(CountdownEnv):
    def __init__(self, **settings):
        super().__init__(settings)


def made(env, env_config=None, **place):
    return made_by(make_env_factory(env, env_config or {}, source=PROGRAM), **place)


def made_by(factory, **place):
    standard = {"worker_index": 2, "vector_index": 1, "num_workers": 3, "recreated_worker": False}
    return factory.make(**{**standard, **place})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (CountdownEnv, CountdownEnv),
        (lambda context: CorridorEnv(context), CorridorEnv),
        ("trainer.testing.envs.CorridorEnv", CorridorEnv),
        (EnvWithoutArgument, EnvWithoutArgument),
        (lambda: CountdownEnv({}), CountdownEnv),
    ],
    ids=["class", "lambda", "dotted path", "class without argument", "callable without argument"],
)
def test_callables_and_paths_make_envs(env, expected):
    assert type(made(env)[0]) is expected


def test_a_gymnasium_id_gets_env_config_as_keyword_arguments():
    env, context = made("CartPole-v1", {"sutton_barto_reward": True})
    assert env.spec.id == "CartPole-v1"
    assert env.spec.kwargs["sutton_barto_reward"] is True
    assert context == {"sutton_barto_reward": True}


def test_a_gymnasium_spec_makes_its_env():
    assert made(gymnasium.spec("CartPole-v1"))[0].spec.id == "CartPole-v1"


def test_an_id_that_only_this_process_knows_travels_as_its_spec(gymnasium_id):
    packed = cloudpickle.dumps(make_env_factory(gymnasium_id, {"max_length": 5}, source=PROGRAM))
    del gymnasium.registry[gymnasium_id]
    env, _ = made_by(pickle.loads(packed))
    assert env.unwrapped.max_length == 5
    gymnasium.registry[gymnasium_id] = env.spec


@pytest.fixture
def id_of_main(monkeypatch):
    """An id as scripts register it: its entry point is a name in `__main__`."""
    own = type("OfTheScript", (KeywordEnv,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "OfTheScript", own, raising=False)
    name = "OfTheScript-v0"
    register_gymnasium_id(name, entry_point="__main__:OfTheScript")
    yield name
    del gymnasium.registry[name]


def test_an_id_registered_with_a_class_of_the_script_travels_as_the_class(id_of_main, monkeypatch):
    packed = cloudpickle.dumps(make_env_factory(id_of_main, {"max_length": 5}, source=PROGRAM))
    monkeypatch.delattr(sys.modules["__main__"], "OfTheScript")  # as in a worker
    env, _ = made_by(cloudpickle.loads(packed))
    assert type(env.unwrapped).__name__ == "OfTheScript"
    assert env.unwrapped.max_length == 5
    assert gymnasium.spec(id_of_main).entry_point == "__main__:OfTheScript", "not ours to change"


def test_an_id_registered_with_a_class_that_is_not_there_is_told(id_of_main, monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "OfTheScript")
    with pytest.raises(
        EnvCreationError, match=r"there is no 'OfTheScript' in '__main__'. Pass the"
    ):
        make_env_factory(id_of_main, {}, source=PROGRAM)


def test_a_registered_name_makes_its_env_and_is_found_before_gymnasiums(monkeypatch):
    monkeypatch.setattr("trainer.envs.env_factory._CREATORS", {})
    assert made("CartPole-v1")[0].spec.id == "CartPole-v1"
    register_env("CartPole-v1", lambda context: CorridorEnv(context))
    assert type(made("CartPole-v1")[0]) is CorridorEnv
    register_env("CartPole-v1", lambda context: CountdownEnv(context))
    assert type(made("CartPole-v1")[0]) is CountdownEnv, "a name that is taken is given anew"


def test_a_registered_name_needs_no_registry_where_it_arrives(monkeypatch):
    monkeypatch.setattr("trainer.envs.env_factory._CREATORS", {})
    register_env("registered here", CorridorEnv)
    packed = cloudpickle.dumps(make_env_factory("registered here", {}, source=PROGRAM))
    monkeypatch.setattr("trainer.envs.env_factory._CREATORS", {})
    factory = pickle.loads(packed)
    assert registered_creator("registered here") is None
    assert factory.create is CorridorEnv
    assert factory.name == "registered here"


def test_registering_something_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"got a dict; expected a callable.*register_env\('mine'"):
        register_env("mine", {})


def test_every_sub_env_gets_a_context_of_its_own_with_its_place():
    env_config = {"nested": {"a": [1]}}
    seen = []

    def create(context):
        seen.append(context)
        context["nested"]["a"].append(2)
        return CountdownEnv()

    made(create, env_config, vector_index=0, recreated_worker=True)
    made(create, env_config, vector_index=1)
    assert [(c.worker_index, c.vector_index, c.num_workers, c.recreated_worker) for c in seen] == [
        (2, 0, 3, True),
        (2, 1, 3, False),
    ]
    assert [c["nested"]["a"] for c in seen] == [[1, 2], [1, 2]]
    assert env_config == {"nested": {"a": [1]}}


def test_a_context_keeps_its_place_when_it_is_copied_or_pickled():
    context = EnvContext({"a": 1}, 2, 3, True, 4, True, is_evaluation=True, unique_index=5)
    for other in (context.copy_with_overrides(), pickle.loads(pickle.dumps(context))):
        assert other == {"a": 1}
        assert vars(other) == vars(context)
    moved = context.copy_with_overrides({"b": 2}, vector_index=0)
    assert (moved, moved.vector_index, moved.worker_index) == ({"b": 2}, 0, 2)
    context.set_defaults({"a": 9, "c": 3})
    assert context == {"a": 1, "c": 3}
    assert "worker=2/4" in str(context)
    assert "is_evaluation=True, unique_index=5" in str(context)
    with pytest.raises(TypeError, match="has no worker; it has worker_index"):
        context.copy_with_overrides(worker=1)


class RaisingEnv(CountdownEnv):
    def __init__(self, env_config):
        raise OSError("no such level")


@pytest.mark.parametrize(
    ("env", "env_config", "expected"),
    [
        ("CartPol-v1", {}, r"'CartPol-v1' is not known. Did you mean 'CartPole-v1'.*Accepted are"),
        ("no.such.module.Env", {}, r"could not be imported: No module named 'no'.*Accepted are"),
        (17, {}, r"env=17 is a int. Accepted are: a gymnasium id"),
        (RaisingEnv, {"level": 4}, r"Could not make env 'RaisingEnv' of env runner 2, sub-env 1: "
         r"OSError: no such level. It was given env_config=\{'level': 4\}"),
        (lambda context: "env", {}, r"returned a str; expected a gymnasium.Env. Derive the class"),
        ("CartPole-v1", {"colour": 1}, r"Could not make env 'CartPole-v1'.*colour"),
    ],
    ids=["misspelt", "no module", "number", "raises", "no env", "unknown argument"],
)  # fmt: skip
def test_what_means_no_env_is_told_with_what_would(env, env_config, expected):
    with pytest.raises(EnvCreationError, match=expected):
        made(env, env_config)


def test_the_error_of_a_creator_is_the_cause():
    with pytest.raises(EnvCreationError) as raised:
        made(RaisingEnv)
    assert isinstance(raised.value.__cause__, OSError)


def _creator_with_defaults(context=None):
    assert isinstance(context, EnvContext), "an optional argument gets the context, too"
    return CountdownEnv(context)


class _CallableObject:
    def __call__(self, context):
        return CountdownEnv(context)


@pytest.mark.parametrize(
    ("create", "name"),
    [(_creator_with_defaults, "_creator_with_defaults"), (_CallableObject(), "_CallableObject")],
)
def test_creators_are_called_by_name_in_messages(create, name):
    assert make_env_factory(create, {}, source=PROGRAM).name == name
    assert made(create, {"min_length": 4})[0].min_length == 4


def _not_here():
    raise ModuleNotFoundError("No module named 'elsewhere'")


class _OfAModuleThatIsNotHere:
    """An entry point that can be packed, and not unpacked."""

    def __reduce__(self):
        return _not_here, ()

    def __call__(self, **_):
        return CountdownEnv()


def test_a_registration_that_cannot_be_loaded_spoils_no_other_one():
    ids = ("Elsewhere-v0", "Here-v0")
    try:
        points = [_OfAModuleThatIsNotHere(), CountdownEnv]
        for env_id, point in zip(ids, points, strict=True):
            gymnasium.register(env_id, entry_point=point)
        packed = packed_registrations()
        for env_id in ids:
            del gymnasium.registry[env_id]
        take_over_registrations(packed)
        assert isinstance(gymnasium.make("Here-v0").unwrapped, CountdownEnv)
        with pytest.raises(EnvCreationError, match=r"Elsewhere-v0.*No module named 'elsewhere'"):
            gymnasium.make("Elsewhere-v0")
    finally:
        for env_id in ids:
            gymnasium.registry.pop(env_id, None)
