"""Mistakes in callbacks that would otherwise be silent, or show only when the event fires."""

import functools

import pytest

from callbacks import (
    CallbackChain,
    CallbackConfigError,
    CallbackSpec,
    DefaultCallbacks,
    MultiCallbacks,
    RLlibCallback,
    make_multi_callbacks,
)
from trainer import ConfigError, PPOConfig, UnknownSettingError


class Good(RLlibCallback):
    def on_episode_end(self, *, episode, **kwargs): ...


class Callable_:
    """A callable object; its `__call__` is what an event calls."""

    async def __call__(self, **kwargs): ...


def with_method(name, method):
    return type("Mine", (RLlibCallback,), {name: method})


async def asynchronous(*args, **kwargs): ...


async def asynchronous_generator(**kwargs):
    yield 1


def generator(*args, **kwargs):
    yield 1


def problem_of(classes=None, **functions):
    with pytest.raises(CallbackConfigError) as caught:
        CallbackSpec(classes, functions)
    (problem,) = caught.value.problems
    return problem


# ---- misspelt methods


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("on_episode_ends", "on_episode_end"),
        ("on_episodes_end", "on_episode_end"),
        ("onEpisodeEnd", "on_episode_end"),
        ("OnEpisodeEnd", "on_episode_end"),
        ("on__sample_end", "on_sample_end"),
        ("on_postprocess_traj", "on_postprocess_trajectory"),
        ("on_trian_result", "on_train_result"),
    ],
)
def test_a_misspelt_method_is_found_with_the_event_that_was_meant(name, event):
    cls = with_method(name, lambda self, **kwargs: None)
    for given in (cls, cls()):
        text = problem_of(given)
        assert f"`{name}`" in text
        assert f"did you mean `{event}`?" in text or name.lower() == event


@pytest.mark.parametrize("name", ["once", "only_once", "online_mean", "one_episode", "_on_end"])
def test_other_methods_may_have_any_name(name):
    assert CallbackSpec(with_method(name, lambda self: None))


# ---- methods that cannot be called as methods


def test_a_method_without_self_is_told_so():
    for method in (lambda: None, lambda *, episode: None, lambda **kwargs: None):
        cls = with_method("on_episode_end", method)
        for given in (cls, cls()):
            text = problem_of(given)
            assert "Mine.on_episode_end takes no `self`" in text
            assert "def on_episode_end(self, *, episode, **kwargs)" in text


@pytest.mark.parametrize(
    ("name", "method"),
    [("episode", lambda episode, **kwargs: None), ("worker", lambda worker, **kwargs: None)],
)
def test_an_argument_in_the_place_of_self_is_told_so(name, method):
    cls = with_method("on_episode_end", method)
    for given in (cls, cls()):
        assert f"has `{name}` where `self` is expected" in problem_of(given)


def test_self_may_have_another_name_or_be_part_of_the_rest():
    for method in (lambda this, **kwargs: None, lambda *args, **kwargs: None):
        assert CallbackSpec(with_method("on_episode_end", method))


def test_an_event_method_that_cannot_be_called_is_named():
    problem = problem_of(with_method("on_sample_end", "later"))
    assert "Mine.on_sample_end is the string 'later'" in problem
    assert "expected a method for the event" in problem


def test_none_switches_an_inherited_method_off():
    class Silent(Good):
        on_episode_end = None

    for given in (Silent, Silent()):
        assert not CallbackChain(CallbackSpec(given)).listens_to("on_episode_end")


# ---- calls that would run nothing


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (asynchronous, "`async`"),
        (asynchronous_generator, "`async`"),
        (functools.partial(asynchronous), "`async`"),
        (Callable_(), "`async`"),
        (generator, "a generator"),
        (functools.partial(generator), "a generator"),
        (lambda **kwargs: (yield), "a generator"),
    ],
)
def test_what_a_call_would_not_run_is_refused(function, word):
    text = problem_of(on_sample_end=function)
    assert word in text
    assert "would never run" in text


@pytest.mark.parametrize("wrap", [lambda f: f, staticmethod, classmethod])
@pytest.mark.parametrize(
    ("method", "word"), [(asynchronous, "`async`"), (generator, "a generator")]
)
def test_so_are_methods_of_this_kind(wrap, method, word):
    cls = with_method("on_train_result", wrap(method))
    for given in (cls, cls()):
        assert word in problem_of(given)


