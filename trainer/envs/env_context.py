"""What an env is told when it is made: its settings, and its place in the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints.arguments import checked_methods
from trainer.episodes.episode_state import copied_containers


@checked_methods()
class EnvContext(dict[str, Any]):
    """The `env_config` of one sub-env (a dict), with its place as attributes.

    Every sub-env gets its own, so an env that changes its context does not affect its siblings.

    Attributes:
        worker_index: number of the env runner, 0 in the main process, 1 … n elsewhere.
        vector_index: number of the sub-env in its runner, from 0.
        num_workers: number of env runner processes, 0 if the main process samples.
        remote: always False here; kept for code written for RLlib.
        recreated_worker: whether this runner replaces one that failed or was interrupted.
        is_evaluation: whether the env belongs to an evaluation runner: those have the same worker
            indices as the training runners.
        unique_index: a number ≥ 0 that no other sub-env of this algorithm has, in whichever process
            and whether it trains or evaluates: for ports, files and the like. Training envs have
            even numbers, evaluation envs odd ones, each from the lowest; an env that is made again
            has the same one.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        worker_index: int,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
        recreated_worker: bool = False,
        *,
        is_evaluation: bool = False,
        unique_index: int = 0,
    ) -> None:
        # The order of the arguments is RLlib's: users' code may give them by position.
        super().__init__(env_config)
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers
        self.recreated_worker = recreated_worker
        self.is_evaluation = is_evaluation
        self.unique_index = unique_index

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **place: Any
    ) -> EnvContext:
        """A new context with other settings or another place.

        Dicts, lists and arrays in the settings are copied; other objects, such as open files, are
        shared.

        Args:
            env_config: replaces the settings; None keeps them.
            place: any of worker_index, vector_index, remote, num_workers, recreated_worker,
                is_evaluation, unique_index.
        """
        arguments = self._place()
        unknown = sorted(set(place) - set(arguments))
        if unknown:
            raise TypeError(
                f"EnvContext has no {', '.join(unknown)}; it has {', '.join(arguments)}."
            )
        return EnvContext(
            copied_containers(dict(self if env_config is None else env_config)),
            **{**arguments, **place},
        )

    def _place(self) -> dict[str, Any]:
        return {
            "worker_index": self.worker_index,
            "vector_index": self.vector_index,
            "remote": self.remote,
            "num_workers": self.num_workers,
            "recreated_worker": self.recreated_worker,
            "is_evaluation": self.is_evaluation,
            "unique_index": self.unique_index,
        }

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Fills in the settings that are missing."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def __str__(self) -> str:
        place = f"worker={self.worker_index}/{self.num_workers}, vector_index={self.vector_index}"
        return (
            f"{super().__str__()}({place}, remote={self.remote}, recreated={self.recreated_worker}"
            f", is_evaluation={self.is_evaluation}, unique_index={self.unique_index})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (dict(self), self._place())


def _remade(env_config: dict[str, Any], place: dict[str, Any]) -> EnvContext:
    return EnvContext(env_config, **place)
