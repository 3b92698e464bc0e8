"""Made by `docs/make_section_stubs.py`; do not edit it by hand."""

from typing import Any
from typing_extensions import Self
from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.types import ToBeDrawn


class OfflineDataSection(ConfigValues):
    input_: Setting[Any]
    input_read_schema: Setting[dict[str, str]]
    actions_in_input_normalized: Setting[bool | None]
    dataset_num_iters_per_learner: Setting[int | None]
    def offline_data(
        self,
        *,
        input_: Any = None,
        input_read_schema: dict[str, str] | ToBeDrawn = ...,
        actions_in_input_normalized: bool | None | ToBeDrawn = None,
        dataset_num_iters_per_learner: int | None | ToBeDrawn = 1,
        **old_names: Any,
    ) -> Self:
        """Say which recordings are learnt from.

        Args:
            input_: where recordings are: a folder or an `.npz` file of `EpisodeRecorder` or
                `local-trainer record`, a folder or file of Parquet rows, `minari:NAME`, or a list of
                these.
            input_read_schema: names of columns in Parquet files, by RLlib's names: `{'obs': 'state'}`.
            actions_in_input_normalized: whether recorded actions are as the module gave them, before
                they are scaled for the env; None: those of `EpisodeRecorder` are, those of Parquet and
                Minari are not.
            dataset_num_iters_per_learner: updates per training step, each from the next
                `train_batch_size` env steps; None makes one pass over the recordings.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """
