"""Weights without the objects they belong to: as a dict of arrays, and as an .npz file."""

import numpy as np
import pytest

from checkpoints import (
    CheckpointCorruptError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointWriteError,
    export_weights,
    load_weights,
    write_checkpoint,
)
from tests.saved_files import files_of
from tests.scripts import run_script

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
COMPONENTS = {
    "counters": {"steps": 3},
    "learner/rl_module": {"pi/0/kernel": KERNEL, "file": np.ones(2)},
    "learner/optimizer": {"moments": [KERNEL.T, {"v": np.float64(2.0)}], "num_steps": 4},
}


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "c", components=COMPONENTS, metadata={})


def test_the_weights_are_found_by_themselves(checkpoint):
    weights = load_weights(checkpoint)
    assert list(weights) == ["pi/0/kernel", "file"]
    assert weights["pi/0/kernel"].dtype == np.float32
    assert np.array_equal(weights["pi/0/kernel"], KERNEL)
    weights["file"][0] = 5  # new and writable


def test_components_are_named_by_argument_by_path_or_by_file(checkpoint):
    expected = {"moments/0", "moments/1/v"}
    for weights in (
        load_weights(checkpoint, component="learner/optimizer"),
        load_weights(checkpoint / "learner" / "optimizer"),
        load_weights(files_of(checkpoint) / "learner.optimizer.state"),
    ):
        assert weights.keys() == expected
        assert weights["moments/1/v"].shape == ()
        assert np.array_equal(weights["moments/0"], KERNEL.T)
    both = load_weights(checkpoint / "learner")
    assert set(both) == {f"optimizer/{name}" for name in expected} | {
        "rl_module/pi/0/kernel",
        "rl_module/file",
    }


def test_what_is_not_there_is_told(checkpoint, tmp_path):
    with pytest.raises(CheckpointMismatchError, match=r"holds no arrays.*learner/optimizer"):
        load_weights(checkpoint, component="counters")
    with pytest.raises(CheckpointMismatchError, match="did you mean 'learner/optimizer'"):
        load_weights(checkpoint / "learner" / "optimiser")
    with pytest.raises(CheckpointNotFoundError):
        load_weights(tmp_path / "nothing" / "here")
    two = {"a": KERNEL, "b": KERNEL}
    path = write_checkpoint(tmp_path / "two", components=two, metadata={})
    with pytest.raises(CheckpointMismatchError, match="which of its components are weights"):
        load_weights(path)
    twice = {"a/b": KERNEL, "a": {"b": KERNEL}}
    path = write_checkpoint(tmp_path / "twice", components={"state": twice}, metadata={})
    with pytest.raises(CheckpointMismatchError, match=r"two arrays.*'a/b'"):
        load_weights(path)


def test_altered_weights_are_not_given_out(checkpoint):
    file = files_of(checkpoint) / "learner.rl_module.state"
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    with pytest.raises(CheckpointCorruptError):
        load_weights(checkpoint)
    assert load_weights(checkpoint, component="learner/optimizer")  # which was not touched


def test_an_npz_file_holds_the_same_arrays_under_the_same_names(checkpoint, tmp_path):
    file = export_weights(checkpoint, tmp_path / "weights.npz")
    with np.load(file, allow_pickle=False) as archive:
        assert list(archive) == ["pi/0/kernel", "file"]
        assert archive["pi/0/kernel"].tobytes() == KERNEL.tobytes()
    data = file.read_bytes()
    with pytest.raises(CheckpointWriteError, match="overwrite"):
        export_weights(checkpoint, file)
    assert export_weights(checkpoint, file, overwrite=True).read_bytes() == data
    with pytest.raises(CheckpointWriteError, match="could not be written"):
        export_weights(checkpoint, file / "weights.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "weights.npz"]
    deep = export_weights(checkpoint, tmp_path / "new" / "folder" / "weights.npz")
    assert deep.read_bytes() == data, "folders are made, as for pictures and pages"


def test_neither_gymnasium_nor_the_trainer_is_imported(checkpoint):
    code = (
        "import sys, checkpoints; checkpoints.load_weights(sys.argv[1]); "
        "print({'gymnasium', 'trainer', 'callbacks', 'onnx'} & set(sys.modules))"
    )
    assert run_script(code, checkpoint).stdout.strip() == "set()"
