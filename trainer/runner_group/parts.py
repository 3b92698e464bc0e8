"""What a group of env runners is made of: what its parts in several files share.

Calls of users' functions in env runners that the main process does not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from trainer.env_runners.messages import EnvRunnerSpec, Weights
from trainer.env_runners.worker_service import ApplyReply
from trainer.metrics import EpisodeRecord
from trainer.modules import RLModuleSpec
from trainer.runner_group.plays import TicketPlay
from trainer.runner_group.records import RunnerPlace
from trainer.runner_group.rounds import Ask, Round, RoundResult
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import State

# ---- async calls

_LOOK_EVERY_S: Final = 0.5

OnAnswers = Callable[[Mapping[int, Any], Collection[int]], None]
"""Told the answers by runner number, as they come in, and which of them somebody will fetch."""


class AsyncCalls:
    """One call at most under way per runner; what comes in is kept until it is fetched."""

    def __init__(
        self,
        round_: Round,
        on_answers: OnAnswers,
        on_over: Callable[[RoundResult, Collection[int]], None],
    ) -> None:
        """Begins without a call.

        Args:
            round_: the round in which they are made.
            on_answers: told the answers.
            on_over: told what came out of the round, once nobody owes an answer, and whose last
                answer somebody will fetch.
        """
        self._round = round_
        self._on_answers = on_answers
        self._on_over = on_over
        self._under_way: set[int] = set()
        self._to_be_fetched: set[int] = set()
        self._is_over = False
        round_.begin({})

    @property
    def num_under_way(self) -> int:
        """Calls without an answer so far."""
        return len(self._under_way)

    def is_busy(self, indices: Collection[int]) -> bool:
        """Whether one of these runners has a call under way."""
        return not self._under_way.isdisjoint(indices)

    def ask(self, asks: Mapping[int, Ask], *, keeps_answers: bool) -> int:
        """Makes calls in those runners that have none under way.

        Args:
            asks: the calls, by runner number.
            keeps_answers: somebody will fetch them.

        Returns:
            how many were made.
        """
        accepted = [index for index in asks if index not in self._under_way]
        for index in accepted:
            self._under_way.add(index)
            (self._to_be_fetched.add if keeps_answers else self._to_be_fetched.discard)(index)
            self._round.ask(index, asks[index])
        return len(accepted)

    def advance(self, timeout_s: float) -> bool:
        """Takes the answers that are there.

        Args:
            timeout_s: how long to wait if there is none.

        Returns:
            whether no call is under way any more.
        """
        if self._is_over:
            return True
        is_idle = self._round.advance(timeout_s)
        answers = self._round.take_answers()
        self._under_way -= answers.keys()
        self._on_answers(answers, self._to_be_fetched)
        if is_idle:
            self._under_way.clear()  # who was given up will not answer
            self._is_over = True
            self._on_over(self._round.end(), self._to_be_fetched)
        return is_idle

    def finish(self) -> None:
        """Waits until no call is under way; an interrupt ends them."""
        try:
            while not self.advance(_LOOK_EVERY_S):
                pass
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Ends whoever is still at work."""
        self._is_over = True
        self._under_way.clear()
        self._round.abandon()


# ---- group parts


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
