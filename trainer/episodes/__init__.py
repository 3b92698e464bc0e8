"""Episodes: what agents saw, did and got, step by step."""

from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.episodes.multi_agent_episode import MultiAgentEpisode
from trainer.episodes.single_agent_episode import SingleAgentEpisode

__all__ = ["LookbackBuffer", "MultiAgentEpisode", "SingleAgentEpisode"]
