import copy
import functools
import pickle
from types import SimpleNamespace

import pytest

from callbacks import (
    EVENTS,
    CallbackChain,
    CallbackConfigError,
    CallbackError,
    CallbackSpec,
    RLlibCallback,
)


def _arguments(event):
    return {name: name for name in EVENTS[event].arguments}


class EpisodeReturn(RLlibCallback):
    """As in the documentation: no super().__init__()."""

    def __init__(self):
        self.overall_sum_of_rewards = 0.0

    def on_episode_end(self, *, episode, **kwargs):
        self.overall_sum_of_rewards += episode.get_return()


class Failing(RLlibCallback):
    def on_episode_step(self, *, episode, **kwargs):
        raise ZeroDivisionError("division by zero")


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__("only one argument")


def test_a_method_that_nobody_overrode_is_no_listener():
    chain = CallbackChain(CallbackSpec([RLlibCallback, EpisodeReturn]))
    assert {event for event in EVENTS if chain.listens_to(event)} == {"on_episode_end"}
    assert chain.listeners("on_episode_step") == ()
    assert chain.emitter("on_episode_step") is None
    chain.fire("on_episode_step", **_arguments("on_episode_step"))


def test_a_method_set_on_the_object_is_a_listener_and_none_switches_it_off():
    class Chosen(EpisodeReturn):
        def __init__(self):
            super().__init__()
            self.on_sample_end = lambda samples: self.__dict__.update(got=samples)
            self.on_episode_end = None

    chain = CallbackChain(CallbackSpec(Chosen))
    chain.fire("on_sample_end", **_arguments("on_sample_end"))
    assert chain.objects[0].got == "samples"
    assert not chain.listens_to("on_episode_end")


def test_super_may_be_called_with_whatever_arguments_an_override_has():
    class Child(RLlibCallback):
        def on_episode_end(self, *, episode, worker, **kwargs):
            super().on_episode_end(episode=episode, **kwargs)
            super().on_episode_end(worker=worker)

    CallbackChain(CallbackSpec(Child)).fire("on_episode_end", **_arguments("on_episode_end"))


def test_unknown_events_and_wrong_arguments_of_the_engine_are_refused():
    chain = CallbackChain(CallbackSpec())
    for ask in (chain.listeners, chain.listens_to, chain.emitter, chain.fire):
        with pytest.raises(ValueError, match="did you mean `on_sample_end`"):
            ask("on_sample_ends")
    with pytest.raises(TypeError, match="exactly env_runner, metrics_logger, samples"):
        chain.fire("on_sample_end", samples=[])


def test_each_chain_has_its_own_objects_even_of_a_given_instance():
    pattern = EpisodeReturn()
    pattern.overall_sum_of_rewards = 3.0
    spec = CallbackSpec([pattern, EpisodeReturn])
    first, second = CallbackChain(spec), CallbackChain(spec)
    first.objects[0].overall_sum_of_rewards += 1
    assert [o.overall_sum_of_rewards for o in first.objects] == [4.0, 0.0]
    assert [o.overall_sum_of_rewards for o in second.objects] == [3.0, 0.0]
    assert pattern.overall_sum_of_rewards == 3.0


def test_an_instance_that_cannot_be_copied_is_named_with_a_way_out():
    pattern = EpisodeReturn()
    pattern.stream = (number for number in range(3))
    with pytest.raises(CallbackConfigError, match=r"lambda: EpisodeReturn\(\.\.\.\)"):
        CallbackChain(CallbackSpec(pattern))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, r"returned None.*expected a callback object.*`on_episode_end=\.\.\.`"),
        (EpisodeReturn, "expected a callback object"),
        (3, "expected a callback object"),
    ],
)
def test_a_factory_has_to_return_a_callback_object(made, words):
    with pytest.raises(CallbackConfigError, match=words):
        CallbackChain(CallbackSpec(lambda **kwargs: made))


def test_objects_of_factories_are_checked_when_they_are_made():
    class Misspelt(RLlibCallback):
        def on_episode_ends(self): ...

    spec = CallbackSpec(lambda: Misspelt())
    with pytest.raises(CallbackConfigError, match="did you mean `on_episode_end`"):
        CallbackChain(spec)


