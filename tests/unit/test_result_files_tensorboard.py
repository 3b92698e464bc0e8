"""Event files of TensorBoard, read back record by record with their checksums."""

import copy
import math
import os
import pickle
import struct
import sys
import time
import zlib

import numpy as np
import pytest

from callbacks.ready_made import result_files
from callbacks.ready_made.result_files import TensorBoardResults
from callbacks.ready_made.result_loggers import TensorBoardLogger
from tests.event_files import curves, event_files, events


def row(iteration, *, steps=100, **values):
    return {
        "env_runners": {"num_env_steps_sampled": steps},
        "training_iteration": iteration,
        "num_env_steps_sampled_lifetime": iteration * steps,
        "timestamp": 1_700_000_000 + iteration,
        **values,
    }


def write(directory, *rows):
    """Rows behind those that are there, as a new process writes them."""
    results = TensorBoardResults(directory)
    results.begin(rows[0]["training_iteration"])
    for each in rows:
        results.append(each["training_iteration"], each)
    return results


def test_numbers_are_curves_over_env_steps(tmp_path):
    values = {
        "nested": {"loss": np.float32(0.5)}, "nan": math.nan, "inf": math.inf, "none": None,
        "text": "x", "flag": True, "pid": 5, "words": ["a"], "ragged": [[1], [1, 2]], "empty": [],
    }  # fmt: skip
    results = write(tmp_path / "a" / "b", row(1, **values), row(2, count=3))
    assert curves(results.path) == {
        "nested/loss": [(100, 0.5)],
        "count": [(200, 3.0)],
        "training_iteration": [(100, 1.0), (200, 2.0)],
        "num_env_steps_sampled_lifetime": [(100, 100.0), (200, 200.0)],
        "env_runners/num_env_steps_sampled": [(100, 100.0), (200, 100.0)],
    }
    first, *_, last = events(results.path)
    assert first.file_version == "brain.Event:2"
    assert last.wall_time == 1_700_000_002


@pytest.mark.parametrize(
    "numbers",
    [[0.1 + 0.2, 0.3], [3e16, 3e16, 3e16], [1e308, -1e308, 1e308, 1e308]],
    ids=["neighbours", "equal and large", "far apart"],
)
def test_numbers_without_thirty_bins_between_them_lose_no_row(tmp_path, numbers):
    write(tmp_path, row(1, returns=numbers, loss=2.0))
    values = {value.tag: value for value in events(tmp_path)[-1].summary.value}
    assert values["loss"].simple_value == 2.0
    assert sum(values["returns"].histo.bucket) == len(numbers)
    assert values["returns"].histo.bucket_limit[-1] >= max(numbers)


@pytest.mark.parametrize(
    "value",
    [10**400, np.timedelta64(5, "s"), np.timedelta64("NaT", "s")],
    ids=["int", "time", "NaT"],
)
def test_a_number_that_cannot_be_held_is_named_once_and_loses_no_row(value, tmp_path, caplog):
    results = TensorBoardResults(tmp_path)
    for number in (1, 2):
        results.append(number, row(number, mine={"bad": value}, loss=2.0, wide=[-1e308, 1e308]))
        values = {each.tag: each for each in events(tmp_path)[-1].summary.value}
        assert values["loss"].simple_value == 2.0
        assert values["wide"].histo.num == 2
        assert "mine/bad" not in values
    assert ["'mine/bad'" in text for text in caplog.messages] == [True]
    assert results.num_left_out == {"mine/bad": 2}


def test_lists_of_numbers_are_histograms(tmp_path):
    numbers = [1.0, 2.0, 2.0, 31.0, math.nan]
    write(tmp_path, row(1, hist_stats={"returns": numbers}, same=np.ones((2, 2))))
    values = {value.tag: value.histo for value in events(tmp_path)[-1].summary.value}
    histogram = values["hist_stats/returns"]
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (1, 31, 4, 36)
    assert histogram.sum_squares == 1 + 4 + 4 + 961
    assert list(histogram.bucket) == [1, 2, *[0] * 27, 1]
    assert list(histogram.bucket_limit) == pytest.approx(range(2, 32))
    assert sum(values["same"].bucket) == 4


