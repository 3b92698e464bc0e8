"""The settings of learning from recordings in `offline_data()`, each declared once."""

from __future__ import annotations

import os
from typing import Any, Final

from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.offline.files import COLUMNS, absolute_inputs
from trainer_toolkit.checks import Check, boolean, integer, optional

_PATH: Final = (str, os.PathLike)


def _is_input(value: Any) -> bool:
    several = value if isinstance(value, (list, tuple)) else [value]
    return bool(several) and all(isinstance(one, _PATH) and str(one) for one in several)


_INPUT: Final = Check("a path, 'minari:NAME', or a list of these", _is_input)
_SCHEMA: Final = Check(
    f"a dict from some of {', '.join(COLUMNS)} to names of columns",
    lambda value: (
        isinstance(value, dict)
        and {*value} <= {*COLUMNS}
        and all(isinstance(name, str) for name in value.values())
    ),
)


class OfflineDataSection(ConfigValues, section="offline_data"):
    """Say which recordings are learnt from."""

    input_ = Setting[Any](
        None,
        optional(_INPUT),
        "where recordings are: a folder or an `.npz` file of `EpisodeRecorder` or `local-trainer "
        "record`, a folder or file of Parquet rows, `minari:NAME`, or a list of these.",
        normalize=absolute_inputs,
    )
    input_read_schema = Setting[dict[str, str]](
        {},
        _SCHEMA,
        "names of columns in Parquet files, by RLlib's names: `{'obs': 'state'}`.",
    )
    actions_in_input_normalized = Setting[bool | None](
        None,
        optional(boolean()),
        "whether recorded actions are as the module gave them, before they are scaled for the env; "
        "None: those of `EpisodeRecorder` are, those of Parquet and Minari are not.",
    )
    dataset_num_iters_per_learner = Setting[int | None](
        1,
        optional(integer(1)),
        "updates per training step, each from the next `train_batch_size` env steps; None makes "
        "one pass over the recordings.",
    )
