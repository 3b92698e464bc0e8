"""Another implementation of docs/checkpoints.md, written from that page alone.

It uses ormsgpack, NumPy, hashlib and json, and nothing of ours, so that a change of what we write
cannot pass unseen because our own reader changed with it.
"""

import hashlib
import json
import math
import struct

import numpy as np
import ormsgpack

TUPLE, SET, FROZENSET, MAP, ARRAY, SCALAR, NUMPY_TEXT, BIG_INT, COMPLEX, TEXT = range(1, 11)
ARRAY_FILE = 11
CONTAINERS = {TUPLE: tuple, SET: set, FROZENSET: frozenset, MAP: None}


class Ext:
    def __init__(self, tag, payload):
        self.tag, self.payload = tag, payload


def read(directory):
    """The states of all components by name, after comparing every size and hash."""
    text = (directory / "manifest.json").read_text("ascii")
    manifest = json.loads(text)
    assert manifest["format"] == "local-trainer-checkpoint"
    assert manifest["format_version"] == 1
    checksum = manifest.pop("checksum")
    manifest.pop("signature", None)
    unsigned = json.dumps(manifest, indent=1) + "\n"
    assert hashlib.sha256(unsigned.encode("ascii")).hexdigest() == checksum
    states = {}
    folder = directory / manifest["folder"]
    for name, entry in manifest["components"].items():
        data = (folder / entry["file"]).read_bytes()
        assert len(data) == entry["num_bytes"]
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        arrays = []
        for number, array_entry in enumerate(entry.get("arrays", [])):
            file = entry["file"].removesuffix(".state") + f".{number}.array"
            assert array_entry["file"] == file
            raw = np.memmap(folder / file, np.uint8, "r")
            assert len(raw) == array_entry["num_bytes"]
            assert hashlib.sha256(raw.data).hexdigest() == array_entry["sha256"]
            arrays.append(raw)
        states[name] = decode(data, arrays)
    return states


def decode(data, arrays=None):
    assert data[:8] == bytes.fromhex("4c54737461746501")
    (size,) = struct.unpack("<Q", data[8:16])
    tree = ormsgpack.unpackb(data[16 : 16 + size], ext_hook=Ext)
    memory = Memory(data[16 + size :], arrays or [])
    value = understood(tree, memory)
    assert not memory.rest
    assert not memory.arrays
    return value


class Memory:
    def __init__(self, rest, arrays):
        self.rest = rest
        self.arrays = dict(enumerate(arrays))

    def take(self, num_bytes):
        assert num_bytes <= len(self.rest)
        taken, self.rest = self.rest[:num_bytes], self.rest[num_bytes:]
        return taken


def understood(tree, memory):
    if isinstance(tree, dict):
        return {key: understood(value, memory) for key, value in tree.items()}
    if isinstance(tree, Ext):
        return leaf(tree, memory)
    if not isinstance(tree, list):
        return tree
    if not (tree and isinstance(tree[0], Ext) and tree[0].tag in CONTAINERS):
        return [understood(item, memory) for item in tree]
    items = [understood(item, memory) for item in tree[1:]]
    make = CONTAINERS[tree[0].tag]
    return dict(zip(items[::2], items[1::2], strict=True)) if make is None else make(items)


def leaf(ext, memory):
    payload = ext.payload
    if ext.tag == ARRAY:
        description, shape, order = ormsgpack.unpackb(payload)
        dtype = dtype_of(description)
        raw = memory.take(dtype.itemsize * math.prod(shape))
        return np.ndarray(tuple(shape), dtype, raw, order=order)
    if ext.tag == ARRAY_FILE:
        description, shape, order, number = ormsgpack.unpackb(payload)
        mapped = memory.arrays.pop(number)
        assert mapped.nbytes == dtype_of(description).itemsize * math.prod(shape)
        view = mapped.view(np.ndarray).view(dtype_of(description))
        return view.reshape(shape, order=order)
    if ext.tag == SCALAR:
        description, raw, _ = ormsgpack.unpackb(payload)
        return np.ndarray((), dtype_of(description), raw)[()]
    if ext.tag == NUMPY_TEXT:
        return np.str_(payload[1:].decode()) if payload[:1] == b"U" else np.bytes_(payload[1:])
    if ext.tag == BIG_INT:
        return int.from_bytes(payload, "little", signed=True)
    if ext.tag == COMPLEX:
        return complex(*struct.unpack("<dd", payload))
    assert ext.tag == TEXT
    return payload.decode("utf-8", "surrogatepass")


def dtype_of(description):
    if isinstance(description, str):
        return np.dtype(description)
    if "base" in description:
        return np.dtype((dtype_of(description["base"]), tuple(description["shape"])))
    fields = {**description, "formats": [dtype_of(part) for part in description["formats"]]}
    return np.dtype(fields, align=fields.pop("align"))
