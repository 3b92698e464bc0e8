"""A round of requests to the runner of the main process.

The steps are those of a remote round, without a process that could be lost.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Any

from trainer.env_runners.crash_files import CrashFiles
from trainer.env_runners.rounds import Ask, Round, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.servant import apply_to_runner, report_of
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.env_runners.spec import SampleReply, SampleRequest, Sync, Weights
from trainer.runtime.blas_threads import single_threaded_blas
from trainer.runtime.deferred_signals import signals_deferred

_LOGGER = logging.getLogger(__name__)


class LocalRound(Round):
    """Asks the local runner; what the user's code raises comes out as it is, and a debugger works.

    After an error the runner stands somewhere in the middle of the request; the next round puts it
    back first.
    """

    def __init__(
        self,
        places: Mapping[int, RunnerPlace],
        *,
        weights: Weights | None,
        crash_files: CrashFiles,
    ) -> None:
        super().__init__()
        self._crash_files = crash_files
        self._places = places
        self._weights = weights
        self._waiting: deque[tuple[int, Ask | None]] = deque()

    def ask(self, index: int, ask: Ask | None) -> None:
        """Asks when the round is advanced."""
        self._waiting.append((index, ask))

    def advance(self, timeout_s: float) -> bool:  # noqa: ARG002 - it does its work right away
        """Does all that was asked."""
        # The same number of BLAS threads as in a worker process, so that both compute the same
        # bytes.
        with single_threaded_blas():
            while self._waiting:
                self._do(*self._waiting.popleft())
        return True

    def _do(self, index: int, ask: Ask | None) -> None:
        place = self._places[index]
        place.is_busy = True
        try:
            runner = self._make(index, place) if place.runner is None else place.runner
            if ask is not None:
                self._result.answers[index] = self._answer(place, runner, ask)
        finally:
            place.is_busy = False

    def _make(self, index: int, place: RunnerPlace) -> SingleAgentEnvRunner:
        runner = place.bootstrap(self._weights).make_runner()
        with signals_deferred():
            self._result.add_report(index, report_of(runner), place=place)
            place.runner = runner
        return runner

    def _answer(self, place: RunnerPlace, runner: SingleAgentEnvRunner, ask: Ask) -> Any:
        try:
            sync = place.sync(self._weights)
            if ask.method == "apply":
                return apply_to_runner(runner, sync, *ask.arguments)
            return self._sample(place, runner, sync, *ask.arguments)
        except BaseException:
            # It may not have arrived, or not as a whole.
            place.weights = place.sent_normalization = None
            raise

    def _sample(
        self, place: RunnerPlace, runner: SingleAgentEnvRunner, sync: Sync, request: SampleRequest
    ) -> SampleReply:
        try:
            runner.synchronize(sync)
            return runner.answer(request)
        except Exception as error:
            why = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            kept = self._crash_files.write(place, self._weights, request, why=why)
            if kept:
                _LOGGER.warning("%s failed.%s", place.name.capitalize(), kept)
            raise

    def end(self) -> RoundResult:
        """What came out of it."""
        return self._result

    def abandon(self) -> None:
        """Does nothing of what is left to do."""
        self._waiting.clear()
