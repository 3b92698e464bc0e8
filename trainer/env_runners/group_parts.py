"""What a group of env runners is made of: what its parts in several files share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainer.env_runners.async_calls import AsyncCalls
from trainer.env_runners.rounds import Ask, Round, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.servant import ApplyReply
from trainer.env_runners.spec import EnvRunnerSpec, Weights
from trainer.env_runners.ticket_play import TicketPlay
from trainer.metrics import EpisodeRecord
from trainer.modules import RLModuleSpec
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import State


class GroupParts:
    """The attributes of a group, and what its parts call of each other.

    Attributes:
        num_restarts: runners that were replaced after failures so far.
        num_sub_env_restarts: sub-envs that were made anew alone so far.
        num_recorded: episodes that users' functions let evaluation runners play to the end, since
            the evaluation began.
        is_training: an iteration is under way, which may have to be undone.
    """

    num_restarts: int
    num_sub_env_restarts: int
    num_recorded: int
    is_training: bool
    module_spec: RLModuleSpec
    _stall_limit_s: float | None
    _limited_by: str
    _places: dict[int, RunnerPlace]
    _pool: WorkerPool | None
    _is_stopped: bool
    _weights: Weights | None
    # What is under way while the main process does something else.
    _open: TicketPlay | AsyncCalls | None
    # Episodes that users' functions let evaluation runners play, until somebody takes them.
    _records: list[EpisodeRecord]
    # Answers that nobody has fetched.
    _ready: list[tuple[int, Any]]
    # Calls that raised, until somebody fetches their answers.
    _failed_calls: RoundResult
    # Running episodes that were given up, and their env steps, until the next sample tells them.
    _num_episodes_lost: int
    _num_env_steps_lost: int
    # What the next sample says about slots of a restored state; empty for nothing.
    _untold_drop: str

    def _make_places(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        """Makes empty places, and a pool for them unless the one runner is that of this process."""
        raise NotImplementedError

    def _new_round(self) -> Round:
        """A round for what is asked next; what is under way is finished first."""
        raise NotImplementedError

    def _run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        """Carries a round through."""
        raise NotImplementedError

    def _bring_up_to_date(self, indices: Collection[int]) -> None:
        """Lets some runners hold at once what they are to hold."""
        raise NotImplementedError

    def _take_over(self, result: RoundResult) -> None:
        """Notes what came out of a round."""
        raise NotImplementedError

    def _tell_recreated(self) -> None:
        """Tells who was replaced since this was last called."""
        raise NotImplementedError

    def _finish_open(self) -> None:
        """Waits for what is under way; its outcome stays there for who began it."""
        raise NotImplementedError

    def _abandon_open(self) -> None:
        """Ends what is under way; nothing comes of it."""
        raise NotImplementedError

    def _chosen(
        self, *, local_env_runner: bool, remote_worker_ids: Sequence[int] | None
    ) -> list[int]:
        """The numbers of the runners that a user means."""
        raise NotImplementedError

    def _asks(
        self, func: Any, kwargs: Any, indices: Sequence[int], *, stall_limit_s: float | None = None
    ) -> dict[int, Ask]:
        """The calls of a user's function in some runners."""
        raise NotImplementedError

    def _ask_without_waiting(self, asks: Mapping[int, Ask], *, keeps_answers: bool) -> int:
        """Makes calls in runners without waiting for the answers; how many."""
        raise NotImplementedError

    def _commit_applied(self, answers: Mapping[int, ApplyReply]) -> None:
        """Takes over what users' functions changed."""
        raise NotImplementedError

    def healthy_env_runner_ids(self) -> list[int]:
        """Numbers of the runners that can be asked; 0 is the local one."""
        raise NotImplementedError

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data."""
        raise NotImplementedError

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request."""
        raise NotImplementedError
