import functools
import genericpath
import importlib.util
import io
import pickle
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import pytest

import callbacks
from callbacks import CallbackChain, CallbackSpec, PackingError, RLlibCallback
from callbacks.packing import module_not_importable, pack, pack_object, unpack, unpack_object

PACKAGES = str(Path(callbacks.__file__).parents[1])

SCRIPT = """
import sys
from callbacks import CallbackSpec, MultiCallbacks, RLlibCallback, make_multi_callbacks
from callbacks.packing import pack

FACTOR = 10
log = []

def scaled(value):
    return value * FACTOR

class Counter(RLlibCallback):
    step = FACTOR

    def __init__(self):
        self.count = 0

    def on_sample_end(self, *, samples, **kwargs):
        super().on_sample_end(samples=samples)
        self.count += scaled(samples) + self.step

def make(offset):
    class Inner(Counter):
        def on_sample_end(self, *, samples, **kwargs):
            super().on_sample_end(samples=samples)
            self.count += offset
    return Inner

def note(samples, worker):
    log.append((samples, worker))
    print("function", len(log), scaled(samples), worker)

if __name__ == "__main__":
    offset = 5
    spec = CallbackSpec(
        [Counter, make(offset), make_multi_callbacks([Counter]), MultiCallbacks([Counter])],
        {
            "on_sample_end": [
                note,
                lambda samples, **kw: print("lambda", samples + FACTOR, sorted(kw)),
            ]
        },
    )
    sys.stdout.buffer.write(pack(spec))
"""

READER = """
import sys
from callbacks import CallbackChain
from callbacks.packing import unpack

chain = CallbackChain(unpack(sys.stdin.buffer.read()))
chain.fire("on_sample_end", env_runner="runner", metrics_logger="logger", samples=1)
state = chain.get_state()["objects"]
print([entry["state"].get("count") for entry in state], state[0]["class"], len(state))
"""


class Plain(RLlibCallback):
    def on_sample_end(self, *, samples, **kwargs): ...


class HoldsLock:
    def __init__(self):
        self.fine = 1
        self.tools = {"lock": threading.Lock()}

    def on_end(self, episode): ...


class DropsLock(HoldsLock):
    """Its own __getstate__ leaves the lock out and something else in."""

    def __getstate__(self):
        return {"fine": 1, "stream": (number for number in range(3))}


OPEN_FILE = io.TextIOWrapper(io.BytesIO())


def uses_global():
    print(OPEN_FILE.encoding)


