import functools

import pytest

from callbacks import EVENTS
from callbacks.spec import SignatureProblem, listener_for

EVENT = "on_train_result"
FIRED = {"algorithm": "A", "metrics_logger": "M", "result": "R"}


class Recorder:
    """Has one callable of every form; each stores what it was given in `seen`."""

    def __init__(self):
        self.seen = []

    def positional_style(self, algorithm, result, **kwargs):
        self.seen.append({"algorithm": algorithm, "result": result, **kwargs})

    def one(self, *, result):
        self.seen.append({"result": result})

    def __call__(self, metrics_logger):
        self.seen.append({"metrics_logger": metrics_logger})


def _logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def _fire(callback, event=EVENT, **fired):
    return listener_for(callback, event)(**(fired or FIRED))


@pytest.mark.parametrize(
    ("callback", "given"),
    [
        (lambda result: result, "R"),
        (lambda result, algorithm: (algorithm, result), ("A", "R")),
        (lambda: "nothing", "nothing"),
        (lambda **kw: kw, FIRED),
        (lambda result, **kw: (result, kw), ("R", {"algorithm": "A", "metrics_logger": "M"})),
        # Old names are given to those alone who name them.
        (lambda trainer: trainer, "A"),
        (lambda trainer, **kw: (trainer, kw), ("A", FIRED)),
        (lambda trainer, result: (trainer, result), ("A", "R")),
        (lambda trainer=None, **kw: trainer, "A"),
        (lambda result, times=3: (result, times), ("R", 3)),  # a parameter of the user's own
    ],
)
def test_a_function_gets_just_the_arguments_it_names(callback, given):
    assert _fire(callback) == given


def test_a_callable_that_takes_everything_is_not_wrapped():
    def with_kwargs(result, **kwargs): ...

    def with_all(algorithm, metrics_logger, result): ...

    assert listener_for(with_kwargs, EVENT) is with_kwargs
    assert listener_for(with_all, EVENT) is with_all


def test_every_form_of_callable_is_understood():
    recorder = Recorder()
    for callback in (recorder.positional_style, recorder.one, recorder, _logged(recorder.one)):
        _fire(callback)
    assert recorder.seen == [FIRED, {"result": "R"}, {"metrics_logger": "M"}, {"result": "R"}]


def test_partials_keep_what_they_fix():
    def note(store, result, *, times):
        store.extend([result] * times)

    store = []
    _fire(functools.partial(note, store, times=2))
    assert store == ["R", "R"]


def test_static_and_class_methods_are_understood():
    class Tools:
        @staticmethod
        def static(result):
            return result

        @classmethod
        def of_class(cls, algorithm):
            return (cls, algorithm)

    assert _fire(Tools.static) == "R"
    assert _fire(Tools.of_class) == (Tools, "A")


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        (lambda reslt: None, ["requires `reslt`", "did you mean `result`?", "on_train_result(*,"]),
        (lambda banana, **kwargs: None, ["requires `banana`", "on_train_result(*, algorithm"]),
        (lambda result, /: None, ["`result` by position only", "remove the `/`"]),
        (lambda *args: None, ["by position only", "lambda **kwargs"]),
        ([].append, ["by position only"]),
        (dict, ["lambda **kwargs"]),
    ],
)  # fmt: skip
def test_a_callable_that_cannot_take_the_event_is_refused_with_advice(callback, words):
    with pytest.raises(SignatureProblem) as caught:
        listener_for(callback, EVENT)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_gives_each_argument_and_each_old_name_by_itself(event):
    """A function for every single name of the event, made at run time, gets just that value."""
    entry = EVENTS[event]
    fired = {name: object() for name in entry.arguments}
    if event == "on_postprocess_trajectory":
        fired["agent_id"], fired["policy_id"] = 1, "p"
        fired["original_batches"] = {1: ("p", "module", "before")}
        fired["policies"] = {"p": "module"}
    for name in (*entry.arguments, *entry.old_arguments):
        callback = eval(f"lambda {name}: {name}")
        derive = entry.old_arguments.get(name)
        expected = fired[name] if derive is None else derive(fired)
        assert _fire(callback, event, **fired) == expected
