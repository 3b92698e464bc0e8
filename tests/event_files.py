"""Event files of TensorBoard, read back record by record with their checksums."""

import importlib
import struct


def event_files(directory):
    """In the order in which TensorBoard reads them."""
    return sorted(directory.glob("events.out.tfevents.*"))


def events(directory):
    """All events of a directory; a wrong checksum fails.

    A record that was not written to its end is the last of its file, as for TensorBoard.
    """
    checksum = importlib.import_module("tensorboardX.record_writer").masked_crc32c
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    found = []
    for file in event_files(directory):
        data = file.read_bytes()
        while data:
            length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
            if len(data) < 16 + length:
                break
            body = data[12 : 12 + length]
            checks = data[8:12] + data[12 + length : 16 + length]
            assert checks == struct.pack("<II", checksum(data[:8]), checksum(body))
            found.append(event.FromString(body))
            data = data[16 + length :]
    return found


def curves(directory):
    """Tag to its points, with steps that were taken back removed, as TensorBoard shows them."""
    found = {}
    for event in events(directory):
        if event.HasField("session_log"):
            assert event.session_log.status == event.session_log.START
            found = {
                tag: [point for point in points if point[0] < event.step]
                for tag, points in found.items()
            }
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found
