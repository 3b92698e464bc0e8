"""RLlib's old `RolloutWorker`, made by the user: an env runner whose samples are batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.connectors import SampleBatch
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import INFOS, NEW_OBS


class RolloutWorker(SingleAgentEnvRunner):
    """An env runner of the user's own whose `sample()` gives a `SampleBatch`.

    worker = RolloutWorker(env_creator=lambda context: MyEnv(context), config=PPOConfig())
    batch = worker.sample()
    """

    def sample(self, **options: Any) -> SampleBatch:  # type: ignore[override]
        """Plays like `SingleAgentEnvRunner.sample` and gives the steps as one batch."""
        return batch_of(super().sample(**options))


def batch_of(episodes: Sequence[SingleAgentEpisode]) -> SampleBatch:
    """The steps of chunks one after another, as columns; infos as a list."""
    chunks = [episode for episode in episodes if len(episode) > 0]
    rows = []
    for chunk in chunks:
        observations = chunk.get_observations()
        after = nested.map_leaves(lambda leaf: leaf[1:], observations)
        rows.append({**chunk.get_data_dict(), NEW_OBS: after})
    batch = SampleBatch()
    for name in rows[0] if rows else ():
        columns = [row[name] for row in rows if name in row]
        if name == INFOS:
            batch[name] = [info for column in columns for info in column]
        elif len(columns) == len(rows):
            batch[name] = nested.concatenate(*columns)
    return batch
