import contextlib
import copy
import logging
import pickle
import random
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks import CallbackConfigError, EpisodeRecorder, load_episode
from callbacks.optional_import import optional_module
from callbacks.ready_made.recorders import (
    EpisodeChoice,
    RecordingFiles,
    episode_arrays,
    write_episode,
)
from tests.forgeries import damaged_bytes
from trainer import MetricsLogger, SingleAgentEpisode


def runner(*, in_evaluation=False, seed=7, version=3):
    return SimpleNamespace(
        config=SimpleNamespace(in_evaluation=in_evaluation),
        env_seed=lambda env_index: seed,
        weights_version=version,
    )


def vector(step):
    return np.array([step, -step], np.float32)


def nested(step):
    return {"camera": np.full((2, 3), step, np.uint8), "state": (step, np.array([step / 2]))}


def played(cuts=(), *, steps=6, id_="training-0-0", observe=vector, to_numpy=True):
    """The chunks of an ended episode that was cut after some of its steps."""
    episode = SingleAgentEpisode(id_=id_)
    episode.add_env_reset(observe(0), {})
    chunks = []
    for step in range(1, steps + 1):
        episode.add_env_step(
            observe(step),
            step % 2,
            0.5 * step,
            terminated=step == steps,
            extra_model_outputs={"value": np.float32(step)},
        )
        if step in cuts:
            successor = episode.cut(len_lookback_buffer=2)
            chunks.append(episode.to_numpy() if to_numpy else episode)
            episode = successor
    return [*chunks, episode]


