"""encode/decode: exact by type and bytes, deterministic, refusing what is not plain data."""

import collections
import dataclasses
import datetime as dt
import enum
import math
import struct
import sys
import uuid

import numpy as np
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import CheckpointCorruptError, StateError, decode, encode
from checkpoints.codec import encode_split


def same(left, right):
    """Equal by type, order and bits, recursively."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        kinds = [(side.dtype, side.dtype.type, side.shape) for side in (left, right)]
        return kinds[0] == kinds[1] and bool(left.tobytes() == right.tobytes())
    if isinstance(left, (np.str_, np.bytes_)):
        return list(left) == list(right)
    if isinstance(left, np.generic):
        return bool(left.dtype == right.dtype and left.tobytes() == right.tobytes())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, (set, frozenset)):
        return same(*(sorted(side, key=encode) for side in (left, right)))
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, complex):
        return same((left.real, left.imag), (right.real, right.imag))
    return bool(left == right)


def round_trip(value):
    return decode(encode(value))


def entry(kind, *parts):
    return ormsgpack.Ext(kind, ormsgpack.packb(list(parts)))


def array_entry(dtype, shape, order="C"):
    return entry(5, dtype, shape, order)


def record(part, itemsize=0):
    """The dtype of a structure with one field."""
    return {"names": ["a"], "formats": [part], "offsets": [0], "itemsize": itemsize, "align": False}


def message(tree, memory=b""):
    """Bytes of our layout around any tree, for hostile input."""
    packed = tree if isinstance(tree, bytes) else ormsgpack.packb(tree)
    return b"LTstate\x01" + struct.pack("<Q", len(packed)) + packed + memory


# --- known answers -------------------------------------------------------------------------------


def test_bytes_of_a_small_state_never_change():
    state = {"w": np.array([1.0, -0.0], "<f4"), "t": (1, "a"), 2: {3}, "n": None}
    tree = bytes.fromhex(
        "99 c70004"  # a dict with other keys than text is a list of nine: marker, keys and values
        "a177 c70905 93 a33c6634 9102 a143"  # "w": array of dtype "<f4", shape [2], order "C"
        "a174 93 c70001 01 a161"  # "t": tuple of 1 and "a"
        "02 92 c70002 03"  # 2: set of 3
        "a16e c0"  # "n": None
    )
    memory = bytes.fromhex("0000803f 00000080")
    assert encode(state) == b"LTstate\x01" + struct.pack("<Q", len(tree)) + tree + memory


# --- identity ------------------------------------------------------------------------------------

NESTED = np.dtype(
    [("a", "i1"), ("b", ">f8"), ("c", "<f4", (2, 3)), ("d", [("x", "S3"), ("y", "?")])]
)
ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
ODD_OFFSETS = np.dtype({"names": ["a"], "formats": ["<i2"], "offsets": [5], "itemsize": 9})


DTYPES = [
    *("?", "i1", "u8", "<i4", ">i4", "e", ">e", "f4", ">f8", "F", "D", "g", "q", "Q", "l"),
    *("S3", "<U2", ">U2", "V5", "M8[ns]", "m8[25s]", ">M8[D]", NESTED, ALIGNED, ODD_OFFSETS),
]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_of_every_dtype_and_shape_return(shape):
    for dtype in map(np.dtype, DTYPES):
        memory = np.random.default_rng(1).bytes(dtype.itemsize * math.prod(shape))
        if dtype.kind == "U":
            memory = ("ab" * math.prod(shape)).encode(
                "utf-32-le" if dtype.str[0] == "<" else "utf-32-be"
            )
        array = np.frombuffer(memory, dtype).reshape(shape) if memory else np.zeros(shape, dtype)
        back = round_trip(array)
        assert same(back, array), dtype
        assert back.dtype.isalignedstruct == array.dtype.isalignedstruct
        assert back.flags.writeable


def test_nan_payloads_and_signed_zeros_keep_their_bits():
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000ABCDEF))[0]
    assert same(round_trip([payload, -0.0]), [payload, -0.0])


def test_fortran_order_is_kept_and_strided_input_is_not():
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    strided = np.arange(20.0).reshape(4, 5)[::2, ::-2]
    backs = [round_trip(array) for array in (fortran, strided)]
    assert [back.flags.f_contiguous for back in backs] == [True, False]
    assert all(map(np.array_equal, backs, (fortran, strided)))


def test_decoded_arrays_are_independent_copies():
    array = np.zeros(3)
    array.flags.writeable = False
    data = encode(array)
    back = decode(data)
    back[0] = 7.0
    assert decode(data)[0] == 0.0
    assert array[0] == 0.0


SCALARS = [
    np.bool_(True),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.longlong(5),
    np.float16(1.5),
    np.float32("nan"),
    np.float64(-0.0),
    np.longdouble(1.25),
    np.complex64(1 - 2j),
    np.str_("é\x00"),
    np.bytes_(b"a\x00"),
    np.datetime64("2020-01-01T00:00", "ms"),
    np.datetime64("NaT", "s"),
    np.timedelta64(7, "D"),
    np.void(b"abc"),
]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_numpy_scalar_keeps_its_type(value):
    assert same(round_trip(value), value)


def test_structured_scalar_stays_as_writable_as_it_was():
    record = np.zeros(1, [("a", "i4"), ("b", "f8")])[0]
    back = round_trip(record)
    back["a"] = 3
    assert back["a"] == 3
    assert record["a"] == 0


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**127 + 1, -(2**200)],
)
def test_int_of_any_size_returns(value):
    everywhere = [value, [value], {"a": value, value: value}]
    assert same(round_trip(everywhere), everywhere)


@pytest.mark.parametrize(
    "value",
    [
        (),
        [()],
        ((1, [2, (3,)]),),
        {},
        set(),
        frozenset(),
        {"b": 1, "a": 2},
        {1: "int", "1": "str", (1,): "tuple", None: 0, 1.5: 0, b"1": 0, frozenset({1}): 0},
        {np.int64(3): "numpy key"},
        {"\ud800": "lone surrogate", "é": "\udfff"},
        [True, 1, 1.0],
        complex(-0.0, float("nan")),
        {frozenset({(1, 2)}), "a", 2.5, None, True},
        np.random.PCG64(0).state,
    ],
    ids=lambda value: type(value).__name__,  # a set is written in another order every time
)
def test_containers_and_keys_return_with_type_and_order(value):
    assert same(round_trip(value), value)


KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=8),
    st.tuples(st.integers(), st.text(max_size=3)),
    st.frozensets(st.integers(), max_size=3),
)
LEAVES = st.one_of(
    KEYS,
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.sampled_from(SCALARS),
    st.builds(
        lambda dtype, memory: np.frombuffer(memory[: len(memory) // 8 * 8], dtype),
        st.sampled_from(["<f4", ">f8", "i1", "<u2", "<f2"]),
        st.binary(max_size=40),
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(VALUES)
def test_every_value_returns_and_encodes_to_the_same_bytes_again(value):
    data = encode(value)
    back = decode(data)
    assert same(back, value)
    assert encode(back) == data
    assert b"".join(encode_split(value).parts) == data


@given(st.lists(KEYS, max_size=8, unique_by=encode), st.randoms())
def test_equal_sets_give_equal_bytes_whatever_their_history(members, random):
    shuffled = members.copy()
    random.shuffle(shuffled)
    grown = set(range(1000)) if not members else {object()}
    grown.clear()
    grown.update(shuffled)
    if len(set(members)) == len(members):  # 1, 1.0 and True are one member
        assert encode(grown) == encode(set(members))


def test_bytes_differ_where_types_differ():
    variants = [[1], (1,), {1}, frozenset({1}), [1.0], [True], [np.int64(1)], np.array([1])]
    variants.append({1: None})
    assert len({encode(value) for value in variants}) == len(variants)


# --- refusals ------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class Real(float):
    pass


class Raw(bytes):
    pass


@dataclasses.dataclass
class Point:
    x: int = 1


Pair = collections.namedtuple("Pair", "a b")

NOT_PLAIN = [
    Color.RED,
    Level.LOW,
    Name("a"),
    Real(1.0),
    Raw(b"a"),
    Point(),
    Pair(1, 2),
    collections.OrderedDict(a=1),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
    uuid.UUID(int=1),
    bytearray(b"a"),
    object(),
    int,
    np.random.default_rng(0),
    np.array([None]),
    np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]),
    np.ma.masked_array([1, 2], [True, False]),
    np.zeros(2, [("a", "i4")]).view(np.recarray),
    np.zeros(2, np.dtype("f4", metadata={"unit": "m"})),
    np.zeros(2, {"names": ["a"], "formats": ["i4"], "titles": ["title"]}),
    np.float32,
]


@pytest.mark.parametrize("value", NOT_PLAIN, ids=lambda value: type(value).__name__)
def test_what_is_not_plain_data_is_refused_with_its_place(value):
    with pytest.raises(StateError, match=r"^state\['a'\]\[3\]: .* cannot be saved") as caught:
        encode({"a": [0, 1, 2, value]})
    assert "In get_state(), " in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_refused_keys_and_members_are_named():
    with pytest.raises(StateError, match=r"^learner\['x'\]<key a Color>: "):
        encode({"x": {Color.RED: 1}}, name="learner")
    with pytest.raises(StateError, match=r"^state<member a UUID>: "):
        encode({uuid.UUID(int=1)})


def test_ormsgpack_alone_would_have_accepted_these():
    """Negative control: without the exact types, dates would silently come back as texts."""
    raw = ormsgpack.packb({"a": [dt.date(2020, 1, 1), Name("a"), Point()]})
    assert ormsgpack.unpackb(raw) == {"a": ["2020-01-01", "a", {"x": 1}]}


def test_state_that_holds_itself_is_refused():
    state = []
    state.append(state)
    with pytest.raises(StateError, match="holds itself"):
        encode(state)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}]
)
def test_nesting_is_possible_up_to_the_limit_exactly(wrap):
    value = 0
    for _ in range(100):
        value = wrap(value)
    assert same(round_trip(value), value)
    with pytest.raises(StateError, match="more than 100 deep"):
        encode(wrap(value))


# --- hostile bytes -------------------------------------------------------------------------------

TUPLE = ormsgpack.Ext(1, b"")
OVERLAPPING = {
    "names": [f"{number}" for number in range(1_000)],
    "formats": ["|u1"] * 1_000,
    "offsets": [0] * 1_000,
    "itemsize": 1,
    "align": False,
}
EQUAL_HASHES = [
    ormsgpack.Ext(8, (number * sys.hash_info.modulus).to_bytes(12, "little", signed=True))
    for number in range(1, 18)
]

HOSTILE = {
    "empty": b"",
    "other magic": b"PK\x03\x04" + bytes(20),
    "no tree": message(b""),
    "huge tree": b"LTstate\x01" + struct.pack("<Q", 2**63) + b"\xc0",
    "reserved byte": message(b"\xc1"),
    "two messages": message(b"\xc0\xc0"),
    "trailing memory": message(None, b"x"),
    "huge list": message(b"\xdd\xff\xff\xff\xff"),
    "huge map": message(b"\xdf\xff\xff\xff\xff"),
    "huge ext": message(b"\xc9\xff\xff\xff\xff\x05"),
    "unknown ext": message(ormsgpack.Ext(77, b"x")),
    "timestamp ext": message(b"\xd6\xff\x00\x00\x00\x00"),
    "nested lists": message(b"\x91" * 500 + b"\xc0"),
    "very nested lists": message(b"\x91" * 100_000 + b"\xc0"),
    "marker alone": message(ormsgpack.Ext(1, b"")),
    "marker inside": message([1, ormsgpack.Ext(1, b"")]),
    "marker with content": message([ormsgpack.Ext(1, b"x"), 1]),
    "unhashable member": message([ormsgpack.Ext(2, b""), [1]]),
    "member twice": message([ormsgpack.Ext(2, b""), 1, 1]),
    "key twice": message([ormsgpack.Ext(4, b""), 1, 1, 1, 1]),
    "key without value": message([ormsgpack.Ext(4, b""), 1]),
    "object array": message(array_entry("|O", [1]), bytes(8)),
    "object array 2": message(array_entry("O", [1]), bytes(8)),
    "object field": message(array_entry(record("|O", 8), [1]), bytes(8)),
    "dtype of two": message(array_entry("<f4,<f4", [1]), bytes(8)),
    "dtype of nothing": message(array_entry(None, [1]), bytes(8)),
    "text of variable width": message(array_entry("|T", [1]), bytes(16)),
    "subarray": message(array_entry({"base": "<f4", "shape": [2]}, [1]), bytes(8)),
    "huge field": message(array_entry(record("<f4", 2**60), [1]), bytes(8)),
    "huge shape": message(array_entry("<f8", [2**40, 2**40]), bytes(64)),
    "overflowing shape": message(array_entry("<f8", [2**61]), b""),
    "empty but huge": message(array_entry("<f8", [0, 2**63, 2**63])),
    "negative shape": message(array_entry("<f8", [-1])),
    "float shape": message(array_entry("<f8", [1.0]), bytes(8)),
    "bool shape": message(array_entry("<f8", [True]), bytes(8)),
    "65 dimensions": message(array_entry("<i1", [1] * 65), b"x"),
    "unknown order": message(array_entry("<i1", [1], "K"), b"x"),
    "short array": message(array_entry("<f8", [2]), bytes(15)),
    "long array": message(array_entry("<f8", [2]), bytes(17)),
    "entry of two parts": message(entry(5, "<f8", [1]), bytes(8)),
    "entry with a tail": message(ormsgpack.Ext(5, ormsgpack.packb(["<i1", [1], "C"]) + b"x"), b"x"),
    "short scalar": message(entry(6, "<f8", b"1234567", False)),
    "object scalar": message(entry(6, "|O", bytes(8), False)),
    "items of no size": message(array_entry("|S0", [2**31])),
    "texts of no size": message(array_entry("<U0", [2**40])),
    "rows of no columns": message(array_entry("<f8", [2**40, 0])),
    "fields of no size": message(
        array_entry(record({"base": "|S0", "shape": [2**31 - 1]}), [1]),
    ),
    "no items of huge size": message(array_entry("|V999999999", [0])),
    "fields that overlap": message(array_entry(OVERLAPPING, [10_000]), bytes(10_000)),
    "many arrays of no size": message([array_entry("|V0", [2**20])] * 3),
    "scalar of no size": message(
        entry(6, record({"base": "|S0", "shape": [2**30]}), b"", False),
    ),
    "integers of one hash": message([ormsgpack.Ext(2, b""), *EQUAL_HASHES]),
    "tuples of one hash": message(
        [ormsgpack.Ext(4, b""), *(n for key in EQUAL_HASHES for n in ([TUPLE, key], 1))]
    ),
    "huge scalar": message(entry(6, "|V999999999", b"", False)),
    "short complex": message(ormsgpack.Ext(9, bytes(15))),
    "broken text": message(ormsgpack.Ext(10, b"\xff")),
    "broken numpy text": message(ormsgpack.Ext(7, b"U\xff")),
    "unknown numpy text": message(ormsgpack.Ext(7, b"X")),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused_by_name(data):
    with pytest.raises(CheckpointCorruptError):
        decode(data)


def test_what_readers_refuse_is_not_written():
    wide = np.zeros((2**20, 0))
    assert same(round_trip([wide, wide]), [wide, wide])
    with pytest.raises(StateError, match=r"state\[2\]: .* more than 2,097,152 items"):
        encode([wide, wide, wide])
    equal = {number * sys.hash_info.modulus for number in range(17)}
    with pytest.raises(StateError, match=r"state\['a'\]: 17 members"):
        encode({"a": equal})
    with pytest.raises(StateError, match="17 members"):
        encode(dict.fromkeys(equal, 1))
    equal.pop()
    assert round_trip(equal) == equal


def test_hostile_helpers_build_valid_bytes_when_nothing_is_wrong():
    """Negative control: what the table above varies is accepted without the variation."""
    assert decode(message(array_entry("<f8", [2]), bytes(16))).tolist() == [0.0, 0.0]
    assert decode(message([ormsgpack.Ext(4, b""), 1, 2])) == {1: 2}


@settings(max_examples=200)
@given(st.binary(max_size=60), st.binary(max_size=20))
def test_random_bytes_decode_or_are_refused_by_name(tree, memory):
    try:
        decode(message(tree, memory))
    except CheckpointCorruptError:
        pass


SIZES = [0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65535, 65536]


@pytest.mark.parametrize("size", SIZES)
def test_lengths_of_every_msgpack_field_return(size):
    value = {
        "list": [1.5] * size,
        "text": "a" * size,
        "bytes": b"b" * size,
        "int": 1 << (8 * size + 70),
        "dict": {str(key): key for key in range(size)},
        "ints": list(range(-size, 2**40 * size, 2**40 + 1))[:size],
    }
    assert same(round_trip(value), value)


@pytest.mark.parametrize(
    "name", ["huge list", "huge map", "huge ext", "two messages", "nested maps"]
)
def test_sizes_are_added_up_before_ormsgpack_sees_the_message(name, monkeypatch):
    """Releases up to 1.12 allocate what a header announces, and never free it after an error."""

    def fail(*args, **kwargs):
        raise AssertionError("ormsgpack was called")

    monkeypatch.setattr(ormsgpack, "unpackb", fail)
    nested = message(b"\xdf\x00\x00\x00\x04" * 20 + bytes(20))
    with pytest.raises(CheckpointCorruptError, match=r"announces more|too early or too late"):
        decode({**HOSTILE, "nested maps": nested}[name])


def test_every_truncation_is_refused():
    data = encode({"a": [1, (2.5, "x")], "w": np.arange(3), 2**70: {1, 2}})
    for end in range(len(data)):
        with pytest.raises(CheckpointCorruptError):
            decode(data[:end])


# --- cost ----------------------------------------------------------------------------------------


def test_parts_show_the_memory_of_contiguous_arrays_without_a_copy():
    array = np.zeros((100, 100))
    for variant in (array, array.T):
        part = encode_split(variant).parts[1]
        assert np.shares_memory(np.frombuffer(part, np.uint8), array)
    assert not np.shares_memory(np.frombuffer(encode_split(array[::2]).parts[1], np.uint8), array)
