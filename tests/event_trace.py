"""A callback that keeps, per episode, which events fired with what: the golden event trace.

What it keeps is committed together with the steps it belongs to: the lines of a running episode lie
in `episode.custom_data` and travel with it through cuts, checkpoints and replays; at its end they
move to the callback's state. So nothing of a killed runner's unfinished answer is ever seen here,
and nothing is seen twice.
"""

import copy
import itertools
import zlib

import numpy as np

from callbacks import RLlibCallback
from trainer.types import DEFAULT_MODULE_ID

Line = tuple[str, int, int, float, int, tuple[str, ...]]
"""Event, env slot (-1 in evaluation), step, return so far, digest of the step, broken relations."""

TRAJECTORY = "trajectory"
"""The event that depends on where an episode is cut."""

Traces = dict[str, list[Line]]
"""The lines of each episode by its id."""


class EventTrace(RLlibCallback):
    """Notes the events of every episode, and whether the arguments are the objects they should be.

    For envs that are a `CountdownEnv`, whose observations are all different.

    Attributes:
        finished: the lines of the episodes that ended in this runner.
        others: names of the other events of this runner, in order.
    """

    def __init__(self):
        self.finished = {}
        self.others = []
        self._chunks = {}
        self._slots = {}
        self._env_runner = None

    def get_state(self):
        return copy.deepcopy({"finished": self.finished, "others": self.others})

    def set_state(self, state):
        self.finished = copy.deepcopy(state["finished"])
        self.others = list(state["others"])
        self._chunks.clear()  # running episodes were put back: they are other objects now

    def on_sub_environment_created(self, *, env_index, **arguments):
        self.others.append(f"on_sub_environment_created {env_index}")

    def on_environment_created(self, *, env_runner, **arguments):
        self._env_runner = env_runner
        self.others.append("on_environment_created")

    def on_create_policy(self, **arguments):
        self.others.append("on_create_policy")

    def on_sample_end(self, **arguments):
        self.others.append("on_sample_end")

    # The old names have to be asked for by name; without the defaults, mypy would object.

    def on_episode_created(self, *, worker=None, base_env=None, policies=None, **new):
        new["episode"].custom_data["trace"] = []
        self._note("created", new, worker=worker, base_env=base_env, policies=policies)

    def on_episode_start(self, *, worker=None, base_env=None, policies=None, **new):
        self._note("start", new, worker=worker, base_env=base_env, policies=policies)

    def on_episode_step(self, *, worker=None, base_env=None, policies=None, **new):
        self._note("step", new, worker=worker, base_env=base_env, policies=policies)

    def on_episode_end(self, *, worker=None, base_env=None, policies=None, **new):
        self._note("end", new, worker=worker, base_env=base_env, policies=policies)
        episode = new["episode"]
        self.finished[episode.id_] = list(episode.custom_data["trace"])

    def on_postprocess_trajectory(
        self, *, env_runner, metrics_logger, episode, agent_id, policy_id,
        policies, postprocessed_batch, original_batches, worker=None,
        rl_module=None, **kwargs):  # fmt: skip
        first = self._chunks.setdefault((episode.id_, episode.t_started), episode)
        relations = {
            "episode is that of the chunk's earlier events": episode is first,
            "metrics_logger is env_runner.metrics": metrics_logger is env_runner.metrics,
            "policies hold the module": policies == {DEFAULT_MODULE_ID: env_runner.module},
            "worker is env_runner": worker is env_runner is self._env_runner,
            "rl_module is policies[policy_id]": rl_module is policies[policy_id],
            "the batch has the rows of the chunk": len(postprocessed_batch["rewards"])
            == len(original_batches[agent_id][-1]["rewards"])
            == len(episode)
            > 0,
            "the trajectory follows the one before": episode.t_started
            == max((t for name, _, t, *_ in _trace_of(episode) if name == TRAJECTORY), default=0),
            "nothing else is given": not kwargs,
        }
        self._append(TRAJECTORY, episode, self._slots[episode.id_], relations)

    def _note(self, event, new, **old):
        episode, env_runner = new["episode"], new["env_runner"]
        first = self._chunks.setdefault((episode.id_, episode.t_started), episode)
        relations = {
            "episode is that of the chunk's earlier events": episode is first,
            "env_runner is that which made the env": env_runner is self._env_runner,
            "env is env_runner.env": new["env"] is env_runner.env,
            "metrics_logger is env_runner.metrics": new["metrics_logger"] is env_runner.metrics,
            "rl_module is env_runner.module": new["rl_module"] is env_runner.module,
            "worker is env_runner": old["worker"] is env_runner,
            "base_env is env": old["base_env"] is new["env"],
            "policies hold rl_module": old["policies"] == {DEFAULT_MODULE_ID: new["rl_module"]},
            **_relations_of(event, new),
        }
        slot = max(0, env_runner.worker_index - 1) * new["env"].num_envs + new["env_index"]
        self._slots[episode.id_] = -1 if env_runner.config.in_evaluation else slot
        self._append(event, episode, self._slots[episode.id_], relations)

    def _append(self, event, episode, slot, relations):
        broken = tuple(name for name, holds in relations.items() if not holds)
        line = (event, slot, episode.t, episode.get_return(), _digest(episode), broken)
        _trace_of(episode).append(line)