def end(recorder, chunks, env_runner=None):
    """Fires the end of an episode; returns what was logged."""
    logger = MetricsLogger()
    recorder.on_episode_end(
        episode=chunks[-1],
        prev_episode_chunks=chunks[:-1],
        env_runner=env_runner or runner(),
        env_index=0,
        metrics_logger=logger,
        env=None,
        rl_module=None,
    )
    return logger


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_recorded_episode_holds_every_step_as_plain_arrays(tmp_path):
    end(EpisodeRecorder(tmp_path, columns=["value"]), played())
    arrays = load_episode(tmp_path / "training-0-0.npz")
    assert list(arrays) == [
        "id", "seed", "observations", "actions", "rewards", "terminated", "truncated",
        "extra/value",
    ]  # fmt: skip
    assert (str(arrays["id"]), int(arrays["seed"])) == ("training-0-0", 7)
    np.testing.assert_array_equal(arrays["observations"], np.stack([vector(t) for t in range(7)]))
    assert arrays["observations"].dtype == np.float32
    np.testing.assert_array_equal(arrays["actions"], [1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(arrays["rewards"], [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    assert arrays["rewards"].dtype == np.float64
    assert (bool(arrays["terminated"]), bool(arrays["truncated"])) == (True, False)
    np.testing.assert_array_equal(arrays["extra/value"], [1, 2, 3, 4, 5, 6])


def test_nested_observations_become_arrays_named_by_their_path(tmp_path):
    end(EpisodeRecorder(tmp_path), played(cuts=[2], observe=nested))
    arrays = load_episode(tmp_path / "training-0-0.npz")
    assert arrays["observations/camera"].shape == (7, 2, 3)
    assert arrays["observations/camera"].dtype == np.uint8
    np.testing.assert_array_equal(arrays["observations/camera"][:, 0, 0], range(7))
    np.testing.assert_array_equal(arrays["observations/state/0"], range(7))
    np.testing.assert_array_equal(arrays["observations/state/1"][:, 0], np.arange(7) / 2)
    assert "observations" not in arrays


@given(
    cuts=st.sets(st.integers(1, 5)), is_nested=st.booleans(), to_numpy=st.booleans(),
)  # fmt: skip
def test_where_an_episode_was_cut_changes_no_byte_of_its_file(
    tmp_path_factory, cuts, is_nested, to_numpy
):
    directory = tmp_path_factory.mktemp("recordings")
    observe = nested if is_nested else vector
    for name, chunks in (
        ("whole", played(observe=observe)),
        ("cut", played(sorted(cuts), observe=observe, to_numpy=to_numpy)),
    ):
        arrays = episode_arrays(chunks, seed=1, columns=["value"])
        write_episode(directory / name, arrays, compressed=True)
    assert (directory / "cut").read_bytes() == (directory / "whole").read_bytes()


def test_files_need_no_pickle_and_hold_no_time(tmp_path):
    end(EpisodeRecorder(tmp_path), played())
    path = tmp_path / "training-0-0.npz"
    with zipfile.ZipFile(path) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    before = path.read_bytes()
    end(EpisodeRecorder(tmp_path), played())
    assert path.read_bytes() == before
    end(EpisodeRecorder(tmp_path, compressed=False), played())
    assert path.read_bytes() != before
    assert names(tmp_path) == ["training-0-0.npz"], "no temporary file is left"


def test_an_unknown_seed_is_left_out(tmp_path):
    end(EpisodeRecorder(tmp_path), played(), runner(seed=None))
    assert "seed" not in load_episode(tmp_path / "training-0-0.npz")


def test_evaluation_files_tell_the_weights_that_acted(tmp_path):
    for version in (3, 4):
        evaluation = runner(in_evaluation=True, version=version)
        end(EpisodeRecorder(tmp_path), played(id_="evaluation-0-5"), evaluation)
    assert names(tmp_path) == ["evaluation-0-5-weights-3.npz", "evaluation-0-5-weights-4.npz"]


@pytest.mark.parametrize(
    ("every", "evaluation", "in_evaluation", "expected"),
    [
        (1, None, False, [0, 1, 2, 3, 4, 5, 6]),
        (3, None, True, [0, 3, 6]),
        (3, False, False, [0, 3, 6]),
        (1, True, False, []),
        (2, True, True, [0, 2, 4, 6]),
        (1, False, True, []),
    ],
)
def test_episodes_are_chosen_by_their_number_and_role(every, evaluation, in_evaluation, expected):
    choice = EpisodeChoice(every, evaluation)
    chosen = [n for n in range(7) if choice.includes(f"x-4-{n}", in_evaluation=in_evaluation)]
    assert chosen == expected
    assert choice.includes_role(in_evaluation=in_evaluation) is bool(expected)


def test_ids_without_a_number_are_chosen_one_in_n():
    ids = [f"{number:x}q" for number in range(4000)]
    chosen = [id_ for id_ in ids if EpisodeChoice(10).includes(id_, in_evaluation=False)]
    assert 300 < len(chosen) < 500
    assert all(EpisodeChoice(1).includes(id_, in_evaluation=False) for id_ in ids)


def test_a_predicate_sees_the_whole_episode_and_decides(tmp_path):
    recorder = EpisodeRecorder(tmp_path, chosen=lambda episode: episode.get_return() > 5)
    end(recorder, played(cuts=[3], steps=4, id_="training-0-1"))  # 0.5 + 1 + 1.5 + 2 = 5
    end(recorder, played(cuts=[3], steps=5, id_="training-0-2"))
    assert names(tmp_path) == ["training-0-2.npz"]


def test_each_runner_keeps_its_newest_files(tmp_path):
    (tmp_path / "mine.txt").write_text("of the user")
    recorder, other = (EpisodeRecorder(tmp_path, max_episodes=2) for _ in range(2))
    for number in (0, 1, 1, 2):  # written again, a file does not count twice
        end(recorder, played(id_=f"training-0-{number}"))
    end(other, played(id_="training-1-0"))
    expected = ["mine.txt", "training-0-1.npz", "training-0-2.npz", "training-1-0.npz"]
    assert names(tmp_path) == expected


def test_state_is_what_was_written_and_not_where_to_write(tmp_path):
    recorder = EpisodeRecorder(tmp_path / "old", max_episodes=2)
    for number in range(2):
        end(recorder, played(id_=f"training-0-{number}"))
    state = copy.deepcopy(recorder.get_state())
    assert state == {"names": ["training-0-0.npz", "training-0-1.npz"]}
    for place, expected in (
        ("new", ["training-0-2.npz"]),
        ("old", ["training-0-1.npz", "training-0-2.npz"]),
    ):
        restored = EpisodeRecorder(tmp_path / place, max_episodes=2)
        restored.set_state(state)
        end(restored, played(id_="training-0-2"))
        assert names(tmp_path / place) == expected
        assert restored.get_state() == {"names": ["training-0-1.npz", "training-0-2.npz"]}


def test_a_recorder_is_a_pattern_that_can_be_copied_and_sent(tmp_path):
    pattern = EpisodeRecorder(tmp_path, every=2, max_episodes=1)
    for twin in (copy.deepcopy(pattern), pickle.loads(pickle.dumps(pattern))):
        end(twin, played(id_="training-0-2"))
    assert pattern.get_state() == {"names": []}
    assert names(tmp_path) == ["training-0-2.npz"]


def test_a_failing_disk_is_logged_once_and_counted(tmp_path, caplog):
    recorder = EpisodeRecorder(tmp_path / "taken")
    (tmp_path / "taken").write_text("in the meantime, a file")
    with caplog.at_level(logging.WARNING):
        counts = [end(recorder, played(id_=f"training-0-{n}")).peek() for n in range(3)]
    assert [c["episode_recorder"] for c in counts] == [{"num_written": 0, "num_failed": 1}] * 3
    (record,) = caplog.records
    assert "could not write" in record.message
    assert "Training goes on" in record.message
    (tmp_path / "taken").unlink()
    logged = end(recorder, played()).peek()
    assert logged["episode_recorder"] == {"num_written": 1, "num_failed": 0}


def test_a_write_that_fails_half_way_leaves_neither_half_nor_old_file_broken(tmp_path):
    files = RecordingFiles(tmp_path, recorder="r", max_episodes=None)
    files.write("a.npz", lambda path: path.write_text("old"), MetricsLogger())

    def fails(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    files.write("a.npz", fails, MetricsLogger())
    assert names(tmp_path) == ["a.npz"]
    assert (tmp_path / "a.npz").read_text() == "old"
    with pytest.raises(ZeroDivisionError):
        files.write("a.npz", lambda path: 1 / 0, MetricsLogger())


def test_ids_that_are_no_file_names_are_escaped(tmp_path):
    end(EpisodeRecorder(tmp_path / "in"), played(id_="../a/b:c"))
    assert names(tmp_path) == ["in"]
    (name,) = names(tmp_path / "in")
    assert str(load_episode(tmp_path / "in" / name)["id"]) == "../a/b:c"


def test_a_relative_directory_is_meant_from_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = EpisodeRecorder("here")
    monkeypatch.chdir("/")
    end(recorder, played())
    assert names(tmp_path / "here") == ["training-0-0.npz"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"every": 0}, ["every=0", "at least 1"]),
        ({"every": True}, ["every=True"]),
        ({"evaluation": "both"}, ["evaluation='both'", "None for both"]),
        ({"chosen": 3}, ["chosen=3", "must be a function"]),
        ({"max_episodes": 0}, ["max_episodes=0", "None for no limit"]),
        ({"columns": "action_logp"}, ["columns='action_logp'", "['action_logp']"]),
        ({"directory": None}, ["directory=None", "no path of a directory"]),
        ({"directory": 3, "every": 0, "max_episodes": -1, "columns": [3]}, ["4 problems"]),
    ],
)
def test_misuse_is_told_at_construction(tmp_path, arguments, words):
    with pytest.raises(CallbackConfigError) as caught:
        EpisodeRecorder(**{"directory": tmp_path, **arguments})
    for word in words:
        assert word in str(caught.value)


def test_a_file_in_the_place_of_the_directory_is_told_at_construction(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CallbackConfigError, match="is a file; expected a directory"):
        EpisodeRecorder(tmp_path / "file")


def test_a_column_that_does_not_exist_is_told_with_those_that_do(tmp_path):
    with pytest.raises(ValueError, match=r"no extra output 'values'; it has 'value'"):
        end(EpisodeRecorder(tmp_path, columns=["values"]), played())


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (lambda step: np.zeros(1 + step % 2), "observations cannot be recorded"),
        (lambda step: {"x": object()}, "observations/x cannot be recorded: .* object objects"),
        (lambda step: {"a/b": 1, "a": {"b": 2}}, "two entries .* 'observations/a/b'"),
    ],
)
def test_what_is_no_plain_array_is_refused_by_name(tmp_path, observe, words):
    with pytest.raises(ValueError, match=words):
        end(EpisodeRecorder(tmp_path), played(observe=observe, to_numpy=False))


