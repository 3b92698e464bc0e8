"""What every env runner offers to its users.

These are callbacks, functions given to `foreach_env_runner`, and custom evaluation functions.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping

from callbacks import CallbackChain
from trainer.env_runners.config_view import ConfigView
from trainer.env_runners.spec import EnvRunnerSpec
from trainer.envs import VectorEnv
from trainer.episodes import SingleAgentEpisode
from trainer.metrics import MetricsLogger
from trainer.modules import RLModule
from trainer.rllib_names.env_runner_names import EnvRunnerNames
from trainer.types import Array


class EnvRunner(EnvRunnerNames, abc.ABC):
    """Steps envs with a module's actions and hands out episodes.

    Life: constructed with a spec and everything it is to be brought up to date with; `sample` again
    and again, with new weights in between; `stop`.

    Attributes:
        spec: what it was made from.
        worker_index: 0 in the main process, 1 … n in processes.
        config: the settings, read-only; `config.in_evaluation` tells evaluation from training.
        env: its sub-envs (`env.envs`, `env.num_envs`).
        module: its network.
        metrics: its logger; what is logged here comes out under `env_runners/` of the result.
        weights_version: number of updates behind the weights that it acts with.
    """

    spec: EnvRunnerSpec
    config: ConfigView
    env: VectorEnv
    module: RLModule
    metrics: MetricsLogger
    callbacks: CallbackChain
    weights_version: int

    @property
    def worker_index(self) -> int:
        """Number of this runner: 0 in the main process."""
        return self.spec.worker_index

    @property
    def num_workers(self) -> int:
        """Number of env runner processes of its group."""
        return self.spec.num_workers

    @property
    def num_envs(self) -> int:
        """Number of its sub-envs."""
        return self.spec.num_envs

    @abc.abstractmethod
    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        """Plays and returns episodes; see `SingleAgentEnvRunner.sample`."""

    def get_weights(self) -> dict[str, Array]:
        """Copies of the module's weights by name."""
        return self.module.get_state()

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replaces the module's weights, until the next ones arrive from the learner."""
        self.module.set_state(dict(weights))

    def ping(self) -> str:
        """Answers "pong"."""
        return "pong"

    def assert_healthy(self) -> None:
        """Does nothing: a runner that exists is healthy.

        It has its env and its module, or else its constructor would have raised.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Closes the sub-envs. Idempotent."""
