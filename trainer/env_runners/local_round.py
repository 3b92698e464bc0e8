"""A round of requests to the runner of the main process.

The steps are those of a remote round, without a process that could be lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer.env_runners.request_round import Ask, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.servant import apply_to_runner, report_of
from trainer.env_runners.spec import Weights
from trainer.runtime.blas_threads import single_threaded_blas


def run_locally(
    places: Mapping[int, RunnerPlace], asks: Mapping[int, Ask | None], weights: Weights | None
) -> RoundResult:
    """Asks the local runner; what the user's code raises comes out as it is, and a debugger works.

    After an error the runner stands somewhere in the middle of the request; the next round puts it
    back first.
    """
    result = RoundResult()
    # The same number of BLAS threads as in a worker process, so that both compute the same bytes.
    with single_threaded_blas():
        for index, ask in asks.items():
            place = places[index]
            if place.runner is None:
                place.runner = place.bootstrap(weights).make_runner()
                result.add_report(index, report_of(place.runner), place=place)
            if ask is None:
                continue
            sync = place.sync(weights)
            if ask.method == "apply":
                result.answers[index] = apply_to_runner(place.runner, sync, *ask.arguments)
            else:
                place.runner.synchronize(sync)
                result.answers[index] = place.runner.answer(*ask.arguments)
    return result
