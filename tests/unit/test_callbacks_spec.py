import abc
import pickle
from collections import deque

import pytest

from callbacks import CallbackConfigError, CallbackSpec, RLlibCallback


class Counter(RLlibCallback):
    def __init__(self, start=0):
        self.count = start

    def on_episode_end(self, *, episode, **kwargs):
        self.count += 1


class NeedsName(RLlibCallback):
    def __init__(self, name, size):
        self.name = name


class Misspelt(RLlibCallback):
    def on_episode_ends(self, **kwargs): ...

    def on_trian_result(self, **kwargs): ...


class Unfit(RLlibCallback):
    def on_episode_step(self, *, episod, **kwargs): ...


class Duck:
    """No RLlibCallback, but it has the method of an event."""

    def on_sample_end(self, samples): ...


class Abstract(RLlibCallback, abc.ABC):
    @abc.abstractmethod
    def name(self): ...


class NothingToCall:
    pass


def make_counter():
    return Counter()


def note_result(result): ...


def _problems(classes=None, **functions):
    with pytest.raises(CallbackConfigError) as caught:
        CallbackSpec(classes, functions)
    return caught.value.problems


def test_nothing_configured_is_an_empty_spec():
    spec = CallbackSpec(None, {"on_train_result": None, "on_sample_end": []})
    assert not spec
    assert spec.classes == ()
    assert dict(spec.functions) == {}


@pytest.mark.parametrize("given", [Counter, Duck, make_counter, lambda: Counter(3), Counter(5)])
def test_one_class_factory_or_object_is_accepted_alone_and_in_a_list(given):
    assert CallbackSpec(given).classes == (given,)
    assert CallbackSpec([given, Counter]).classes == (given, Counter)
    assert CallbackSpec(deque([Counter, given])).classes == (Counter, given)


def test_functions_are_normalised_to_tuples_in_order():
    def other(algorithm, **kwargs): ...

    given = {"on_sample_end": make_counter, "on_train_result": [other, note_result]}
    spec = CallbackSpec(None, given)
    assert spec.functions["on_sample_end"] == (make_counter,)
    assert spec.functions["on_train_result"] == (other, note_result)
    assert spec


def test_a_spec_cannot_be_changed():
    given = [Counter]
    functions = {"on_train_result": [note_result]}
    spec = CallbackSpec(given, functions)
    given.append(Counter)
    functions["on_train_result"].append(note_result)
    assert spec == CallbackSpec([Counter], {"on_train_result": note_result})
    with pytest.raises(AttributeError, match="cannot be changed"):
        spec.classes = ()
    with pytest.raises(AttributeError, match="cannot be changed"):
        del spec.classes
    with pytest.raises(TypeError):
        spec.functions["on_train_result"] = ()


def test_specs_compare_by_content_and_survive_pickle():
    spec = CallbackSpec([Duck, Counter], {"on_train_result": note_result})
    same = pickle.loads(pickle.dumps(spec))
    assert same == spec
    assert hash(same) == hash(spec)
    assert spec != CallbackSpec([Counter, Duck], {"on_train_result": note_result})
    assert spec != "spec"
    assert "Counter" in repr(spec)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("my.module.Callbacks", ["callbacks_class is the string 'my.module.Callbacks'", "import"]),
        (3, ["callbacks_class is an int (3)", "expected a callback class"]),
        ([Counter, None], ["callbacks_class[1] is a NoneType", "expected a callback class"]),
        ({"on_episode_end": note_result}, ["is a dict", "config.callbacks(on_episode_end=...)"]),
        ({Counter}, ["a set has no order, give a list"]),
        (NeedsName, ["NeedsName", "`name`, `size`", "lambda: NeedsName(name=..., size=...)"]),
        (note_result, ["note_result, which requires `result`", "`on_episode_end=...`"]),
        (NothingToCall, ["no method named like an event", "class NothingToCall(RLlibCallback)"]),
        (Abstract, ["Abstract is abstract"]),
        (Unfit, ["Unfit.on_episode_step", "requires `episod`", "did you mean `episode`?"]),
        (Unfit(), ["Unfit.on_episode_step", "requires `episod`"]),
    ],
)  # fmt: skip
def test_an_unfit_entry_is_named_with_what_was_expected(given, words):
    (problem,) = _problems(given)
    for word in words:
        assert word in problem


def test_misspelt_methods_of_a_base_class_are_found_too():
    class Child(Misspelt):
        pass

    assert "`on_episode_ends`" in _problems(Child)[0]


@pytest.mark.parametrize(
    ("event", "function", "words"),
    [
        ("on_episode_ends", note_result, ["`on_episode_ends`", "did you mean `on_episode_end`?"]),
        ("on_train_result", "print", ["is the string 'print', which cannot be called"]),
        ("on_train_result", [note_result, 3], ["on_train_result[1] is an int (3)"]),
        ("on_train_result", Counter, ["is the class Counter", "`callbacks_class=Counter`"]),
        ("on_train_result", lambda episode: 0, ["on_train_result: <lambda at", "`episode`"]),
        ("on_train_result", print, ["on_train_result: print cannot be called"]),
    ],
)  # fmt: skip
def test_an_unfit_function_is_named_with_what_was_expected(event, function, words):
    (problem,) = _problems(None, **{event: function})
    for word in words:
        assert word in problem


def test_all_problems_are_reported_at_once():
    with pytest.raises(CallbackConfigError) as caught:
        CallbackSpec(
            ["text", NeedsName, Misspelt, Counter],
            {"on_episode_ends": note_result, "on_train_result": [7, lambda reslt: None]},
        )
    error = caught.value
    assert len(error.problems) == 7
    assert "7 problems" in str(error)
    for number, problem in enumerate(error.problems, start=1):
        assert f"{number}. {problem}" in str(error)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_checking_makes_no_object_and_calls_nothing():
    class Explodes(RLlibCallback):
        def __init__(self):
            raise AssertionError("made while checking")

    def factory():
        raise AssertionError("called while checking")

    assert len(CallbackSpec([Explodes, factory]).classes) == 2


def test_decorated_methods_and_other_descriptors_are_accepted():
    class Tools(RLlibCallback):
        on_by_default = True

        @staticmethod
        def on_sample_end(samples): ...

        @classmethod
        def on_train_result(cls, result): ...

        @property
        def on_evaluate_start(self):
            return lambda algorithm: None

    assert CallbackSpec(Tools).classes == (Tools,)
