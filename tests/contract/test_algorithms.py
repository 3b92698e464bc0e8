"""What every algorithm must keep to, one test per property; each runs over all runs of the table.

The promise, as properties: the same seed gives the same bytes; another seed does not; a restored
run and a new process go on with them; neither where envs are stepped nor kills nor iterations that
fail change any. The negative control, that what is forgotten of a state shows, is in
`test_components`.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from checkpoints import decode, encode
from tests.exact_runs import MADE, MaskedEnv, NestedEnv, after, carrying_over, die_soon, fail
from tests.memory_modules import MODELS
from tests.multi_agent_runs import told
from tests.resume_cells import FEATURES, Cell, Run, different
from trainer.testing.envs import TargetEnv
from trainer_toolkit.files import lock_file

pytestmark = pytest.mark.process

_ROOT = Path(__file__).parents[2]
NUM_ITERATIONS = 2
"""Before and after the checkpoint of a run; enough that episodes are cut and buffers run over."""

_TINY = {"feature_dim": 4, "feature_net_config": {"fcnet_hiddens": [6]}}


def _exploring(algorithm, env, type_, **settings):
    return Run(Cell(algorithm, env, 0), {"exploration_config": {"type": type_, **settings}})


MORE = {
    "PPO, evaluation runner": Run(
        Cell("PPO", "CartPole", 0),
        {
            "evaluation_interval": 2,
            "evaluation_num_env_runners": 1,
            "evaluation_parallel_to_training": True,
            "evaluation_duration": 3,
        },
    ),
    "PPO, samples ahead": Run(
        Cell("PPO", "own np_random", 0),
        {
            "env": NestedEnv,
            "sample_ahead": True,
            "observation_filter": "MeanStdFilter",
            "normalize_rewards": True,
        },
    ),
    "PPO, memory, whole episodes ahead": Run(
        Cell("PPO", "CartPole", 0),
        {"sample_ahead": True, "batch_mode": "complete_episodes", "model": MODELS["gru"]},
    ),
    "APPO": Run(
        Cell("APPO", "own np_random", 0),
        {"observation_filter": "MeanStdFilter", "normalize_rewards": True},
    ),
    "APPO, memory": Run(Cell("APPO", "CartPole", 0), {"model": MODELS["gru"]}),
    "PG, whole episodes": Run(
        Cell("PG", "CartPole", 0),
        {
            "batch_mode": "complete_episodes",
            "exploration_config": {"type": "StochasticSampling", "random_timesteps": 100},
        },
    ),
    "DQN, distributions": Run(
        Cell("DQN", "own np_random", 0),
        {"num_atoms": 5, "v_min": -9.0, "v_max": 0.0, "tau": 0.1, "double_q": False},
    ),
    "DQN, normalised": Run(
        Cell("DQN", "CartPole", 0),
        {
            "observation_filter": "MeanStdFilter",
            "normalize_rewards": True,
            "clip_rewards": 0.5,
            "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 150},
            "dueling": False,
        },
    ),
    "SAC, discrete": Run(
        Cell("SAC", "CartPole", 0),
        {"twin_q": False, "n_step": 1, "grad_clip": 0.5, "target_network_update_freq": 30},
    ),
    "EpsilonGreedy": Run(
        Cell("PPO", "CartPole", 0),
        {
            "env": MaskedEnv,
            "env_config": {"multi": True},
            "exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 200},
        },
    ),
    "SoftQ": Run(
        Cell("DQN", "CartPole", 0),
        {
            "env": TargetEnv,
            "env_config": {"size": 5, "mask": True},
            "model": {"fcnet_hiddens": [8], "conv_filters": [[2, 2, 2]]},
            "exploration_config": {"type": "SoftQ", "temperature": 0.7},
        },
    ),
    "OrnsteinUhlenbeckNoise": _exploring(
        "SAC", "Pendulum", "OrnsteinUhlenbeckNoise", random_timesteps=60, scale_timesteps=200
    ),
    "StateDependentNoise": Run(
        Cell("PPO", "Pendulum", 0),
        {
            "env": carrying_over,
            "env_config": {"continuous": True},
            "model": {"fcnet_hiddens": [8], "free_log_std": True, "log_std_by_feature": True},
            "exploration_config": {"type": "StateDependentNoise", "sample_freq": 7},
        },
    ),
    "GaussianNoise": Run(
        Cell("PG", "Pendulum", 0),
        {
            "env": carrying_over,
            "env_config": {"continuous": True},
            "model": MODELS["gru"],
            "exploration_config": {"type": "GaussianNoise", "random_timesteps": 60},
        },
    ),
    "DQN, ParameterNoise": _exploring("DQN", "CartPole", "ParameterNoise", random_timesteps=60),
    "DQN, Curiosity": _exploring(
        "DQN", "CartPole", "Curiosity", sub_exploration={"type": "EpsilonGreedy"}, **_TINY
    ),
}
SEVERAL_AGENTS = "PPO, several agents"
RUNS = (*FEATURES, *MORE, *MADE)
COUNTED = ("envs_made", "of_runner", "lately", "steps", "chunks")
"""What `resume_cells.Remembering` logs in each runner, and so depends on how many there are."""


def config(name, num_env_runners=0, **settings):
    """The settings of a run of the table."""
    if name in MADE:
        return MADE[name](num_env_runners).update_from_dict(settings)
    run = MORE.get(name) or FEATURES[name]
    cell = Cell(run.cell.algorithm, run.cell.env, num_env_runners)
    return cell.config(**{**run.settings, **settings})


class Course(NamedTuple):
    """What a run found.

    Attributes:
        path: its checkpoint in the middle.
        middle: everything it knew then, as bytes.
        found: digests of all results before the checkpoint, and of everything that is known then.
        rest: ditto afterwards.
    """

    path: Path
    middle: bytes
    found: Mapping[str, str]
    rest: Mapping[str, str]


_FOLDER = []
"""Where the courses of this run of the tests are."""


@functools.cache
def undisturbed(name, num_env_runners=0):
    """The run that all others are compared with."""
    return _played_once(f"{name}-{num_env_runners}", functools.partial(play, name, num_env_runners))


@functools.cache
def killed(name):
    """The run with two runners, of which one dies in the iteration before the checkpoint.

    Those of `FEATURES` lose one in each iteration. Afterwards it takes over the run of no runner.
    """
    taken_over = undisturbed(name).path
    return _played_once(f"{name}-killed", functools.partial(play_and_kill, name, taken_over))


def _played_once(folder_name, play):
    """Whoever runs tests beside."""
    folder = _FOLDER[0] / folder_name
    folder.mkdir(exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        lock_file(lock, wait=True)
        played = folder / "course"
        if not played.exists():
            played.write_bytes(encode(play(folder / "middle")))
        return Course(folder / "middle", **decode(played.read_bytes()))
    finally:
        os.close(lock)


def play(name, num_env_runners, path):
    with config(name, num_env_runners).build_algo() as algo:
        found = digests(algo, NUM_ITERATIONS)
        algo.save_to_path(path)
        middle = known(algo)
        slots = algo.get_state()["env_runners"]["slots"]
        is_cut = algo.config.batch_mode == "truncate_episodes"
        assert any(slot["env_seed"] is not None for slot in slots) == is_cut, "running episodes"
        return {"middle": middle, "found": found, "rest": digests(algo, NUM_ITERATIONS)}


def play_and_kill(name, taken_over, path):
    with config(name, 2).build_algo() as algo:
        found = {}
        deadly = range(0 if name in FEATURES else NUM_ITERATIONS - 1, NUM_ITERATIONS)
        for number in range(NUM_ITERATIONS):
            if number in deadly:
                die = functools.partial(die_soon, victim=1 + number % 2, num_steps=3 + number)
                algo.env_runner_group.foreach_env_runner(die)
            found |= digests(algo, 1)
        assert algo.env_runner_group.num_remote_worker_restarts() == len(deadly)
        algo.save_to_path(path)
        middle = known(algo)
        algo.restore_from_path(taken_over)
        return {"middle": middle, "found": found, "rest": digests(algo, NUM_ITERATIONS)}


@pytest.fixture(autouse=True, scope="module")
def courses_are_shared(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    is_one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    _FOLDER.append((base.parent if is_one_of_several else base) / "courses")
    _FOLDER[0].mkdir(exist_ok=True)
    yield
    undisturbed.cache_clear()
    killed.cache_clear()
    _FOLDER.clear()


def known(algo):
    """Everything but the settings."""
    return encode(algo.get_state(not_components="config"))


def digests(algo, num_iterations):
    """Digests of what some more iterations show, and of all that is known then, by name."""
    found = {}
    for _ in range(num_iterations):
        result = told(algo.train())
        sampled = result["env_runners"]
        counted = {key: sampled.pop(key) for key in [*sampled] if key.startswith(COUNTED)}
        counted["evaluation"] = result.pop("evaluation", None)
        found[f"result {algo.training_iteration}"] = digest(result)
        found[f"counted {algo.training_iteration}"] = digest(counted)
    for name, part in algo.get_state(not_components="config").items():
        found |= {f"{name}/{key}": digest(value) for key, value in part.items()}
    return found


def digest(value):
    return hashlib.sha256(encode(value)).hexdigest()[:16]


def different_elsewhere(name, one, other):
    """What differs between runs with other numbers of runners, and must not."""
    # Callbacks that count in runners are as many as there are runners, and so is what they log.
    counted = ("env_runners/callbacks", "metrics/logger", "counted", "evaluation/")
    but = ("evaluation/evaluator",) if name in MADE else counted  # its slots are one runner's
    return [part for part in different(one, other) if not part.startswith(but)]


# ---- the same bytes


@pytest.mark.parametrize("name", [*FEATURES, "PPO, evaluation runner", "PPO, samples ahead"])
def test_the_same_seed_gives_the_same_bytes(name):
    course = undisturbed(name)
    with config(name).build_algo() as algo:
        assert different(digests(algo, NUM_ITERATIONS), course.found) == []
        fails_to_train(algo)
        assert known(algo) == course.middle
        assert different(digests(algo, NUM_ITERATIONS), course.rest) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_another_seed_goes_on_as_the_one_that_it_restores_whatever_fails(name):
    course, spread = undisturbed(name), killed(name)
    with config(name, seed=8).build_algo() as algo:
        other = different(digests(algo, NUM_ITERATIONS), course.found)
        assert any(part.startswith("learner") for part in other)
        algo.restore_from_path(course.path)
        assert known(algo) == course.middle
        found = digests(algo, 1)
        fails_to_train(algo)
        assert different(found | digests(algo, NUM_ITERATIONS - 1), course.rest) == []
        algo.set_state(decode(course.middle))
        assert known(algo) == course.middle
        if name in (*FEATURES, SEVERAL_AGENTS):
            algo.restore_from_path(spread.path)  # a checkpoint of another number of runners
            assert different_elsewhere(name, digests(algo, NUM_ITERATIONS), course.rest) == []


def fails_to_train(algo):
    """An iteration that fails when all is sampled, learnt and evaluated: it never happened."""
    before = known(algo)
    algo.__dict__["add_to_result"] = lambda _: fail()
    with pytest.raises(OSError, match="on purpose"):
        algo.train()
    del algo.__dict__["add_to_result"]
    assert known(algo) == before


def go_on_elsewhere():
    """The program of the new process: what it finds, by name of the run."""
    found = {}
    for name, path in json.loads(sys.argv[1]).items():
        with config(name, seed=None).build_algo() as algo:
            algo.restore_from_path(path)
            found[name] = digests(algo, NUM_ITERATIONS)
    sys.stdout.write(json.dumps(found))


def test_a_new_process_goes_on_with_the_same_bytes():
    courses = {name: undisturbed(name) for name in (*FEATURES, *MADE)}
    paths = json.dumps({name: str(course.path) for name, course in courses.items()})
    program = f"from {__name__} import go_on_elsewhere; go_on_elsewhere()"
    done = subprocess.run(
        [sys.executable, "-c", program, paths],
        cwd=_ROOT, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    for name, found in json.loads(done.stdout).items():
        assert different(found, courses[name].rest) == [], name


# ---- where, and what happens meanwhile


@pytest.mark.parametrize("name", RUNS)
def test_neither_kills_nor_where_envs_are_stepped_make_a_difference(name):
    alone, spread = undisturbed(name), killed(name)
    assert different_elsewhere(name, spread.found, alone.found) == []
    assert different_elsewhere(name, spread.rest, alone.rest) == []


@pytest.mark.parametrize("name", ["PPO", "SAC", "PPO, evaluation runner", "PPO, samples ahead"])
def test_runners_that_were_killed_have_counted_what_others_have(name):
    assert different(killed(name).found, undisturbed(name, 2).found) == []


def test_one_runner_shows_and_knows_what_the_main_process_does_and_four_learn_the_same():
    alone, one, four = (undisturbed("PPO", number) for number in (0, 1, 4))
    assert different(one.found, alone.found) == different(one.rest, alone.rest) == []
    assert different_elsewhere("PPO", four.rest, alone.rest) == []


@pytest.mark.parametrize("name", [*MADE, "PPO", "DQN, normalised", "GaussianNoise"])
def test_sub_envs_that_fail_are_made_anew_and_change_nothing(name):
    course = undisturbed(name)
    with config(name, restart_failed_sub_environments=True).build_algo() as algo:
        found = {}
        for number in range(NUM_ITERATIONS):
            after(3 + number, algo.env_runner.env.envs[-1], fail)
            found |= digests(algo, 1)
        assert algo.train()["fault_tolerance/num_sub_environment_restarts"] == NUM_ITERATIONS
        assert different(found, course.found) == []