def test_a_function_that_makes_a_generator_inside_is_fine():
    assert CallbackSpec(None, {"on_sample_end": lambda **kwargs: sum(x for x in (1, 2))})


# ---- chains in chains


def test_chains_may_hold_chains_in_any_order():
    log = []

    def member(label):
        return type(label, (RLlibCallback,), {"on_sample_end": lambda self: log.append(label)})

    inner = make_multi_callbacks([member("b"), MultiCallbacks([member("c"), member("d")])])
    outer = MultiCallbacks([member("a"), inner, lambda: member("e")()])
    chain = CallbackChain(
        CallbackSpec([outer, member("f")], {"on_sample_end": lambda: log.append("g")})
    )
    chain.fire("on_sample_end", env_runner=1, metrics_logger=2, samples=3)
    assert log == list("abcdefg")


def test_members_of_nested_chains_keep_their_own_states():
    class Tally(DefaultCallbacks):
        def __init__(self):
            self.count = 0

    spec = CallbackSpec([MultiCallbacks([Tally, make_multi_callbacks([Tally])]), Tally])
    chain = CallbackChain(spec)

    def tallies(of):
        group = of.objects[0].chain
        return [group.objects[0], group.objects[1].chain.objects[0], of.objects[1]]

    for number, tally in enumerate(tallies(chain), start=5):
        tally.count = number
    restored = CallbackChain(spec)
    restored.set_state(chain.get_state())
    assert [tally.count for tally in tallies(restored)] == [5, 6, 7]


@pytest.mark.parametrize("chained", [make_multi_callbacks, MultiCallbacks])
def test_chaining_something_else_than_a_list_is_told(chained):
    with pytest.raises(CallbackConfigError, match="is the string 'Mine'"):
        chained("Mine")
    assert len(chained(Good)().chain.objects) == 1


def test_the_class_multi_callbacks_itself_is_no_callback():
    with pytest.raises(CallbackConfigError, match=r"lambda: MultiCallbacks\(callback_class_list="):
        CallbackSpec(MultiCallbacks)


def test_an_object_that_can_be_called_but_has_events_is_a_pattern():
    class Duck:
        def __call__(self):
            raise AssertionError("it is no factory")

        def on_sample_end(self): ...

    chain = CallbackChain(CallbackSpec(Duck()))
    assert isinstance(chain.objects[0], Duck)
    assert chain.listens_to("on_sample_end")


# ---- through the configuration


def base():
    return PPOConfig().environment("CartPole-v1")


@pytest.mark.parametrize("key", ["callbacks", "callbacks_class"])
@pytest.mark.parametrize(
    "given", [Good, [Good, Good], (Good,), Good(), lambda: Good(), MultiCallbacks([Good])]
)
def test_a_dict_config_takes_all_that_the_section_takes(key, given):
    config = base().update_from_dict({key: given})
    config.validate()
    spec = config.callback_spec()
    assert CallbackChain(spec).listens_to("on_episode_end")
    assert spec == base().callbacks(given).callback_spec()


def test_classes_and_functions_may_be_given_in_calls_of_their_own():
    log = []
    config = base().callbacks(Good).callbacks(on_sample_end=lambda: log.append("first"))
    config.callbacks(on_sample_end=[lambda: log.append("second")], on_train_result=None)
    spec = config.callback_spec()
    assert spec.classes == (Good,)
    CallbackChain(spec).fire("on_sample_end", env_runner=1, metrics_logger=2, samples=3)
    assert log == ["second"], "a later call replaces the functions of its events"
    assert not config.callbacks(None, on_sample_end=None).callback_spec()


def test_an_unknown_event_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownSettingError, match="on_episode_end`"):
        base().callbacks(onEpisodeEnd=lambda: None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("my.Callbacks", ["the string 'my.Callbacks'", "import the class"]),
        (with_method("on_episode_end", lambda **kwargs: None), ["`self`"]),
    ],
)
def test_what_is_wrong_is_told_by_validate(given, words):
    for config in (base().callbacks(given), base().update_from_dict({"callbacks": given})):
        with pytest.raises(ConfigError) as caught:
            config.validate()
        for word in words:
            assert word in str(caught.value)