def pixels_of(png):
    """Width, height, bits, colour type, and all bytes behind the filters, of a PNG of ours."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = {}, png[8:]
    while rest:
        (length,) = struct.unpack(">I", rest[:4])
        kind, body = rest[4:8], rest[8 : 8 + length]
        assert rest[8 + length : 12 + length] == struct.pack(">I", zlib.crc32(kind + body))
        chunks[kind] = body
        rest = rest[12 + length :]
    assert [*chunks] == [b"IHDR", b"IDAT", b"IEND"]
    header = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(header[1], -1)
    assert not rows[:, 0].any()
    return header[:4], rows[:, 1:].ravel().tolist()


@pytest.mark.parametrize(
    ("shape", "colour_type"), [((2, 3), 0), ((2, 3, 1), 0), ((2, 3, 3), 2), ((2, 3, 4), 6)]
)
def test_arrays_of_bytes_are_images(tmp_path, shape, colour_type):
    image = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape) * 7
    write(tmp_path, row(1, image=image, images=[image * 0, image]))
    values = {value.tag: value.image for value in events(tmp_path)[-1].summary.value}
    for tag in ("image", "images"):
        shown = values[tag]
        channels = (*shape, 1)[2]
        assert (shown.height, shown.width, shown.colorspace) == (2, 3, channels)
        expected = (3, 2, 8, colour_type), image.ravel().tolist()
        assert pixels_of(shown.encoded_image_string) == expected


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2)), np.zeros(4, np.uint8), np.zeros((2, 2, 5), np.uint8), [3, 4]]
)
def test_other_arrays_stay_histograms(tmp_path, value):
    write(tmp_path, row(1, numbers=value))
    (shown,) = [found for found in events(tmp_path)[-1].summary.value if found.tag == "numbers"]
    assert shown.HasField("histo")


@pytest.mark.parametrize("is_same_process", [True, False])
def test_an_iteration_that_is_made_again_takes_back_its_steps_and_later_ones(
    tmp_path, is_same_process
):
    results = write(
        tmp_path, *(row(number, loss=-1.0 if number > 2 else number) for number in (1, 2, 3, 4))
    )
    if not is_same_process:
        results = TensorBoardResults(tmp_path)
    assert results.begin(3) == 2
    for number in (3, 4, 5):
        results.append(number, row(number, loss=number))
    assert curves(tmp_path)["loss"] == [(100 * i, float(i)) for i in (1, 2, 3, 4, 5)]
    assert len(event_files(tmp_path)) == (1 if is_same_process else 2)


def test_a_resumed_run_of_another_batch_size_leaves_no_old_points_between(tmp_path):
    write(tmp_path, row(1), row(2), row(3), row(4))
    write(tmp_path, row(2, steps=250) | {"num_env_steps_sampled_lifetime": 350})
    assert curves(tmp_path)["training_iteration"] == [(100, 1.0), (350, 2.0)]


def test_processes_that_start_in_one_second_get_files_that_are_read_in_their_order(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
    for iteration, pid in ((1, 900), (2, 80), (3, 7)):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        write(tmp_path, row(iteration))
    assert [file.name.rsplit(".", 1)[1] for file in event_files(tmp_path)] == ["900", "80", "7"]
    assert curves(tmp_path)["training_iteration"] == [(100, 1.0), (200, 2.0), (300, 3.0)]


def test_a_new_run_moves_the_event_files_of_an_older_one(tmp_path):
    for number in range(3):
        TensorBoardResults(tmp_path / "run").set_aside()
        write(tmp_path / "run", row(1, number=number))
    shown = [curves(tmp_path / name)["number"][0][1] for name in ("run.1", "run.2", "run")]
    assert shown == [0.0, 1.0, 2.0]


def test_behind_a_record_that_failed_a_new_file_begins(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError("disk full")

    results = write(tmp_path, row(1))
    (file,) = event_files(tmp_path)
    whole = file.read_bytes()
    results.append(2, row(2))
    with monkeypatch.context() as patch:
        patch.setattr(result_files, "append_to", full)
        with pytest.raises(OSError, match="disk full"):
            results.append(3, row(3))
    file.write_bytes(whole)  # as if the record of 2 had been torn and the reader stopped there
    results.begin(4)
    results.append(4, row(4))
    assert len(event_files(tmp_path)) == 2
    assert [step for step, _ in curves(tmp_path)["training_iteration"]] == [100, 400]


def test_event_files_that_are_deleted_begin_again(tmp_path):
    results = write(tmp_path, row(1))
    event_files(tmp_path)[0].unlink()
    results.append(2, row(2))
    assert events(tmp_path)[0].file_version == "brain.Event:2"
    event_files(tmp_path)[0].unlink()
    assert TensorBoardResults(tmp_path).begin(3) == 0, "all rows are missing"


def test_a_row_without_env_steps_has_its_number_for_a_step(tmp_path):
    write(tmp_path, {"training_iteration": 1, "loss": 0.5}, {"training_iteration": 2, "loss": 0.25})
    assert curves(tmp_path)["loss"] == [(1, 0.5), (2, 0.25)]


def test_a_logger_can_be_copied_and_sent_where_the_library_is_not_installed(tmp_path, monkeypatch):
    logger = TensorBoardLogger(tmp_path / "tensorboard")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    for copied in (copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
        assert copied.sink.path == tmp_path / "tensorboard"


def test_a_missing_library_is_told_when_configured(monkeypatch):
    for name in ("tensorboardX", "tensorboardX.proto", "tensorboardX.proto.event_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"TensorBoardLogger .*local-trainer\[tensorboard\]"):
        TensorBoardLogger()