def _run(code, folder, sent=b""):
    """Run code as a script in a process that can import this project; what it prints."""
    script = folder / "run.py"
    script.write_text(code)
    finished = subprocess.run(
        [sys.executable, str(script)],
        input=sent,
        capture_output=True,
        cwd=folder,
        env={"PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return finished.stdout


def _loaded_by_path(path, monkeypatch):
    """A module loaded as test runners do: in sys.modules, but not to be found by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.process
def test_everything_defined_in_a_script_arrives_in_another_process(tmp_path):
    (tmp_path / "writer").mkdir()
    (tmp_path / "reader").mkdir()
    packed = _run(SCRIPT, tmp_path / "writer")
    lines = _run(READER, tmp_path / "reader", packed).decode().splitlines()
    assert lines == [
        "function 1 10 runner",
        "lambda 11 ['env_runner', 'metrics_logger']",
        "[20, 25, None, None] __main__.Counter 4",
    ]


@pytest.mark.process
def test_a_module_loaded_by_its_path_travels_by_value(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    source = tmp_path / "elsewhere" / "loaded_by_path.py"
    source.write_text(SCRIPT)
    module = _loaded_by_path(source, monkeypatch)
    assert module_not_importable("loaded_by_path") is module
    packed = pack(CallbackSpec(module.Counter, {"on_sample_end": module.note}))
    assert cloudpickle.list_registry_pickle_by_value() == set()
    (tmp_path / "reader").mkdir()
    lines = _run(READER, tmp_path / "reader", packed).decode().splitlines()
    assert lines == ["function 1 10 runner", "[20] loaded_by_path.Counter 1"]


def test_importable_modules_travel_as_their_name(tmp_path, monkeypatch):
    (tmp_path / "found_by_name.py").write_text("def note(samples): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("found_by_name")
    monkeypatch.setitem(sys.modules, "found_by_name", module)
    assert module_not_importable("found_by_name") is None
    by_name = pack_object(module.note, name="note")
    assert by_name == pickle.dumps(module.note, protocol=cloudpickle.DEFAULT_PROTOCOL)
    assert unpack_object(by_name, name="note") is module.note


@pytest.mark.parametrize("name", ["__main__", "no_such_module", "sys", "json", "numpy.linalg"])
def test_ordinary_modules_are_never_taken_for_unfindable(name):
    assert module_not_importable(name) is None


def test_a_choice_of_the_user_to_send_a_module_by_value_stays(tmp_path, monkeypatch):
    source = tmp_path / "chosen_by_user.py"
    source.write_text("def note(samples): return 3\n")
    module = _loaded_by_path(source, monkeypatch)
    cloudpickle.register_pickle_by_value(module)
    try:
        pack_object(module.note, name="note")
        assert cloudpickle.list_registry_pickle_by_value() == {"chosen_by_user"}
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_spec_survives_packing_in_one_process():
    pattern = Plain()
    pattern.count = 3
    arrived = unpack(pack(CallbackSpec([Plain, pattern], {"on_sample_end": lambda samples: 1})))
    assert len(arrived.classes) == 2
    assert CallbackChain(arrived).objects[1].count == 3


def _closure_over(log):
    return lambda episode: log.write(str(episode))


def _nested_closure(log):
    write = _closure_over(log)
    return lambda episode: write(episode)


def _with_default(episode, log=OPEN_FILE): ...


def _with_keyword_default(episode, *, log=OPEN_FILE): ...


def _local_class(log):
    class Writer(RLlibCallback):
        target = log

        def on_episode_end(self, *, episode, **kwargs):
            print(log, episode)

    return Writer


FUNCTIONS = {
    "callbacks.on_episode_end[0] closes over `log`, an open file": _closure_over(OPEN_FILE),
    "callbacks.on_episode_end[0] closes over `write`, which closes over `log`, an open file": (
        _nested_closure(OPEN_FILE)
    ),
    "callbacks.on_episode_end[0].keywords['log'] is an open file": functools.partial(
        lambda episode, log: None, log=OPEN_FILE
    ),
    "callbacks.on_episode_end[0] is a method of `HoldsLock.tools['lock']`, a lock": (
        HoldsLock().on_end
    ),
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_what_a_function_drags_along_is_named(text):
    spec = CallbackSpec(None, {"on_episode_end": FUNCTIONS[text]})
    with pytest.raises(PackingError, match=re.escape(text)) as caught:
        pack(spec)
    assert "cannot travel to another process" in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_with_default, "f has the default of `log`, an open file"),
        (_with_keyword_default, "f has the default of `log`, an open file"),
        (uses_global, "f uses the global `OPEN_FILE`, an open file"),
    ],
)
def test_defaults_and_globals_that_cannot_travel_are_named(function, text, monkeypatch):
    # As if this file were the script that is run: its functions travel by value.
    monkeypatch.setattr(function, "__module__", "__main__")
    with pytest.raises(PackingError, match=re.escape(text)):
        pack_object(function, name="f")


def test_attributes_of_classes_that_cannot_travel_are_named():
    text = "callbacks.callbacks_class[1].target is an open file"
    with pytest.raises(PackingError, match=re.escape(text)):
        pack(CallbackSpec([Plain, _local_class(OPEN_FILE)]))


@pytest.mark.parametrize(
    ("thing", "text", "path"),
    [
        ({"log": OPEN_FILE}, "config.env_config['log'] is an open file", "['log']"),
        ([1, (2, threading.Lock())], "config.env_config[1][1] is a lock", "[1][1]"),
        (HoldsLock(), "config.env_config.tools['lock'] is a lock", ".tools['lock']"),
        (DropsLock(), "config.env_config.stream is a generator", ".stream"),
        ({"a": {"b": sqlite3.connect}, "db": sys._getframe()}, "['db'] is a part of", "['db']"),
        ((number for number in range(2)), "config.env_config is a generator", ""),
    ],
)  # fmt: skip
def test_the_part_of_any_object_that_cannot_travel_is_named(thing, text, path):
    with pytest.raises(PackingError, match=re.escape(text)) as caught:
        pack_object(thing, name="config.env_config")
    assert caught.value.path == f"config.env_config{path}"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_loop_of_references_does_not_stop_the_search():
    one = {}
    one["two"] = {"one": one, "lock": threading.Lock()}
    with pytest.raises(PackingError, match=r"x\['two'\]\['lock'\] is a lock"):
        pack_object(one, name="x")


def test_an_object_that_refuses_without_a_reason_is_named_itself():
    class Refuses:
        def __reduce__(self):
            raise RuntimeError("never")

    with pytest.raises(PackingError, match=r"x\[0\] is a Refuses .*RuntimeError: never"):
        pack_object([Refuses()], name="x")


def test_what_cannot_be_read_here_says_why():
    with pytest.raises(PackingError, match=r"config\.env was packed, but cannot be unpacked here"):
        unpack_object(b"cno_such_module\nname\n.", name="config.env")
    with pytest.raises(PackingError, match="hold an int where packed callbacks were expected"):
        unpack(pack_object(3, name="three"))


def test_modules_frozen_into_python_travel_by_name():
    assert module_not_importable("genericpath") is None
    assert genericpath.__file__ is not None
    assert unpack_object(pack_object(genericpath.exists, name="function"), name="function")(".")
