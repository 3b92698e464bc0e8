"""Ready-made callbacks, curricula and named actors in runs of several agents and modules."""

import csv
import functools
import io
import json
import os
import signal

import numpy as np
import pytest

import callbacks
from callbacks import (
    BestCheckpoint,
    CSVLogger,
    EarlyStopping,
    EpisodeRecorder,
    JSONLinesLogger,
    NonFiniteError,
    NonFiniteGuard,
    PeriodicCheckpoint,
    ProgressPrinter,
    RLlibCallback,
    TaskLadder,
    TensorBoardLogger,
    TrackerLogger,
    load_episode,
)
from checkpoints import encode
from tests.multi_agent_runs import Gaps, gaps, told
from trainer import actors
from trainer.testing.processes import wait_until

ODD_RETURN = "env_runners/module_agent_return_mean/odd"
THREE_RETURN = "env_runners/agent_episode_return_mean/3"


def learnt(algo, results):
    """What a run has learnt and told; what callbacks add to results is their own."""
    kept = [{key: told(one)[key] for key in ("env_runners", "learners")} for one in results]
    for one in kept:
        one["env_runners"].pop("episode_recorder", None)
    return encode([algo.get_state("learner"), kept])


def played(config, iterations=3):
    with config.build_algo() as algo:
        return learnt(algo, [algo.train() for _ in range(iterations)])


# ---- each ready-made callback


def _writes_lines(folder):
    rows = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert [row["training_iteration"] for row in rows] == [1, 2, 3]
    steps = [row["env_runners"]["num_agent_steps_sampled"] for row in rows]
    assert all(one.keys() == {"3", "a", "late"} for one in steps)


