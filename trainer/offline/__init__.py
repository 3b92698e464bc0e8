"""Recorded episodes: files, what is checked of them, the order in which they are read."""

from trainer.offline.reading import RecordingReader, Recordings

__all__ = ["RecordingReader", "Recordings"]
