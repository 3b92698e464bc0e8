"""What this user saved on this machine, told from what anybody may have written.

    signature = sign(data)            where it is saved
    is_own(data, signature)           where it is read
    trust(data), is_trusted(data)     files that hold no signature, once the user has said so

HMAC-SHA256 (RFC 2104) with a key of the user's: 32 random bytes in a file of the folder where a
user's programs keep data, made on first use, that only this user can read. It says nothing about
who may read a file, and it does not defend against programs that the user runs: those can read the
key. Without a key (no such folder, a full disk, a key that others can read) nothing is signed and
nothing is one's own: what names code asks as if it came from somebody else, which is logged once.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import platformdirs

_LOGGER = logging.getLogger(__name__)
DATA_VARIABLE: Final = "LOCAL_TRAINER_DATA"
"""Environment variable with another folder for the key than the user's folder of data."""

_KEY_FILE: Final = "signing-key"
_TRUSTED: Final = "trusted"
_KEY_BYTES: Final = 32
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Signer:
    """Signs and recognises with one key, which was read once.

    Args:
        key: the user's.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, data: bytes) -> str:
        """The signature of bytes."""
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()

    def is_own(self, data: bytes, signature: object) -> bool:
        """Whether this key signed these bytes; `signature` may be anything."""
        return isinstance(signature, str) and hmac.compare_digest(
            self.sign(data).encode(), signature.encode("utf-8", "replace")
        )


def signer(*, may_make: bool) -> Signer | None:
    """What signs with the user's key; None without one, which is made if `may_make`."""
    key = _key(_folder() / _KEY_FILE, may_make=may_make)
    return None if key is None else Signer(key)


def sign(data: bytes) -> str | None:
    """The signature of bytes that are about to be saved; None without a key."""
    own = signer(may_make=True)
    return None if own is None else own.sign(data)


def is_own(data: bytes, signature: object) -> bool:
    """Whether this user signed these bytes on this machine.

    Args:
        data: what was read.
        signature: what stood beside it; anything, where the file is a stranger's.
    """
    own = signer(may_make=False)
    return own is not None and own.is_own(data, signature)


# ---- files that cannot hold a signature
#
# A config that a user wrote by hand. Once it was opened with `--allow-code`, its signature is kept
# as the name of an empty file beside the key, so that it opens until it is changed.


def trust(data: bytes) -> None:
    """Lets a file with this content open without a question from now on, where there is a key."""
    signature = sign(data)
    if signature is not None:
        folder = _folder() / _TRUSTED
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / signature).touch()


def is_trusted(data: bytes) -> bool:
    """Whether this user has trusted a file with this content."""
    own = signer(may_make=False)
    return own is not None and (_folder() / _TRUSTED / own.sign(data)).exists()


def _folder() -> Path:
    return Path(os.environ.get(DATA_VARIABLE) or platformdirs.user_data_dir("local-trainer", False))


def _key(path: Path, *, may_make: bool) -> bytes | None:
    """The key; None if there is none that is this user's alone."""
    try:
        return _read(path)
    except FileNotFoundError:
        if not may_make:
            return None
    except OSError as error:
        _log_once(f"{path} cannot be used as the key that signs what you save: {error}")
        return None
    try:
        _make(path)
        return _read(path)
    except OSError as error:
        _log_once(f"No key that signs what you save could be made at {path}: {error}")
        return None


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OF_OTHERS:
            raise PermissionError(
                f"it is not yours alone (mode {stat.filemode(status.st_mode)}, user "
                f"{status.st_uid}). Remove it: another one is made"
            )
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(f"it holds {len(key)} bytes instead of {_KEY_BYTES}. Remove it")
    return key


def _make(path: Path) -> None:
    """Makes the key, whole or not at all; another process may be faster."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{_KEY_FILE}-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)  # unlike a rename, never over a key that is there
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)


@functools.cache
def _log_once(text: str) -> None:
    _LOGGER.warning("%s. What you save asks for allow_code=True like anybody's.", text)
