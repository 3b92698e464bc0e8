"""Networks that fail as told while they act."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.modules import RLModule
from trainer.testing.fault_watch import FaultWatch, RunnerOfCall
from trainer.testing.faults import Fault
from trainer.types import Array


def faulty_module(module_class: type[RLModule], *faults: Fault) -> type[RLModule]:
    """A subclass whose forward passes for acting fail as told.

        RLModuleSpec(module_class=faulty_module(ActorCriticModule, Fault("forward", on_call=5)))

    A network makes one pass when its runner is made, which counts as its first call. Give
    `worker_index`, or the network of the main process may fail as well.

    Args:
        module_class: what goes on as it is where nothing fails.
        faults: what is to fail; those with other places than "forward" are left to others.
    """

    class FaultyModule(module_class):  # type: ignore[misc, valid-type]
        """Fails before it acts."""

        def setup(self) -> None:
            """Makes the network."""
            super().setup()
            self.fault_watch = FaultWatch(faults)

        def forward_inference(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            """As the network does it, unless it is to fail."""
            _strike(self.fault_watch)
            outputs: dict[str, Array] = super().forward_inference(batch)
            return outputs

        def forward_exploration(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            """As the network does it, unless it is to fail."""
            _strike(self.fault_watch)
            outputs: dict[str, Array] = super().forward_exploration(batch)
            return outputs

    return FaultyModule


def _strike(watch: FaultWatch) -> None:
    fault = watch.due("forward", RunnerOfCall.at_work())
    if fault is not None:
        fault.act()