def test_load_episode_refuses_what_is_no_recording(tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(ValueError, match="a single array"):
        load_episode(tmp_path / "one.npy")
    np.savez(tmp_path / "objects.npz", x=np.array([object()]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_episode(tmp_path / "objects.npz")
    with pytest.raises(FileNotFoundError):
        load_episode(tmp_path / "missing.npz")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_recording_is_told_as_one(seed, tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", obs=np.arange(200.0), id=np.array("a"))
    data = damaged_bytes((tmp_path / "whole.npz").read_bytes(), random.Random(seed))
    (tmp_path / "damaged.npz").write_bytes(data)
    with contextlib.suppress(ValueError):  # what was hit may be no part of an array
        load_episode(tmp_path / "damaged.npz")


def test_a_missing_optional_package_is_told_with_its_extra():
    with pytest.raises(ImportError, match=r'`no_such_package`.*"local-trainer\[video\]"') as caught:
        optional_module("no_such_package", user="VideoRecorder", extra="video")
    assert caught.value.name == "no_such_package"
    assert optional_module("json", user="X", extra="x").dumps(1) == "1"


@pytest.mark.parametrize("name", ["../kept", "/etc/kept", "..", "a/b.npz", 5, ""])
def test_a_state_names_no_files_but_recordings(name, tmp_path):
    (tmp_path / "kept").touch()
    files = RecordingFiles(tmp_path / "in", recorder="recorder", max_episodes=1)
    with pytest.raises(ValueError, match="no name of a recording"):
        files.take_names(["a.npz", name])
    files.take_names(["a.npz", "with space%2F.npz"])
    files.write("b.npz", Path.touch, MetricsLogger())
    assert files.names == ["b.npz"]
    assert (tmp_path / "kept").exists()
