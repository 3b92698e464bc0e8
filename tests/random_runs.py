"""Runs of features drawn together, undisturbed and with faults in every iteration.

    python -m tests.random_runs FIRST LAST        tells of each seed what differs

A seed says what is trained (`drawn`) and what happens to it (`disturbed`): runners die in mid-step
or whenever the main process has come so far, Ctrl-C comes there, envs raise, or an iteration fails
at its very end. Whatever fails is made again. All of them, the first iteration included, have to
come to the bytes of the run that nothing happened to.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from callbacks import RLlibCallback
from checkpoints import encode
from tests import exact_runs, multi_agent_runs
from tests.exact_runs import die_soon, fail_soon
from tests.memory_modules import MODELS
from tests.multi_agent_runs import Drawing, Gaps, Pushing, told
from tests.resume_cells import ALGORITHMS, Remembering, different
from tests.resume_envs import LateWalk, StatefulWalk, Walk
from tests.vector_walks import Roaming
from trainer import ConfigError
from trainer.errors import ModuleError, UnsupportedSpaceError
from trainer.modules import Matchups
from trainer.testing.envs import RestlessEnv

NUM_ITERATIONS = 4
_MOST_ATTEMPTS = 12
"""At one iteration: faults that were not come to may happen in later ones."""

Generator = np.random.Generator

# ---- what is drawn


class Env(NamedTuple):
    """What is played, and the algorithms that can; `but` are features that it goes without."""

    env: Any
    algorithms: tuple[str, ...] = ("PPO", "APPO", "PG", "DQN", "SAC")
    env_config: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    but: tuple[str, ...] = ()


_ON_POLICY = ("PPO", "APPO", "PG")
_OFF_POLICY = ("DQN", "SAC", "TD3", "DDPG")
_FORCES = ("PPO", "APPO", "PG", "SAC", "TD3", "DDPG")
_SHORT = {"min_length": 5, "max_length": 40}

ENVS = {
    "CartPole": Env("CartPole-v1"),
    "own np_random": Env(Walk),
    "get_state": Env(StatefulWalk),
    "own generator": Env(RestlessEnv, env_config=_SHORT),
    "own generator, wrapped": Env(exact_runs.in_wrappers, env_config=_SHORT),
    "no state before a reset": Env(LateWalk),
    "forces": Env(StatefulWalk, _FORCES, {"continuous": True}),
    "forces, no state before a reset": Env(LateWalk, _FORCES, {"continuous": True}),
    "statistics of wrappers": Env(exact_runs.carrying_over),
    "tasks": Env(
        exact_runs.task_env,
        env_config={"min_length": 6},
        settings={"env_task_fn": exact_runs.task_of_iteration},
    ),
    "masks": Env(exact_runs.MaskedEnv, ("PPO", "APPO", "PG", "DQN"), but=("rewriting", "pieces")),
    "nested actions": Env(exact_runs.NestedEnv, _ON_POLICY, but=("pieces",)),
    "vector env": Env(Roaming, settings={"gym_env_vectorize_mode": "vector_entry_point"}),
    "vector CartPole": Env(
        "CartPole-v1", settings={"gym_env_vectorize_mode": "vector_entry_point"}
    ),
}


class Feature(NamedTuple):
    """Settings that some algorithms take; where there are several, one is drawn."""

    algorithms: tuple[str, ...]
    settings: tuple[Mapping[str, Any], ...]


def _exploring(type_, **more):
    return {"exploration_config": {"type": type_, **more}}


def _replay(**buffer):
    return {"replay_buffer_config": {"capacity": 90, **buffer}}


_ALL = tuple(ALGORITHMS)
_TINY = {"feature_dim": 4, "feature_net_config": {"fcnet_hiddens": [6]}}
_EVALUATION = {"evaluation_interval": 1, "evaluation_duration": 2}
FEATURES = {
    "normalised observations": Feature(_ALL, ({"observation_filter": "MeanStdFilter"},)),
    "rewards": Feature(_ALL, ({"normalize_rewards": True}, {"clip_rewards": 0.5})),
    "whole episodes": Feature(_ON_POLICY, ({"batch_mode": "complete_episodes"},)),
    "ahead": Feature(_ON_POLICY, ({"sample_ahead": True}, {"sample_ahead": 4})),
    "memory": Feature(_ON_POLICY, tuple({"model": model} for model in MODELS.values())),
    "evaluation": Feature(
        _ALL,
        (
            _EVALUATION,
            {**_EVALUATION, "evaluation_interval": 2, "evaluation_num_env_runners": 1},
            {
                **_EVALUATION,
                "evaluation_num_env_runners": 1,
                "evaluation_parallel_to_training": True,
            },
            {**_EVALUATION, "evaluation_duration": 9, "evaluation_duration_unit": "timesteps"},
        ),
    ),
    "exploration": Feature(
        ("PPO", "PG", "DQN"),
        (
            _exploring("EpsilonGreedy", epsilon_timesteps=150),
            _exploring("SoftQ", temperature=0.7),
            _exploring("ParameterNoise", random_timesteps=30),
            _exploring("Curiosity", sub_exploration={"type": "EpsilonGreedy"}, **_TINY),
            _exploring("Random"),
        ),
    ),
    "noise": Feature(
        ("SAC", "TD3", "DDPG", "PG"),
        (
            _exploring("OrnsteinUhlenbeckNoise", random_timesteps=30, scale_timesteps=200),
            _exploring("GaussianNoise", random_timesteps=30),
        ),
    ),
    "replay": Feature(
        _OFF_POLICY,
        (
            _replay(type="EpisodeReplayBuffer"),
            _replay(type="PrioritizedEpisodeReplayBuffer"),
            {**_replay(), "n_step": 1},
            {**_replay(), "tau": 0.1, "target_network_update_freq": 1},
        ),
    ),
    "sub-envs made anew": Feature(_ALL, ({"restart_failed_sub_environments": True},)),
    "callbacks": Feature(
        _ALL,
        (
            {"callbacks_class": Remembering},
            {"callbacks_class": exact_runs.PlusOneAtTheEnd},
            {"callbacks_class": [Remembering, exact_runs.PlusOneAtTheEnd]},
        ),
    ),
    "rewriting": Feature(("PPO",), ({"callbacks_class": exact_runs.Rewriting},)),
    "pieces": Feature(
        _ALL,
        (
            {
                "env_to_module_connector": exact_runs.pieces,
                "module_to_env_connector": lambda *_: exact_runs.Inverted(),
            },
            {"env_to_module_connector": exact_runs.pieces},
        ),
    ),
    "agent steps": Feature(("several agents",), ({"count_steps_by": "agent_steps"},)),
    "a connector": Feature(
        ("several agents",), ({"env_to_module_connector": lambda *_: exact_runs.Counted()},)
    ),
}

CHANCE = 0.3
"""Of each feature that fits."""


class Changing(RLlibCallback):
    """Adds and removes modules, whose episodes are given up, and says who acts and learns."""

    def __init__(self, plan):
        self.plan = plan
        self.told = []

    def on_create_policy(self, *, policy_id, **_):
        self.told.append(policy_id)

    def on_train_result(self, *, algorithm, **_):
        number = algorithm.training_iteration
        getattr(self, f"_{self.plan[number % len(self.plan)]}")(algorithm, f"new_{number}")

    def _add(self, algorithm, new):
        source = "main" if len(new) % 2 else None
        algorithm.add_module(
            new, copy_of=source, new_agent_to_module_mapping_fn=self._matchups(algorithm, new)
        )

    def _remove(self, algorithm, _):
        for last in sorted(set(algorithm.module_specs) - {"main"})[-1:]:
            mapping = self._matchups(algorithm, without=last)
            algorithm.remove_module(last, new_agent_to_module_mapping_fn=mapping)

    def _learn(self, algorithm, _):
        ids = sorted(algorithm.module_specs)
        algorithm.set_policies_to_train(ids[:: 1 + algorithm.training_iteration % 2])

    def _leave(self, algorithm, _):
        """Nothing changes."""

    def _matchups(self, algorithm, *more, without=""):
        ids = sorted({*algorithm.module_specs, *more} - {without})
        return Matchups([(1.0 + place, {"a": "main", 3: id_, "late": id_})
                         for place, id_ in enumerate(ids)])  # fmt: skip


class Run(NamedTuple):
    """What is trained.

    Attributes:
        name: what was drawn.
        make: makes its config.
        can_raise: its envs can be told to raise at a step.
        can_be_asked: its runners can be asked between two iterations, and nothing changes: others
            would hear of new modules, or say where envs with tasks stand.
    """

    name: str
    make: Callable[[], Any]
    can_raise: bool = True
    can_be_asked: bool = True


def drawn(seed):
    """The run of a seed."""
    for number in itertools.count():
        rng = np.random.default_rng([seed, number])
        draw = _drawn_for_several if rng.random() < 0.3 else _drawn_for_one
        run = draw(rng)
        # Some features exclude each other, or the spaces of the env.
        with contextlib.suppress(ConfigError, UnsupportedSpaceError):
            run.make().env_runners(num_env_runners=0).build_algo().stop()
            return run
    raise AssertionError


def _drawn_for_one(rng):
    algorithm = str(rng.choice(_ALL))
    env_name = str(rng.choice([name for name, env in ENVS.items() if algorithm in env.algorithms]))
    env = ENVS[env_name]
    num_runners, num_envs = int(rng.integers(3)), int(rng.integers(1, 4))
    names, settings = _features(rng, algorithm, but=env.but)
    is_vector = "gym_env_vectorize_mode" in env.settings
    num_envs = 3 if is_vector else num_envs
    env_config = {**env.env_config, "num_envs_per_env_runner": num_envs}

    def make():
        made = ALGORITHMS[algorithm]().environment(env.env)
        made.environment(env_config={} if isinstance(env.env, str) else env_config)
        made.env_runners(num_env_runners=num_runners, num_envs_per_env_runner=num_envs)
        made.rl_module(model_config={"fcnet_hiddens": [8]}).debugging(seed=7)
        return made.update_from_dict({**env.settings, **settings})

    name = f"{algorithm}, {env_name}, {num_runners} x {num_envs}, {names}"
    return Run(name, make, not is_vector, can_be_asked="env_task_fn" not in env.settings)


def _drawn_for_several(rng):
    algorithm = str(rng.choice(["PPO", "DQN", "SAC"]))
    env = rng.choice(np.array([Drawing, Gaps, Pushing] if algorithm == "SAC" else [Drawing, Gaps]))
    num_runners, num_envs = int(rng.integers(3)), int(rng.integers(1, 4))
    plan = tuple(str(step) for step in rng.choice(["add", "remove", "learn", "leave"], 4))
    names, settings = _features(rng, algorithm, "several agents", but=_FOR_ONE)
    callbacks = settings.pop("callbacks_class", [])
    callbacks = [*callbacks] if isinstance(callbacks, list) else [callbacks]

    def make():
        made = _of_several(algorithm, num_runners, num_envs).environment(env)
        made.multi_agent(
            policies={"main", "other"},
            policy_mapping_fn={"a": "main", 3: "other", "late": "other"},
        )
        made.update_from_dict(settings)
        return made.callbacks([functools.partial(Changing, plan), *callbacks])

    name = f"{algorithm}, {env.__name__}, {num_runners} x {num_envs}, {plan}, {names}"
    return Run(name, make, can_be_asked={*plan}.isdisjoint({"add", "remove"}))


def _of_several(algorithm, num_runners, num_envs):
    if algorithm == "PPO":
        return multi_agent_runs.gaps(num_runners, num_envs)
    type_ = "EpsilonGreedy" if algorithm == "DQN" else "OrnsteinUhlenbeckNoise"
    made = multi_agent_runs.exploring(type_, None, num_runners, num_envs)
    return made.training(replay_buffer_config={"capacity": 60}, target_network_update_freq=20)


_FOR_ONE = ("rewriting", "pieces", "noise", "exploration", "replay")
"""Features that runs of several agents go without: they have their own, or say less there."""


def _features(rng, *kinds, but):
    names, settings = [], dict[str, Any]()
    for name, feature in FEATURES.items():
        chosen = rng.random() < CHANCE, int(rng.integers(len(feature.settings)))
        if chosen[0] and name not in but and {*kinds} & {*feature.algorithms}:
            names.append(f"{name} {chosen[1]}")
            settings |= feature.settings[chosen[1]]
    return names, settings


# ---- what comes of it


@dataclass
class Course:
    """What a run came to.

    Attributes:
        states: after each number of iterations: digests of all that is known, by name.
        results: digests of what each iteration told, by its number.
        num_calls: of functions in the main process, by the number of the iteration.
    """

    states: dict[int, Mapping[str, str]] = field(default_factory=dict)
    results: dict[int, Mapping[str, str]] = field(default_factory=dict)
    num_calls: dict[int, int] = field(default_factory=dict)


def undisturbed(run):
    """What a run comes to that nothing happens to."""
    course = Course()
    with run.make().build_algo() as algo:
        course.states[0] = known(algo)
        for number in range(1, NUM_ITERATIONS + 1):
            counted = AtCall(sys.maxsize, lambda: None)
            with counted:
                result = algo.train()
            course.num_calls[number] = counted.count
            course.results[number] = digests(told(result))
            course.states[number] = known(algo)
    return course


def known(algo):
    """Digests of everything but the settings."""
    return {
        f"{name}/{key}": digest
        for name, part in algo.get_state(not_components="config").items()
        for key, digest in digests(part).items()
    }


def digests(tree):
    """Of the parts of a tree, by name."""
    return {
        str(name): hashlib.sha256(encode(multi_agent_runs.text_keys(part))).hexdigest()[:16]
        for name, part in tree.items()
    }


class AtCall:
    """A block in which something is done in the main thread at the n-th call of a function.

    A handler that raises where an object is finalized is lost, so that is passed by.
    """

    def __init__(self, number, act):
        self._number, self._act = number, act
        self._is_due = True
        self._around = None
        self.count = 0

    def __enter__(self):
        self._around = sys.getprofile()
        sys.setprofile(self._at)

    def __exit__(self, *_):
        sys.setprofile(self._around)

    def _at(self, frame, event, argument):
        if self._around is not None:
            self._around(frame, event, argument)
        if event != "call":
            return
        self.count += 1
        is_lost = frame.f_code.co_name in ("__del__", "_remove")
        if self._is_due and self.count >= self._number and not is_lost:
            self._is_due = False
            self._act()


# ---- faults


Fault = Callable[[int], Any]
"""Makes a block in which something happens at the n-th call, or step of an env."""


class DisturbedRun:
    """A run to which something happens in every iteration."""

    def __init__(self, run, expected, rng, folder):
        self.num_failures = self.num_kills = 0
        self.trouble = []
        self._run, self._expected, self._rng, self._folder = run, expected, rng, folder
        self._algo = run.make().build_algo()

    def play(self):
        """Trains to the end, whatever happens."""
        try:
            for number in range(1, NUM_ITERATIONS + 1):
                if self._rng.random() < 0.2:
                    self._go_on_elsewhere(number)
                self._train(number)
                if self.trouble:
                    return
        finally:
            self._algo.stop()

    def _train(self, number):
        """One iteration: a kill and a failure at once, then one of them or none, then neither."""
        attempts = [(self._killings(), self._failures()), ()]
        if self._rng.random() < 0.5:
            attempts[1] = ((*self._killings(), *self._failures()),)
        for attempt in range(_MOST_ATTEMPTS):
            if self._algo.training_iteration >= number or self.trouble:
                return
            kinds = attempts[attempt] if attempt < len(attempts) else ()
            self._attempt([self._drawn_fault(among, number) for among in kinds if among])
        self.trouble.append(f"iteration {number} failed {_MOST_ATTEMPTS} times")

    def _attempt(self, faults):
        before, name = self._algo.training_iteration, " and ".join(name for name, _ in faults)
        try:
            with contextlib.ExitStack() as stack:
                for _, block in faults:
                    stack.enter_context(block())
                result = self._algo.train()
            self._compare(self._expected.results[before + 1], digests(told(result)), name)
        except (KeyboardInterrupt, OSError):
            self.num_failures += 1
        self._compare(self._expected.states[self._algo.training_iteration], known(self._algo), name)

    def _compare(self, expected, found, name):
        if parts := different(expected, found):
            at = self._algo.training_iteration
            self.trouble.append(f"after {name or 'no fault'}, at iteration {at}: {parts}")

    def _go_on_elsewhere(self, number):
        path = self._algo.save_to_path(self._folder / str(number))
        self._algo.stop()
        self._algo = self._run.make().build_algo()
        self._algo.restore_from_path(path)
        self._compare(self._expected.states[number - 1], known(self._algo), "a restore")

    # ---- what happens

    def _failures(self):
        """What lets an iteration fail."""
        is_told = self._run.can_raise and self._run.can_be_asked
        raising = (self._raising,) if is_told else ()
        return (self._interrupting, self._interrupting, self._failing_at_the_end, *raising)

    def _killings(self):
        """What ends processes; nothing if there are none."""
        if not self._pids():
            return ()
        is_told = self._run.can_be_asked and self._algo.config.num_env_runners
        return (self._killing, *([self._killing_in_mid_step] if is_told else []))

    def _drawn_fault(self, among, number):
        calls = self._expected.num_calls
        # In the first iteration there is more to be done, such as imports, and only once.
        at = int(self._rng.integers(1, min(calls[number], calls[max(2, number)]) + 1))
        kind = among[int(self._rng.integers(len(among)))]
        return f"{kind.__name__} at {at} of {calls[number]}", functools.partial(kind, at)

    def _pids(self):
        groups = [self._algo.env_runner_group, self._algo.eval_env_runner_group]
        return [pid for group in groups if group for pid in group.env_runner_pids().values()]

    def _interrupting(self, at):
        return AtCall(at, lambda: signal.raise_signal(signal.SIGINT))

    def _killing(self, at):
        def kill():
            for pid in self._pids()[at % 2 :][:1]:
                with contextlib.suppress(ProcessLookupError):  # it was replaced a moment ago
                    os.kill(pid, signal.SIGKILL)
                    self.num_kills += 1

        return AtCall(at, kill)

    @contextlib.contextmanager
    def _killing_in_mid_step(self, at):
        die = functools.partial(die_soon, victim=1, num_steps=at % 12)
        self._algo.env_runner_group.foreach_env_runner(die)
        self.num_kills += 1
        yield

    @contextlib.contextmanager
    def _raising(self, at):
        fail = functools.partial(fail_soon, num_steps=at % 12)
        self._algo.env_runner_group.foreach_env_runner(fail)
        yield

    @contextlib.contextmanager
    def _failing_at_the_end(self, _):
        def fail(_):
            del self._algo.__dict__["add_to_result"]
            raise OSError("on purpose")

        self._algo.__dict__["add_to_result"] = fail
        yield
        self._algo.__dict__.pop("add_to_result", None)


class DivergesError(Exception):
    """What was drawn learns until its numbers are not finite: nothing can be compared."""


def disturbed(seed, folder):
    """The run of a seed with the faults of the seed; what differs is its `trouble`.

    Raises:
        DivergesError: already without faults.
    """
    run = drawn(seed)
    try:
        expected = undisturbed(run)
    except ModuleError as cause:
        if "not finite" not in str(cause):
            raise
        raise DivergesError(f"{seed}: diverges without faults: {run.name}") from cause
    played = DisturbedRun(run, expected, np.random.default_rng([seed, 2**20]), folder)
    played.play()
    return played


def main(first, last):
    """Tells of each seed what differs; every line is one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.disable(logging.WARNING)
    num_runs = num_failures = num_kills = num_bad = 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            try:
                played = disturbed(seed, Path(folder))
                trouble = played.trouble
                num_failures += played.num_failures
                num_kills += played.num_kills
            except DivergesError as error:
                print(error, flush=True)
                continue
            except Exception:  # noqa: BLE001 - told, and the next seed comes
                trouble = traceback.format_exc().splitlines()[-40:]
        num_runs += 1
        num_bad += bool(trouble)
        print(f"{seed}: {'DIFFERS' if trouble else 'equal'}: {drawn(seed).name}", flush=True)
        for text in trouble:
            print(f"    {text}", flush=True)
    print(f"{num_runs} runs, {num_failures} failures, {num_kills} kills: {num_bad} differ")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
