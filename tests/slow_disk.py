"""Disks for tests: one that holds every background save back or fails, and one that is fast."""

import threading

from checkpoints import FileSystem


class SlowDisk(FileSystem):
    """Saves in other threads than the main one wait before each directory that they make.

    Life: `SlowDisk.mount(monkeypatch)` · `let_go()` for each save, or `open()` for all · `close()`.

    Attributes:
        num_held: how many saves have waited, or wait now.
        failure: what the next file raises, in any thread, until it is None again.
    """

    def __init__(self):
        self.num_held = 0
        self.failure = None
        self._gate = threading.Semaphore(0)
        self._is_open = False

    @classmethod
    def mount(cls, monkeypatch):
        """All checkpoints are written to this disk from now on."""
        disk = cls()
        monkeypatch.setattr("checkpoints.writer.FileSystem", lambda: disk)
        return disk

    def let_go(self):
        """Lets one save write, the one that waits or the next one."""
        self._gate.release()

    def open(self):
        """From now on the disk is as fast as any."""
        self._is_open = True
        self._gate.release()

    def close(self):
        """From now on every save waits again."""
        self._is_open = False
        self._gate = threading.Semaphore(0)

    def make_directory(self, path):
        is_background = threading.current_thread() is not threading.main_thread()
        if is_background and path.name.startswith("files-"):
            self.num_held += 1
            if not self._is_open and not self._gate.acquire(timeout=30):
                raise AssertionError("this save was not released within 30 s")
        super().make_directory(path)

    def create_file(self, path):
        if self.failure is not None:
            raise self.failure
        return super().create_file(path)

    def sync_file(self, file):
        file.flush()

    def sync_directory(self, path):
        pass


class Unsynced(FileSystem):
    """Files that no power cut has to survive."""

    def sync_file(self, file):
        """Leave it to the operating system."""

    def sync_directory(self, path):
        """Leave it to the operating system."""
