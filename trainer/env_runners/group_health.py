"""What there is in a group of env runners, and what of it is well."""

from __future__ import annotations

from trainer.env_runners.group_parts import GroupParts
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.errors import RunnerLostError
from trainer.types import DEFAULT_MODULE_ID


class GroupHealth(GroupParts):
    """Adds the questions about its runners to a group."""

    @property
    def local_env_runner(self) -> SingleAgentEnvRunner | None:
        """The runner of the main process; None if the runners are remote, or were stopped.

        It holds the newest weights and positions: what it would get with the next request, such as
        a restored state, it gets here. A runner that a restore closed is made anew.
        """
        place = self._places.get(0)
        if place is None:
            return None
        if place.lacks_something(self._weights) and not self._is_stopped:
            self._bring_up_to_date([0])
        return place.runner

    def healthy_env_runner_ids(self) -> list[int]:
        """Numbers of the runners that can be asked; 0 is the local one."""
        return [index for index, place in self._places.items() if not place.is_given_up]

    def _healthy_or_raise(self) -> list[int]:
        indices = self.healthy_env_runner_ids()
        if not indices:
            first = next(iter(self._places.values()))
            what = "evaluation env runners" if first.spec.in_evaluation else "env runners"
            raise RunnerLostError(
                f"All {len(self._places)} {what} failed and may not be replaced, so there is "
                "nobody left to play. The log has the failures. Correct the env, or let runners "
                "be replaced: config.fault_tolerance(restart_failed_env_runners=True)."
            )
        return indices

    def num_remote_env_runners(self) -> int:
        """How many remote runners there are, healthy or not."""
        return len(self._places) if self._pool is not None else 0

    def num_healthy_env_runners(self) -> int:
        """How many runners can be asked, the local one included."""
        return len(self.healthy_env_runner_ids())

    def num_healthy_remote_workers(self) -> int:
        """How many remote runners can be asked."""
        return len(self.healthy_env_runner_ids()) if self._pool is not None else 0

    def num_remote_worker_restarts(self) -> int:
        """How many remote runners were replaced so far."""
        return self.num_restarts

    def num_sub_environment_restarts(self) -> int:
        """How many sub-envs were made anew alone so far (`restart_failed_sub_environments`)."""
        return self.num_sub_env_restarts

    @property
    def env_name(self) -> str:
        """What messages call the env."""
        return next(iter(self._places.values())).spec.env_factory.name

    def env_runner_pids(self) -> dict[int, int]:
        """Process ids of the remote runners that have a process, by number."""
        slots = self._pool.slots if self._pool is not None else {}
        pids = {index: slot.pid for index, slot in slots.items()}
        return {index: pid for index, pid in pids.items() if pid is not None}

    def is_policy_to_train(self, policy_id: str = DEFAULT_MODULE_ID, batch: object = None) -> bool:
        """Whether the module of that id learns: the one that there is does."""
        del batch
        return policy_id == DEFAULT_MODULE_ID

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.kill()