def _writes_a_table(folder):
    with (folder / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for key in (ODD_RETURN, THREE_RETURN, "learners/even/num_module_steps_trained_lifetime"):
        assert float(rows[-1][key]) > 0


def _writes_events(folder):
    (file,) = (folder / "tb").glob("events.*")
    assert THREE_RETURN.encode() in file.read_bytes()


def _saves_the_best(folder):
    _goes_on(folder / "best")


def _saves_now_and_then(folder):
    assert len(list((folder / "all").iterdir())) >= 2
    _goes_on(folder / "all")


def _goes_on(folder):
    checkpoint = sorted(one for one in folder.iterdir() if one.is_dir())[-1]
    with gaps().build_algo() as algo:
        algo.restore_from_path(checkpoint)
        before = algo.training_iteration
        assert algo.train()["training_iteration"] == before + 1


def _records_agents(folder):
    files = sorted((folder / "episodes").iterdir())
    assert files
    arrays = load_episode(files[0])
    agents = {name.partition("/")[0] for name in arrays if "/" in name}
    assert agents <= {"3", "a", "late"}
    assert len(agents) > 1
    for agent in agents:
        assert len(arrays[f"{agent}/observations"]) == len(arrays[f"{agent}/rewards"]) + 1
        assert len(arrays[f"{agent}/extra/action_logp"]) == len(arrays[f"{agent}/actions"])


class FileService:
    """A service that writes its rows into a file."""

    def __init__(self, path):
        self.path = path

    def open_run(self, run_id, facts):
        del facts
        return run_id

    def log_row(self, run, row, step):
        with self.path.open("a") as file:
            file.write(json.dumps([run, step, dict(row)]) + "\n")

    def close_run(self, run, *, failed):
        del run, failed


def _tracks_agents(folder):
    tracked = folder / "tracked"
    wait_until(lambda: tracked.exists() and tracked.read_text().count("\n") == 3)  # on a thread
    rows = [json.loads(line) for line in tracked.read_text().splitlines()]
    assert [step for _, step, _ in rows] == [40, 80, 120]
    assert {ODD_RETURN, THREE_RETURN} <= rows[-1][2].keys()


def _nothing(folder):
    del folder


CALLBACKS = {
    "BestCheckpoint": (lambda f: BestCheckpoint(f / "best", metric=ODD_RETURN), _saves_the_best),
    "CSVLogger": (lambda f: CSVLogger(f / "r.csv"), _writes_a_table),
    "EarlyStopping": (lambda _: EarlyStopping(THREE_RETURN, at_least=1e9), _nothing),
    "EpisodeRecorder": (
        lambda f: EpisodeRecorder(f / "episodes", every=2, columns=["action_logp"]),
        _records_agents,
    ),
    "JSONLinesLogger": (lambda f: JSONLinesLogger(f / "r.jsonl"), _writes_lines),
    "NonFiniteGuard": (lambda _: NonFiniteGuard([ODD_RETURN]), _nothing),
    "PeriodicCheckpoint": (lambda f: PeriodicCheckpoint(f / "all", every=1), _saves_now_and_then),
    "ProgressPrinter": (lambda _: ProgressPrinter(), _nothing),
    "TrackerLogger": (lambda f: TrackerLogger(FileService(f / "tracked"), f / "f"), _tracks_agents),
    "TensorBoardLogger": (lambda f: TensorBoardLogger(f / "tb"), _writes_events),
}
_OTHERS = {"ResultLogger", "ResultSink", "TaskLadder", "VideoRecorder", "load_episode"}
"""What the loggers are made of; what needs tasks or frames has a test below or elsewhere."""
_SERVICES = {"AimLogger", "MLflowLogger", "TrackerService", "TrackioLogger", "WandbLogger"}
"""Of `TrackerLogger`, each with a service of its own."""


def test_no_ready_made_callback_is_left_out():
    offered = {name: getattr(callbacks, name) for name in callbacks.__all__}
    ready_made = {
        name
        for name, thing in offered.items()
        if getattr(thing, "__module__", "").startswith("callbacks.ready_made")
    }
    assert {*CALLBACKS} | _OTHERS | _SERVICES == ready_made


@pytest.fixture(scope="module")
def without_callbacks():
    return played(gaps())


@pytest.mark.parametrize("name", CALLBACKS)
def test_it_does_its_work_and_changes_nothing(name, tmp_path, without_callbacks):
    if name == "TensorBoardLogger":
        pytest.importorskip("tensorboardX")
    make, check = CALLBACKS[name]
    assert played(gaps().callbacks([make(tmp_path)])) == without_callbacks
    check(tmp_path)


def test_progress_is_printed(capsys):
    played(gaps().callbacks([ProgressPrinter()]))
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "return" in line]) == 3


@pytest.mark.parametrize("metric", [ODD_RETURN, THREE_RETURN])
def test_what_an_agent_or_a_module_earns_may_end_a_run(metric):
    with gaps().callbacks([EarlyStopping(metric, at_least=0.0)]).build_algo() as algo:
        result = algo.train()
    assert result["done"] is True
    assert metric in result["stop_reason"]


def test_numbers_of_one_module_that_are_not_finite_are_named():
    class Spoiling(RLlibCallback):
        def on_train_result(self, *, algorithm, **_):
            algorithm.learners["odd"].module.parameters.flat[0] = np.nan

    with gaps().callbacks([Spoiling(), NonFiniteGuard()]).build_algo() as algo:
        with pytest.raises(NonFiniteError, match="weights/odd/"):
            algo.train()
        assert all(np.isfinite(w).all() for w in algo.get_weights()["odd"].values())


# ---- curricula


