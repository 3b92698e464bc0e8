"""Environments: how they are named and made, what an env is told, several of them side by side."""

from trainer.envs.copied_agents import CopiedAgents, make_multi_agent
from trainer.envs.env_factory import (
    EnvContext,
    EnvFactory,
    VectorEnv,
    make_env_factory,
    packed_registrations,
    register_env,
    take_over_registrations,
)
from trainer.envs.env_state import EnvState, StatefulEnv, silent_wrappers, why_no_env_state
from trainer.envs.multi_agent_checks import AnswerChecks, check_agents_finite
from trainer.envs.multi_agent_env import (
    EnvAgents,
    MultiAgentEnv,
)
from trainer.envs.multi_agent_wrappers import AgentIndicator, CommonReward, PadObservations
from trainer.envs.pettingzoo_envs import ParallelPettingZooEnv, PettingZooEnv, as_multi_agent_env
