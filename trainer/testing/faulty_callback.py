"""A callback that fails as told: in any event, or while its state travels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from callbacks import EVENTS, RLlibCallback
from trainer.env_runners.global_worker import get_global_worker
from trainer.testing.fault_watch import FaultWatch, RunnerOfCall
from trainer.testing.faults import Fault
from trainer.testing.parcels import Parcel


class FaultyCallback(RLlibCallback):
    """Fails in the events that its faults name, and listens to no other.

        config.callbacks([FaultyCallback(Fault("on_episode_end", way="raise"))])

    Faults with the places "pack" and "unpack" happen when the state of this callback travels from a
    runner's process to the main process, which it does with every answer; of their conditions,
    those that name a runner count. Faults with other places are left to others.
    """

    def __init__(self, *faults: Fault) -> None:
        self._watch = FaultWatch(faults)
        self._episode_ids: dict[str, int] = {}
        for event in {fault.place for fault in faults} & EVENTS.keys():
            # Only these: an event without a listener is not fired.
            setattr(self, event, partial(self._hear, event))

    def _hear(self, event: str, **arguments: Any) -> None:
        runner = RunnerOfCall()
        if EVENTS[event].scope == "env_runner":
            runner = RunnerOfCall.of(arguments.get("env_runner") or get_global_worker())
        episode = arguments.get("episode")
        fault = self._watch.due(
            event,
            runner,
            env_index=arguments.get("env_index"),
            episode=None if episode is None else self._number_of(episode.id_),
            step=None if episode is None else episode.t,
        )
        if fault is None:
            return
        if fault.way == "huge_reply" and episode is not None:
            episode.custom_data["parcel"] = Parcel(fault)
        else:
            fault.act()

    def _number_of(self, episode_id: str) -> int:
        return self._episode_ids.setdefault(episode_id, len(self._episode_ids) + 1)

    def get_state(self) -> dict[str, Any]:
        """What arrives as None, unless it fails on its way."""
        runner = RunnerOfCall.at_work()
        if not runner.worker_index:  # in the main process it travels nowhere
            return {"parcel": None}
        for place in ("pack", "unpack"):
            fault = self._watch.due(place, runner, claims=False)
            if fault is not None:
                return {"parcel": Parcel(fault)}
        return {"parcel": None}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Nothing is to be put back."""
