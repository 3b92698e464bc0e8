"""Code of an experiment, which its journal cannot hold: functions, and objects of users' classes.

It lies beside the journal as the `code.pkl` of a checkpoint without components, and so behind the
door of checkpoints (`checkpoints/code.py`): it is opened if this user saved it on this machine, or
with `allow_code=True`, and only where the caller of `Tuner.restore` leaves something out.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from checkpoints import CheckpointError, StateError, pack_code, read_code
from checkpoints.writer import encode_checkpoint, write_encoded
from trainer.errors import TuneError
from trainer.tune.configs import RunConfig, TuneConfig
from trainer.tune.stored_spec import GIVEN_AGAIN, code_in, made_again, stop_of_plain

_LOGGER = logging.getLogger(__name__)
CODE_FOLDER: Final = ".code"


def keep_code(
    folder: Path,
    header: Mapping[str, Any],
    *,
    param_space: Any,
    tune_config: TuneConfig,
    run_config: RunConfig,
) -> None:
    """Writes what cannot be made again from the header of a new experiment.

    What cannot be pickled is not kept, which is logged: a restore will ask for it.
    """
    target = folder / CODE_FOLDER
    shutil.rmtree(target, ignore_errors=True)  # of one whose journal was never begun
    makes: dict[str, tuple[Any, Callable[[], object]]] = {
        "scheduler": (tune_config.scheduler, lambda: made_again(header["scheduler"])),
        "search_alg": (tune_config.search_alg, lambda: made_again(header["searcher"])),
        "stop": (run_config.stop, lambda: stop_of_plain(header["stop"])),
    }
    code = {name: given for name, (given, make) in makes.items() if not _succeeds(make)}
    if header["plain_space"] is None:
        code["param_space"] = param_space
    settings = header["settings"]["tune_config"]
    code |= {
        name: getattr(tune_config, name)
        for name in GIVEN_AGAIN
        if code_in(settings[name]) is not None
    }
    if not code:
        return
    try:
        packed = pack_code(code)
    except StateError as error:
        _LOGGER.warning(
            "%s is not kept with the experiment %s: tune.Tuner.restore() will ask for it. %s",
            ", ".join(sorted(code)),
            folder.name,
            error,
        )
        return
    write_encoded(target, encode_checkpoint(components={}, metadata={}, code=packed, is_own=True))


def _succeeds(make: Callable[[], object]) -> bool:
    try:
        make()
    except TuneError:
        return False
    return True


def kept_code(folder: Path, *, allow_code: bool) -> Mapping[str, Any]:
    """What `keep_code` wrote, by the names of what users give; nothing where it may not be opened.

    Why it was not opened is logged.
    """
    if not (folder / CODE_FOLDER).is_dir():
        return {}
    try:
        code: Mapping[str, Any] = read_code(folder / CODE_FOLDER, allow_code=allow_code)
    except CheckpointError as error:
        _LOGGER.warning("The code kept with the experiment %s is left closed: %s", folder, error)
        return {}
    return code
