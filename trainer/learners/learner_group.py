"""One learner per module, updated together: all of them, or none.

Which chunks a module learns from is decided here, too: those that it acted in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode
from trainer.episodes.agent_parts import is_to_learn_from
from trainer.learners.columns import BatchListener
from trainer.learners.learner import EpisodeLearner, Learner
from trainer.learners.replay_learner import ReplayLearner
from trainer.modules import ByModule
from trainer.replay import ReplayBuffer
from trainer.types import ModuleId
from trainer_toolkit.undo import undone_on_error

Metrics = dict[ModuleId, Mapping[str, Any]]
"""Of the modules that were updated, by their key under `learners/{module_id}`."""

LearnerT = TypeVar("LearnerT", bound=Learner)


class LearnerGroup(ByModule[LearnerT]):
    """The learners of an algorithm by module id.

    Modules share nothing and do not see one another's new weights within an update, so the order
    in which they are updated cannot matter.
    """

    def update(
        self: LearnerGroup[EpisodeLearner],
        chunks: ByModule[Sequence[SingleAgentEpisode]],
        *,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> Metrics:
        """Lets every module learn from its chunks; one without rows makes no update.

        Args:
            chunks: of each module that is trained; see `EpisodeLearner.update`, also for the other
                arguments.
            num_env_steps_sampled_before: where schedules are read.
            on_batch: shown the batch of each module.

        Raises:
            ModuleError, EpisodeError: one cannot learn from its chunks; none has learnt.
        """
        metrics: Metrics = {}
        with undone_on_error() as undo:
            for id_ in (id_ for id_ in chunks if any(map(len, chunks[id_]))):
                learner = self[id_]
                if len(self) > 1:  # the only one undoes what fails by itself
                    undo(learner.mark())
                metrics[id_] = learner.update(
                    chunks[id_],
                    num_env_steps_sampled_before=num_env_steps_sampled_before,
                    on_batch=on_batch,
                )
        return metrics

    def update_from(
        self: LearnerGroup[ReplayLearner], buffers: ByModule[ReplayBuffer], **options: Any
    ) -> Metrics:
        """Lets modules learn from their buffers, unless empty; see `ReplayLearner.update_from`."""
        return {
            id_: self[id_].update_from(buffer, **options)()
            for id_, buffer in buffers.items()
            if len(buffer)
        }


def chunks_by_module(
    episodes: Sequence[SingleAgentEpisode | MultiAgentEpisode], ids: Collection[ModuleId]
) -> ByModule[Sequence[SingleAgentEpisode]]:
    """The chunks that each module acted in, in their order; those of an only module are all."""
    chunks: Sequence[SingleAgentEpisode]
    chunks = [chunk for episode in episodes for chunk in _of_agents(episode)]
    if len(ids) == 1:
        return ByModule(dict.fromkeys(ids, chunks))
    return ByModule({id_: [one for one in chunks if one.module_id == id_] for id_ in ids})


def _of_agents(episode: SingleAgentEpisode | MultiAgentEpisode) -> Iterable[SingleAgentEpisode]:
    """The chunks of its agents that are learnt from; an episode of one agent is its own."""
    if isinstance(episode, SingleAgentEpisode):
        return (episode,)
    chunks = episode.agent_episodes.values()
    return [chunk for chunk in chunks if len(chunk) and is_to_learn_from(chunk)]