def _trace_of(episode):
    return episode.custom_data["trace"]


def _relations_of(event, new):
    """What must hold between the episode and its sub-env in one event."""
    episode = new["episode"]
    env = new["env"].envs[new["env_index"]].unwrapped
    if event == "created" or not episode.is_reset:
        return {"created before the reset, the others after it": event == "created"}
    is_last = env.steps == env.length
    relations = {
        "env.envs[env_index] is what stepped": env.steps == episode.t
        and np.array_equal(env._observation(), episode.get_observations(-1)),
        "done in the last step and at the end": episode.is_done == is_last,
    }
    if event == "end":
        chunks = [*new["prev_episode_chunks"], episode]
        ends = [0, *(chunk.t for chunk in chunks)]
        relations["chunks follow each other from 0 on"] = ends[:-1] == [
            chunk.t_started for chunk in chunks
        ]
        relations["chunks are of this episode"] = {chunk.id_ for chunk in chunks} == {episode.id_}
    return relations


def _digest(episode):
    """A number that follows from the newest observation and the action that led to it."""
    if not episode.is_reset:
        return 0
    action = np.asarray(episode.get_actions(-1) if len(episode) else 0)
    return zlib.crc32(np.asarray(episode.get_observations(-1)).tobytes() + action.tobytes())


def tracers(algo, *, in_evaluation=False):
    """The committed state of every runner's EventTrace, in the order of the runners."""
    states = (
        algo.get_state("evaluation")["evaluation"]["evaluator"]["callbacks"]
        if in_evaluation
        else algo.get_state()["env_runners"]["callbacks"]
    )
    return [states[index]["objects"][0]["state"] for index in sorted(states)]


def finished_traces(algo, *, in_evaluation=False):
    """The traces of all episodes that ended in runners that the algorithm has."""
    found = {}
    for state in tracers(algo, in_evaluation=in_evaluation):
        assert not found.keys() & state["finished"].keys(), "an episode ended in two runners"
        found.update(state["finished"])
    return found


def running_traces(algo):
    """The traces so far of all training episodes that are running."""
    episodes = [slot["episode"] for slot in algo.get_state()["env_runners"]["slots"]]
    return {
        episode["id_"]: list(episode["custom_data"]["trace"])
        for episode in episodes
        if episode is not None
    }


def all_traces(algo):
    """The traces of finished and running training episodes."""
    return {**finished_traces(algo), **running_traces(algo)}


def without_trajectories(traces):
    """The traces without the events that depend on where episodes are cut."""
    return {
        episode_id: [line for line in trace if line[0] != TRAJECTORY]
        for episode_id, trace in traces.items()
    }


def outline(trace):
    """Events and steps of a trace: what can be written down by hand."""
    return [(event, step) for event, _, step, *_ in trace if event != TRAJECTORY]


def expected_outline(num_steps, *, is_finished=True):
    """The outline of an episode of so many steps."""
    steps = [("step", step) for step in range(1, num_steps + 1)]
    return [
        ("created", 0),
        ("start", 0),
        *steps,
        *([("end", num_steps)] if is_finished else []),
    ]


def problems_of(traces):
    """What is wrong with traces, whatever they are compared with: relations, order, numbers."""
    problems = set()
    for trace in traces.values():
        problems |= {name for line in trace for name in line[5]}
        is_finished = trace[-1][0] == "end"
        if outline(trace) != expected_outline(trace[-1][2], is_finished=is_finished):
            problems.add("order and number of events")
        for before, line in itertools.pairwise(trace):
            is_of_training = line[1] >= 0
            if line[0] == TRAJECTORY and (before[0] != "step" or before[2] != line[2]):
                problems.add("a trajectory comes after its last step")
            if line[0] == "end" and is_of_training != (before[0] == TRAJECTORY):
                problems.add("the end comes after the last trajectory, in evaluation without")
    return problems
