"""Damaged and forged policy files: each acts, or is refused with the one class of their errors."""

import copy
import io
import json
import pickle
import sys
import zipfile
import zlib
from collections import Counter

import numpy as np
import pytest

from checkpoints.policy import PolicyFileError, load_policy
from tests.forgeries import (
    MAX_BYTES,
    MAX_SECONDS,
    MODULE,
    PROOF,
    Cost,
    Rng,
    damaged_bytes,
    hostile_json,
    leaves,
    plant,
    write_canary,
)
from tests.integration.test_policy_export import CASES, built
from tests.mutated_states import mutated, mutations
from trainer import PPOConfig, export_policy

MEMORY = {"model": {"use_lstm": True, "lstm_cell_size": 3, "lstm_use_prev_reward": True}}
BASES = {
    "dense": CASES["PPO, masks, normalised"],
    "images": CASES["DQN, images"],
    "boxes": CASES["PPO, shared layers, elu, normalised"],
    "memory": (PPOConfig, "CartPole-v1", MEMORY),
}


class Imports:
    """Imports the canary when it is unpickled."""

    def __reduce__(self):
        return (__import__, (MODULE,))


# ---- forging


def as_member(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=True)
    return file.getvalue()


def archived(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def odd_array(array, rng):
    """An array file that holds something else than this array."""
    flat = np.asarray(array)
    pickled = np.empty(1, object)
    pickled[0] = Imports()
    named = rng.choice(["|O", "|V8", "<U8", "<M8[s]", "<f16", f"{MODULE}.run", "<f999999999"])
    size = rng.choice([2**31, 2**62, 2**64, -1, 0])
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size}, 3), }}\n".encode()
    choices = [
        lambda: as_member(flat[None]),
        lambda: as_member(flat.reshape(-1)[:-1]),
        lambda: as_member(flat.astype(rng.choice(["f8", "i1", "c8", "?", "u8", "f2"]))),
        lambda: as_member(np.full(flat.shape, rng.choice([np.nan, np.inf, 1e38, -1.0]))),
        lambda: as_member(np.zeros(rng.choice([(), (0,), (1000, 1000), (0, 2**40)]))),
        lambda: as_member(pickled),
        lambda: pickle.dumps(Imports()),
        lambda: as_member(flat).replace(b"<f4", named.encode()),
        lambda: b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header,
        lambda: b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b"(" * 1000,
        lambda: damaged_bytes(as_member(flat), rng),
        lambda: bytes(rng.choice([2**20, 2**26, 2**27])),
    ]
    return rng.choice(choices)()


def forged(members, rng):
    """A whole archive that describes another policy, or one that cannot be."""
    description = json.loads(bytes(members["policy"]))
    constants = {name: as_member(array) for name, array in members.items() if name != "policy"}
    kind = rng.randrange(4)
    if kind == 0:
        name = rng.choice(sorted(constants))
        constants[name] = odd_array(members[name], rng)
    elif kind == 1:
        description = mutated(description, rng.choice(list(mutations(description))))
    elif kind == 2:
        for _ in range(rng.randrange(1, 4)):
            plant(description, rng.choice(list(leaves(description))), rng, hostile_json)
    else:
        first, second = (rng.choice(description["nodes"]) for _ in range(2))
        name = rng.choice(["operator", "inputs", "output", "attributes"])
        first[name] = copy.deepcopy(second[name])
        description["nodes"] += [copy.deepcopy(first)] * rng.choice([0, 1, 300])
    text = rng.choice([json.dumps(description).encode()] * 9 + [b"[" * 100_000])
    return archived({**constants, "policy": as_member(np.frombuffer(text, np.uint8))})


# ---- the campaign


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("policies")
    write_canary(made)
    for name, case in BASES.items():
        with built(*case) as algo:
            export_policy(algo, made / f"{name}.npz")
    return made


def play(file):
    """Opens a policy and acts twice, as a program does that knows only what the file says."""
    policy = load_policy(file)
    given = {name: np.zeros(shape) for name, shape, _ in policy.inputs if "/" not in name}
    if "obs" not in given:
        raise PolicyFileError("it reads no observations")
    more = {"prev_reward": 0.5} if "prev_rewards" in given else {}
    mask = np.ones_like(given["action_mask"]) if "action_mask" in given else None
    answer = policy.predict(given["obs"], mask, **more)
    if policy.is_stateful:
        policy.predict(given["obs"], mask, state=answer[1], **more)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for weights that are not finite
