"""Requests in which something failed: kept for later, and played again."""

from __future__ import annotations

import logging

from trainer.env_runners.crash_files import CrashFiles, replay
from trainer.env_runners.group_parts import GroupParts
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.spec import SampleReply, SampleRequest
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


class GroupCrashes(GroupParts):
    """Adds what is kept of failures to a group."""

    _crash_files: CrashFiles

    def _keep_lost(self, place: RunnerPlace, request: SampleRequest, reply: SampleReply) -> None:
        """Keeps a request in which episodes were given up with their sub-env."""
        why = "\n".join(reply.restarts.texts)
        kept = self._crash_files.write(place, self._weights, request, why=why)
        if kept:
            _LOGGER.warning("%s gave episodes up.%s", place.name.capitalize(), kept)

    def replay(self, record: State) -> SampleReply | None:
        """Plays again in this process what a runner of such a group was asked; see `crash_files`.

        The group itself is not touched.
        """
        return replay(record, next(iter(self._places.values())).spec, self.module_spec)