class Tasks(Gaps):
    """`Gaps` whose episodes have as many env steps more as the task says."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self._task = 0

    def get_task(self):
        return self._task

    def set_task(self, task):
        self._task = task

    def reset(self, **options):
        answer = super().reset(**options)
        self._length = 5 + self._task
        return answer


def by_iteration(train_results, env, env_ctx):
    assert train_results["num_agent_steps_sampled"] > 0  # an old key
    return int(train_results["training_iteration"]) % 3


def ladder():
    return TaskLadder([0, 1, 2], promote_at=0.0, min_episodes=2)


class Steering(RLlibCallback):
    """Sets the task of all envs after every result."""

    def on_train_result(self, *, algorithm, result, **_):
        task = result["training_iteration"] % 3
        algorithm.env_runner_group.foreach_env_runner(
            lambda runner: [env.unwrapped.set_task(task) for env in runner.env.envs]
        )


def curriculum(way, *args, **env_config):
    made = gaps(*args).environment(Tasks, env_config=env_config)
    if way == "env_task_fn":
        return made.environment(env_task_fn=by_iteration)
    return made.callbacks([ladder() if way == "ladder" else Steering()])


WAYS = ("env_task_fn", "ladder", "steering")


def with_tasks(config, iterations=4):
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(iterations)]
        tasks = {name for one in results for name in one["env_runners"].get("task_stats", {})}
        return learnt(algo, results), tasks


@functools.cache
def undisturbed(way):
    return with_tasks(curriculum(way, 0, 2))


@pytest.mark.process
@pytest.mark.parametrize("way", ["env_task_fn", "steering"])  # a ladder is of the main process
def test_a_curriculum_is_the_same_whatever_disturbs_it(way, tmp_path):
    expected, tasks = undisturbed(way)
    assert tasks == {"0", "1", "2"}
    faults = {kind: tmp_path / kind for kind in ("kills", "breaks")}
    for file in faults.values():
        file.write_text("30 55 80")
    assert with_tasks(curriculum(way, 1, 2, kills=str(faults["kills"])))[0] == expected
    repaired = curriculum(way, 0, 2, breaks=str(faults["breaks"]))
    repaired.fault_tolerance(restart_failed_sub_environments=True)
    assert with_tasks(repaired)[0] == expected
    for file in faults.values():
        assert int(file.with_suffix(".count").read_text()) > 81, "a fault that did not happen"


@pytest.mark.parametrize("way", WAYS)
def test_a_curriculum_that_is_restored_goes_on(way, tmp_path):
    expected, _ = undisturbed(way)
    with curriculum(way, 0, 2).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        algo.save_to_path(tmp_path / "c")
    with curriculum(way, 0, 2).build_algo() as again:
        again.restore_from_path(tmp_path / "c")
        results += [again.train() for _ in range(2)]
        assert learnt(again, results) == expected


def test_tasks_are_those_of_the_first_step():
    class Noting(RLlibCallback):
        def on_episode_end(self, *, episode, **_):
            episode.hist_data["excess"] = [episode.env_t - 5 - episode.task]

    made = curriculum("env_task_fn", 0, 2).callbacks([Noting()])
    with made.build_algo() as algo:
        for _ in range(4):
            stats = algo.train()["env_runners"]["hist_stats"]
            assert {*stats["excess"]} == {0}


# ---- named actors


class Team:
    """Counts the env steps of episodes, by id, so that what is told twice counts once."""

    def __init__(self):
        self.lengths = {}

    def add(self, id_, length):
        self.lengths[id_] = length
        return sum(self.lengths.values())

    def total(self):
        return sum(self.lengths.values())


class Telling(RLlibCallback):
    """Tells the actor of each episode; kills its process once, if a file is there."""

    def __init__(self, armed):
        self.armed = armed

    def on_episode_end(self, *, episode, **_):
        team = actors.get_actor("team")
        actors.get(team.add.remote(episode.id_, episode.env_t))
        if self.armed.exists():
            self.armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.process
def test_callbacks_of_runners_with_several_agents_reach_a_named_actor(tmp_path):
    try:
        team = actors.remote(Team).options(name="team").remote()
        (tmp_path / "armed").touch()
        with gaps(1, 2).callbacks([Telling(tmp_path / "armed")]).build_algo() as algo:
            lengths = []
            for _ in range(3):
                lengths += algo.train()["env_runners"]["hist_stats"]["episode_lengths"]
            assert algo.env_runner_group.num_restarts == 1
        assert actors.get(team.total.remote()) == sum(lengths) > 0
    finally:
        actors.shutdown()


def test_the_printer_writes_to_any_stream():
    stream = io.StringIO()
    played(gaps().callbacks([ProgressPrinter(stream=stream)]), 1)
    assert stream.getvalue().count("\n") == 1
