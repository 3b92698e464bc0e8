import pytest

from callbacks import (
    EVENTS,
    CallbackChain,
    CallbackConfigError,
    CallbackSpec,
    DefaultCallbacks,
    MultiCallbacks,
    RLlibCallback,
    make_multi_callbacks,
)

both = pytest.mark.parametrize("chained", [make_multi_callbacks, MultiCallbacks])


class First(DefaultCallbacks):
    def __init__(self):
        self.results = []

    def on_train_result(self, algorithm, result, **kwargs):
        self.results.append(("first", result, algorithm))


class Second(First):
    def on_train_result(self, result):
        self.results.append(("second", result))


class OldNames(DefaultCallbacks):
    def on_episode_end(self, *, worker, base_env, policies, episode, env_index):
        self.got = (worker, base_env, policies, episode, env_index)


def _arguments(event):
    return {name: name for name in EVENTS[event].arguments}


def test_what_chains_callbacks_is_a_class_or_poses_as_one():
    combined, posing = make_multi_callbacks([First, Second]), MultiCallbacks([First, Second])
    assert issubclass(combined, RLlibCallback)
    assert isinstance(combined(), combined)
    made = posing()
    assert isinstance(made, DefaultCallbacks)
    assert made is not posing()


@both
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_reaches_every_member_in_order(chained, event):
    log = []

    def member(label):
        def note(self, **kwargs):
            log.append((label, kwargs))

        return type(label, (RLlibCallback,), {event: note})

    chain = CallbackChain(CallbackSpec([chained([member("a"), member("b")]), member("c")]))
    arguments = _arguments(event)
    chain.fire(event, **arguments)
    assert log == [("a", arguments), ("b", arguments), ("c", arguments)]
    made = chained([member("d")])()
    getattr(made, event)(**arguments)
    assert log[-1] == ("d", arguments)


@both
def test_members_get_the_arguments_they_name_and_old_names(chained):
    chain = CallbackChain(CallbackSpec(chained([First, Second, OldNames])))
    chain.fire("on_train_result", **_arguments("on_train_result"))
    chain.fire("on_episode_end", **_arguments("on_episode_end"))
    first, second, old = chain.objects[0].chain.objects
    assert first.results == [("first", "result", "algorithm")]
    assert second.results == [("second", "result")]
    assert old.got == ("env_runner", "env", {"default_policy": "rl_module"}, "episode", "env_index")


@both
def test_events_without_a_member_that_listens_have_no_listener(chained):
    chain = CallbackChain(CallbackSpec(chained([First, Second])))
    assert {event for event in EVENTS if chain.listens_to(event)} == {"on_train_result"}
    assert len(chain.listeners("on_train_result")) == 2


@both
def test_a_subclass_or_group_overriding_an_event_is_called_itself(chained):
    made = chained([First])()

    class Louder(type(made)):
        def __init__(self):
            self.chain = made.chain
            self.before = []

        def on_train_result(self, **kwargs):
            self.before.append(kwargs["result"])
            super().on_train_result(**kwargs)

    chain = CallbackChain(CallbackSpec(Louder))
    chain.fire("on_train_result", algorithm=1, metrics_logger=2, result=3)
    assert chain.objects[0].before == [3]
    assert made.chain.objects[0].results == [("first", 3, 1)]


@both
def test_members_are_checked_when_they_are_chained(chained):
    class Misspelt(RLlibCallback):
        def on_episode_ends(self): ...

    with pytest.raises(CallbackConfigError, match="did you mean `on_episode_end`"):
        chained([First, Misspelt])
