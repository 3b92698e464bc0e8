"""What callbacks rewrite in episodes of several agents: trajectories, and whole samples.

    on_postprocess_trajectory   once per chunk and agent with rows, canonical order
    on_sample_end               once per sample

Each agent's batch is shown beside read-only copies of all agents' batches, which hold what stood
there before anybody rewrote anything: so the result does not depend on the order of agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.connectors import Normalization
from trainer.env_runners.acting import Policy
from trainer.env_runners.messages import RunnerParts
from trainer.env_runners.trajectories import (
    ENV_T,
    TRAJECTORY_EVENT,
    ModuleTrajectories,
    Rewrite,
    ShownChunk,
    trajectory_emitter,
)
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode
from trainer.episodes.episode_columns import AGENT_INDEX, EPISODE_IDS
from trainer.errors import EpisodeError
from trainer.modules import ByModule, RandomRLModule, RLModule
from trainer.types import AgentId, ModuleId


def chunks_of(episodes: Sequence[MultiAgentEpisode]) -> list[SingleAgentEpisode]:
    """The agents' chunks with at least one step, in order of episode, then agent."""
    return [
        chunk for episode in episodes for chunk in episode.agent_episodes.values() if len(chunk)
    ]


# ---- trajectories


@dataclass(frozen=True)
class JointRewrite:
    """What callbacks changed in the chunks of several agents.

    Attributes:
        by_agent: of those that something was changed of.
    """

    by_agent: Mapping[AgentId, Rewrite]

    def write_to(self, chunk: MultiAgentEpisode) -> None:
        """Writes the changes into the chunk; `get_return()` stays what the env paid."""
        for agent, rewrite in self.by_agent.items():
            rewrite.write_to(chunk.agent_episodes[agent])


class JointTrajectories:
    """Shows chunks of several agents to the listeners of a training runner."""

    @classmethod
    def of(
        cls,
        runner: RunnerParts,
        modules: Callable[[], Mapping[ModuleId, RLModule]],
        policies: Callable[[], Mapping[ModuleId, Policy]],
    ) -> JointTrajectories | None:
        """None without a listener, or the runner plays for evaluation."""
        emit = trajectory_emitter(runner)
        return None if emit is None else cls(runner, emit, modules, policies)

    def __init__(
        self,
        runner: RunnerParts,
        emit: Callable[..., None],
        modules: Callable[[], Mapping[ModuleId, RLModule]],
        policies: Callable[[], Mapping[ModuleId, Policy]],
    ) -> None:
        self._runner = runner
        self._emit = emit
        self._modules, self._policies = modules, policies
        self._normalization: ByModule[Normalization] | None = None
        self._parts: dict[ModuleId, tuple[RLModule, ModuleTrajectories]] = {}

    def normalize_with(self, normalization: ByModule[Normalization]) -> None:
        """Shows columns that follow from observations and rewards as these make them."""
        self._normalization = normalization
        for id_, (_, part) in self._parts.items():
            if id_ in normalization:
                part.normalize_with(normalization[id_])

    def _part(self, module_id: ModuleId) -> ModuleTrajectories:
        module = self._modules()[module_id]
        of, part = self._parts.get(module_id, (None, None))
        if part is None or of is not module:  # a module of that id may be another one by now
            # Nothing is learnt from what a module without weights does.
            is_random = isinstance(module, RandomRLModule)
            part = ModuleTrajectories(
                module,
                logp=self._policies()[module_id].logp_in,
                postprocessing=None if is_random else self._runner.spec.postprocessing,
            )
            if self._normalization is not None and module_id in self._normalization:
                part.normalize_with(self._normalization[module_id])
            self._parts[module_id] = module, part
        return part

    def fire(self, episode: MultiAgentEpisode) -> JointRewrite | None:
        """Fires the event for each agent with rows since the episode began or was cut.

        Returns:
            what is to be written into the chunk.

        Raises:
            CallbackError: a callback raised, or left what cannot be learnt from.
        """
        chunks = {agent: one for agent, one in episode.agent_episodes.items() if len(one)}
        parts = {agent: self._part(chunk.module_id) for agent, chunk in chunks.items()}
        shown = {
            agent: parts[agent].shown(chunks[agent], **_columns(episode, agent)) for agent in chunks
        }
        rewrites = {agent: self._rewritten(episode, agent, parts[agent], shown) for agent in chunks}
        changed = {agent: rewrite for agent, rewrite in rewrites.items() if rewrite is not None}
        return JointRewrite(changed) if changed else None

    def _rewritten(
        self,
        episode: MultiAgentEpisode,
        agent: AgentId,
        part: ModuleTrajectories,
        shown: Mapping[AgentId, ShownChunk],
    ) -> Rewrite | None:
        runner, modules = self._runner, self._modules()
        originals = {}
        for other, chunk in shown.items():
            of = episode.module_for(other) or ""
            originals[other] = (of, modules[of], chunk.original)
        arguments: dict[str, Any] = {
            "env_runner": runner,
            "metrics_logger": runner.metrics,
            "episode": episode,
            "agent_id": agent,
            "policy_id": episode.module_for(agent),
            "policies": dict(modules),
            "postprocessed_batch": shown[agent].batch,
            "original_batches": originals,
        }
        self._emit(**arguments)
        try:
            return part.rewrite_of(shown[agent])
        except EpisodeError as error:
            raise runner.callbacks.blame(TRAJECTORY_EVENT, arguments, error) from error


def _columns(episode: MultiAgentEpisode, agent: AgentId) -> dict[str, Any]:
    """The columns that tell how an agent's rows lie among those of the others."""
    env_t = episode.agent_t_to_env_t(agent)[:-1]
    rank = list(episode.possible_agents or episode.agent_ids).index(agent)
    return {
        ENV_T: env_t,
        AGENT_INDEX: np.full(len(env_t), rank, np.int64),
        EPISODE_IDS: np.array([episode.id_] * len(env_t)),
    }