@pytest.mark.parametrize(
    ("seed", "num_files"),
    [(1, 200), *[pytest.param(seed, 1_000, marks=pytest.mark.slow) for seed in (31, 32, 33)]],
)
def test_a_policy_file_acts_or_is_refused_by_its_own_error(seed, num_files, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    outcomes = Counter()
    raw, costly = [], []
    for number in range(num_files):
        rng = Rng(f"{seed}-{number}")
        base = folder / f"{rng.choice(sorted(BASES))}.npz"
        file = folder / "forged.npz"
        if number % 2:
            file.write_bytes(damaged_bytes(base.read_bytes(), rng))
        else:
            with np.load(base) as members:
                file.write_bytes(forged(dict(members), rng))
        with Cost() as cost:
            try:
                play(file)
                outcomes["acted"] += 1
            except PolicyFileError:
                outcomes["refused"] += 1
            except Exception as error:  # noqa: BLE001 - counted
                raw.append(f"{seed}-{number}: {type(error).__name__}: {error!s:.200}")
        if cost.seconds > MAX_SECONDS or cost.num_bytes > MAX_BYTES:
            costly.append(f"{seed}-{number}: {cost.seconds:.1f} s, {cost.num_bytes:,} bytes")
    assert raw == []
    assert costly == []
    assert MODULE not in sys.modules
    assert not (folder / PROOF).exists()
    assert min(outcomes["acted"], outcomes["refused"]) > num_files // 20, outcomes


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_unread(tmp_path):
    file = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("policy.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(1100):
            member.write(bytes(2**20))
    assert file.stat().st_size < 2 * 2**20
    with Cost() as cost, pytest.raises(PolicyFileError, match="1,153,433,600 bytes are packed"):
        load_policy(file)
    assert cost.num_bytes < 2**25


def test_a_size_that_an_archive_states_too_small_is_not_exceeded(tmp_path):
    member = as_member(np.zeros(2**25, np.uint8))
    data = bytearray(archived({"policy": member}))
    size, small = len(member).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = small
    file = tmp_path / "small.npz"
    file.write_bytes(data)
    with Cost() as cost, pytest.raises(PolicyFileError):
        load_policy(file)
    assert cost.num_bytes < 2**24


@pytest.mark.parametrize("name", ["Add", "Gemm", "Conv"])
def test_small_arrays_that_an_operator_makes_large_are_refused(name, folder, tmp_path):
    with np.load(folder / "dense.npz") as members:
        contents = dict(members)
    description = json.loads(bytes(contents["policy"]))
    column, row = np.zeros((4_000, 1), np.float32), np.zeros((1, 4_000), np.float32)
    pixels, kernel = np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    operands = {
        "Add": ({"a": column, "b": row}, {}),
        "Gemm": ({"a": column, "b": row, "c": row[0]}, {}),
        "Conv": (
            {"a": pixels, "b": kernel, "c": np.zeros(1, np.float32)},
            {"strides": [1, 1], "pads": [1_500] * 4},
        ),
    }
    arrays, attributes = operands[name]
    node = {"operator": name, "inputs": list(arrays), "output": "x", "attributes": attributes}
    description["nodes"].insert(0, node)
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    np.savez(tmp_path / "large.npz", **{**contents, **arrays, "policy": text})
    policy = load_policy(tmp_path / "large.npz")
    with Cost() as cost, pytest.raises(PolicyFileError, match="more than 8,388,608 numbers"):
        policy.predict(np.zeros(4), np.ones(3))
    assert cost.num_bytes < 2**25


def test_the_checksum_of_an_archive_is_compared(folder, tmp_path):
    """Negative control: without it, a flipped bit of a weight would act."""
    with np.load(folder / "dense.npz") as members:
        contents = {name: as_member(array) for name, array in members.items()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            archive.writestr(f"{name}.npy", data)
    whole = file.getvalue()
    target = tmp_path / "policy.npz"
    target.write_bytes(whole)
    play(target)
    name = next(name for name in contents if name != "policy")
    at = whole.index(contents[name]) + len(contents[name]) - 1
    assert zlib.crc32(contents[name]).to_bytes(4, "little") in whole
    target.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(PolicyFileError, match="Bad CRC-32"):
        load_policy(target)