@pytest.mark.parametrize("error", [KeyError("token"), SystemExit("token")])
def test_an_init_that_raises_or_exits_is_named_and_keeps_its_cause(error):
    class Broken(RLlibCallback):
        def __init__(self):
            raise error

    with pytest.raises(CallbackError) as caught:
        CallbackChain(CallbackSpec(Broken), where="env runner 1")
    name = type(error).__name__
    assert f"`Broken()` raised {name}: {error} while callback objects" in str(caught.value)
    assert "env runner 1" in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("through", ["fire", "emitter"])
def test_a_raising_callback_is_named_with_event_place_and_cause(through):
    later = []
    spec = CallbackSpec(Failing, {"on_episode_step": lambda **kw: later.append(1)})
    chain = CallbackChain(spec, where="env runner 2")
    arguments = {**_arguments("on_episode_step"), "env_index": 3}
    arguments["episode"] = SimpleNamespace(id_="abc")
    emit = chain.emitter("on_episode_step")
    if through == "fire":
        emit = functools.partial(chain.fire, "on_episode_step")
    with pytest.raises(CallbackError) as caught:
        emit(**arguments)
    error = caught.value
    assert (error.callback, error.event) == ("Failing.on_episode_step", "on_episode_step")
    assert error.where == "env runner 2, env_index 3, episode abc"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.original is error.__cause__
    assert "raised ZeroDivisionError: division by zero while `on_episode_step` fired" in str(error)
    assert later == []


def test_a_raising_function_is_named_by_position_and_line():
    spec = CallbackSpec(None, {"on_sample_end": [lambda: None, lambda samples: samples[9]]})
    with pytest.raises(CallbackError, match=r"on_sample_end\[1\] <lambda at test_callbacks_chain"):
        CallbackChain(spec).fire("on_sample_end", env_runner=1, metrics_logger=2, samples=[])


def test_an_interrupt_passes_unchanged():
    def interrupted():
        raise KeyboardInterrupt

    chain = CallbackChain(CallbackSpec(None, {"on_sample_end": interrupted}))
    with pytest.raises(KeyboardInterrupt):
        chain.fire("on_sample_end", **_arguments("on_sample_end"))


def test_the_error_of_a_callback_inside_a_callback_stays_as_it_is():
    inner = CallbackChain(CallbackSpec(Failing))

    def outer():
        inner.fire("on_episode_step", **_arguments("on_episode_step"))

    chain = CallbackChain(CallbackSpec(None, {"on_train_result": outer}))
    with pytest.raises(CallbackError) as caught:
        chain.fire("on_train_result", **_arguments("on_train_result"))
    assert caught.value.callback == "Failing.on_episode_step"


def _raised(chain, event):
    with pytest.raises(CallbackError) as caught:
        chain.fire(event, **_arguments(event))
    return caught.value


@pytest.mark.parametrize("cause", [ZeroDivisionError("no"), SystemExit("no")])
def test_an_error_or_exit_crosses_a_process_border_with_cause_and_traceback(cause):
    def failing():
        raise cause

    chain = CallbackChain(CallbackSpec(None, {"on_sample_end": failing}), where="env runner 1")
    error = _raised(chain, "on_sample_end")
    arrived = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert isinstance(arrived, CallbackError)
    assert str(arrived).startswith(str(error))
    assert f"raised {type(cause).__name__}: no while `on_sample_end` fired" in str(error)
    assert "raise cause" in str(arrived)
    assert type(arrived.__cause__) is type(arrived.original) is type(cause)
    assert arrived.where == error.where


def test_a_cause_that_cannot_travel_leaves_its_text():
    def fails():
        raise Unpicklable(1, 2)

    error = _raised(CallbackChain(CallbackSpec(None, {"on_sample_end": fails})), "on_sample_end")
    arrived = pickle.loads(pickle.dumps(error))
    assert arrived.original is None
    assert "Unpicklable: only one argument" in str(arrived)


def test_a_copied_chain_listens_with_its_own_objects():
    chain = CallbackChain(CallbackSpec(EpisodeReturn))
    copied = copy.deepcopy(chain)
    episode = SimpleNamespace(id_="e", get_return=lambda: 1.0)
    copied.fire("on_episode_end", **{**_arguments("on_episode_end"), "episode": episode})
    assert copied.objects[0].overall_sum_of_rewards == 1.0
    assert chain.objects[0].overall_sum_of_rewards == 0.0
