"""Sampling ahead: the lag is a rule, so whatever happens, bytes are the same."""

import functools
from contextlib import contextmanager
from pathlib import Path

import pytest

from callbacks import RLlibCallback
from checkpoints import CheckpointMismatchError, CheckpointNotFoundError, encode
from tests import league
from tests.integration.test_scripted_engine import (
    FAULTS,
    config_of,
    expect_equal,
    random_script,
)
from tests.integration.test_scripted_engine import trained as trained_on
from tests.small_runs import kill, known, small_ppo, trained
from trainer import Algorithm, CallbackError, ConfigError, DQNConfig, PGConfig, PPOConfig, SACConfig
from trainer.algorithms import building
from trainer.algorithms.ppo.ppo import PPO
from trainer.testing import FakeEngine, ScriptedFault
from trainer.testing.envs import TaskCountdownEnv
from trainer.testing.processes import wait_until


class Remembering(RLlibCallback):
    """Has state in runners and in the main process, and logs in both."""

    def __init__(self):
        self.num_seen = 0

    def on_episode_end(self, *, episode, metrics_logger, **_):
        self.num_seen += 1
        metrics_logger.log_value("length", len(episode), window=7)

    def on_train_result(self, *, result, **_):
        self.num_seen += result["env_runners"]["num_episodes"]


def config(num_env_runners=0, **settings):
    made = small_ppo(num_env_runners, env="CartPole-v1", num_slots=6, seed=3)
    made.env_runners(observation_filter="MeanStdFilter").environment(normalize_rewards=True)
    made.training(sample_ahead=True, train_batch_size=122, minibatch_size=40, num_epochs=2, lr=1e-2)
    return made.callbacks(Remembering).update_from_dict(settings)


def learnt(algo):
    return encode(algo.get_state()["learner"])


def outcome(made, num_iterations=4):
    with made.build_algo() as algo:
        return trained(algo, num_iterations), known(algo)


@functools.cache
def undisturbed():
    """What two runners come to when nothing happens."""
    return outcome(config(2, sample_ahead=2))


class LaggingByHand(PPO):
    """The rule, without requests ahead: what acts are the weights of before the last updates."""

    lag = 1

    def training_step(self):
        sample = self.sample_steps(self.config.total_train_batch_size)
        self.__dict__.setdefault("before", []).append(self.newest_policy())
        self.learn_from_sample(sample)
        self.env_runner_group.act_with(self.before[-self.lag :][0])

    def _send_policy_if_others_set_weights(self):
        pass


@pytest.mark.parametrize("lag", [1, 3])
def test_samples_lack_as_many_updates_as_are_played_ahead(lag, monkeypatch):
    monkeypatch.setattr(LaggingByHand, "lag", lag)
    plain = {"observation_filter": "NoFilter", "normalize_rewards": False}
    by_hand = PPOConfig(algo_class=LaggingByHand).update_from_dict(
        {**config().to_dict(), **plain, "sample_ahead": False}
    )
    others = config(**plain, sample_ahead=lag - 1)
    found = []
    for made in (config(**plain, sample_ahead=lag), by_hand, others):
        with made.build_algo() as algo:
            trained(algo, 6)
            found.append(learnt(algo))
    assert found[0] == found[1]
    assert found[2] != found[0]  # control: the lag shows


def test_true_is_a_lag_of_one():
    assert outcome(config(sample_ahead=True)) == outcome(config(sample_ahead=1))


class MarksSamples(RLlibCallback):
    """Runners mark each sample by a file."""

    def __init__(self):
        self.num_samples = 0

    def on_sample_end(self, *, env_runner, **_):
        self.num_samples += 1
        folder = Path(env_runner.config["env_config"]["folder"])
        (folder / f"{env_runner.worker_index}-{self.num_samples}").touch()


@pytest.mark.process
@pytest.mark.parametrize("is_ahead", [True, False])
def test_runners_play_while_the_main_process_learns(is_ahead, tmp_path):
    second = [tmp_path / "1-2", tmp_path / "2-2"]
    seen = []

    def wait_for_second(**_):
        if not seen:
            seen.append(
                is_ahead and wait_until(lambda: all(mark.exists() for mark in second), within_s=60)
            )
            seen.append(any(mark.exists() for mark in second))

    folder = {"folder": str(tmp_path)}
    made = config(2, sample_ahead=is_ahead, env=TaskCountdownEnv, env_config=folder)
    made.callbacks(MarksSamples, on_learn_on_batch=wait_for_second)
    with made.build_algo() as algo:
        algo.train()
    assert seen == [is_ahead, is_ahead]


class WaitsForTheOther(MarksSamples):
    """The second runner ends its second sample once the first one has ended its fourth."""

    def on_sample_end(self, *, env_runner, **_):
        config = env_runner.config["env_config"]
        folder = Path(config["folder"])
        if (env_runner.worker_index, self.num_samples) == (2, 1):
            fourth = folder / "1-4"
            if wait_until(fourth.exists, within_s=config["within_s"]):
                (folder / "first was ahead").touch()
        super().on_sample_end(env_runner=env_runner)


@pytest.mark.process
@pytest.mark.parametrize(("lag", "within_s"), [(3, 60), (2, 0.5)])
def test_a_runner_waits_for_no_other_within_the_lag(lag, within_s, tmp_path):
    settings = {"folder": str(tmp_path), "within_s": within_s}
    made = config(2, sample_ahead=lag, env=TaskCountdownEnv, env_config=settings)
    with made.callbacks(WaitsForTheOther).build_algo() as algo:
        algo.train()
        algo.train()
    # Control: with a lag of 2 the fourth sample is not asked for before the second one is taken.
    assert (tmp_path / "first was ahead").exists() == (lag == 3)


# ---- whatever happens meanwhile


def fail_to_learn(algo, error=RuntimeError):
    """An iteration that fails when its sample was taken and the next one is asked for."""
    learner = algo.learner
    update = learner.update

    def raise_once(*_, **__):
        learner.update = update
        raise error("on purpose")

    learner.update = raise_once
    with pytest.raises(error, match="on purpose"):
        algo.train()


def restore_from_itself(algo):
    algo.set_state(algo.get_state())


MEANWHILE = {
    "runners are killed": lambda algo: kill(algo.env_runner_group),
    "an update fails": fail_to_learn,
    "an update is interrupted": lambda algo: fail_to_learn(algo, KeyboardInterrupt),
    "it is evaluated": lambda algo: algo.evaluate(),
    "a function is called": lambda algo: algo.env_runner_group.foreach_env_runner(
        lambda runner: runner.metrics.log_value("called", 1.0)
    ),
    "a function is called in the background": lambda algo: (
        algo.env_runner_group.foreach_env_runner_async(lambda runner: runner.worker_index)
    ),
    "its state is set": restore_from_itself,
    "weights are synchronised": lambda algo: algo.env_runner_group.sync_weights(),
}
CHANGES_RESULTS = ("it is evaluated", "a function is called")
"""What comes after these is compared by what is learnt alone, so they come last."""


@pytest.mark.process
def test_what_happens_meanwhile_changes_no_bytes():
    with (
        config(2, sample_ahead=3).build_algo() as undisturbed,
        config(2, sample_ahead=3).build_algo() as spread,
        config(0, sample_ahead=3).build_algo() as alone,
    ):
        for what in sorted(MEANWHILE, key=CHANGES_RESULTS.__contains__):
            expected, found = trained(undisturbed, 2), trained(spread, 1)
            MEANWHILE[what](spread)
            found += trained(spread, 1)
            trained(alone, 1)
            if what != "runners are killed":
                MEANWHILE[what](alone)
            trained(alone, 1)
            assert learnt(spread) == learnt(alone) == learnt(undisturbed), what
            assert what in CHANGES_RESULTS or found == expected, what


@pytest.mark.process
def test_no_event_tells_of_runners_that_were_ended_with_their_request():
    told = []
    made = config(2).callbacks(
        on_env_runners_recreated=lambda env_runner_indices, **_: told.append(env_runner_indices)
    )
    with made.build_algo() as algo:
        algo.train()
        fail_to_learn(algo)
        algo.train()
    assert told == []


def test_a_dropped_sample_is_told_once_and_counted(caplog):
    with config(2).build_algo() as algo:
        assert "num_samples_dropped" not in algo.train()["fault_tolerance"]
        for _ in range(2):
            algo.env_runner_group.foreach_env_runner(lambda runner: None)
            result = algo.train()
    assert result["fault_tolerance/num_samples_dropped"] == 2
    assert caplog.text.count("while they sampled ahead") == 1


@pytest.mark.process
def test_a_new_task_is_in_force_in_the_next_sample():
    found = []
    for num_env_runners in (0, 2):
        made = config(num_env_runners).environment(TaskCountdownEnv)
        with made.build_algo() as algo:
            algo.train()
            algo.env_runner_group.set_task(3)
            algo.train()
            found.append((learnt(algo), algo.env_runner_group.get_tasks()))
    assert found[0] == found[1]


@pytest.mark.parametrize("what", FAULTS)
def test_faults_of_runners_that_play_ahead_change_no_bytes(what):
    made = config_of(2).training(sample_ahead=3)
    engine = FakeEngine(*FAULTS[what])
    expect_equal(trained_on(engine, made), trained_on(FakeEngine(), made))
    assert engine.struck


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 200), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_faults_of_runners_that_play_ahead_change_no_bytes(seeds):
    for lag in (1, 4):
        made = config_of(2).training(sample_ahead=lag)
        undisturbed = trained_on(FakeEngine(), made)
        for seed in seeds:
            expect_equal(trained_on(FakeEngine(*random_script(seed)), made), undisturbed)


class FailsAhead(RLlibCallback):
    """Fails in the second sample of the first runner, while that is armed."""

    is_armed = True

    def __init__(self):
        self.num_samples = 0

    def on_sample_end(self, *, env_runner, **_):
        self.num_samples += 1
        if self.is_armed and self.num_samples == 2 and env_runner.worker_index == 1:
            raise RuntimeError("on purpose")


@contextmanager
def that_fails_ahead(monkeypatch, *faults):
    """An algorithm whose next sample failed and is dropped, and who is told as recreated."""
    told = []
    made = config_of(2).training(sample_ahead=True)
    made.callbacks(
        FailsAhead,
        on_env_runners_recreated=lambda env_runner_indices, **_: told.extend(env_runner_indices),
    )
    engine = FakeEngine(*faults)
    monkeypatch.setattr(building, "make_engine", lambda _: engine)
    monkeypatch.setattr(FailsAhead, "is_armed", True)
    with made.build_algo() as algo:
        algo.train()
        algo.env_runner_group.foreach_env_runner(lambda runner: None)
        assert len(engine.struck) == len(faults)
        yield algo, told


def test_faults_of_a_request_ahead_that_fails_are_counted(monkeypatch, caplog):
    # Call 0 is the start. The second one was made anew and plays again when the first one fails.
    faults = [
        ScriptedFault("die", place="env runner 2", call=2),
        ScriptedFault("delay", place="env runner 1", call=2, at_sign=3, seconds=10.0),
    ]
    with that_fails_ahead(monkeypatch, *faults) as (algo, told):
        FailsAhead.is_armed = False
        result = algo.train()
    assert result["fault_tolerance/num_remote_worker_restarts"] == 1
    assert result["fault_tolerance/num_samples_dropped"] == 1
    assert result["fault_tolerance/repair_time_s"] > 0
    assert told == [2]
    assert caplog.text.count("An env runner failed while it sampled ahead") == 1
    assert "on purpose" in caplog.text


def test_what_fails_ahead_is_raised_when_it_is_asked_for_again(monkeypatch):
    with that_fails_ahead(monkeypatch) as (algo, _), pytest.raises(CallbackError, match="purpose"):
        algo.train()


@pytest.mark.parametrize("slow", ["env runner 1", "env runner 2"])
def test_who_is_told_as_recreated_does_not_depend_on_who_was_still_busy(slow, monkeypatch):
    delay = ScriptedFault("delay", place=slow, call=2, at_sign=3, seconds=10.0)
    with that_fails_ahead(monkeypatch, delay) as (algo, told):
        FailsAhead.is_armed = False
        result = algo.train()
    assert told == []
    assert result["fault_tolerance/num_remote_worker_restarts"] == 0


@pytest.mark.process
def test_modules_that_are_added_act_at_once(tmp_path):
    """A league adds copies of the module that learns: its next sample is played with the newest."""

    def config_of_league(num_env_runners, num_envs):
        return league.config(num_env_runners, num_envs).training(sample_ahead=True)

    with config_of_league(0, 6).build_algo() as algo:
        results = [algo.train() for _ in range(4)]
        expected = league.outcome(algo, results)
        assert len(algo.module_ids) > 2
    with config_of_league(2, 3).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        path = algo.save_to_path(tmp_path / "checkpoint")
        results += [algo.train() for _ in range(2)]
        found = league.outcome(algo, results)
    with Algorithm.from_checkpoint(path, allow_code=True) as again:
        restored = league.outcome(again, [*results[:2], again.train(), again.train()])
    del expected["env_runners"]  # there are as many callbacks of runners as there are runners
    assert {name: found[name] for name in expected} == expected
    assert restored == found


# ---- checkpoints


@pytest.fixture(scope="module")
def saved_often(tmp_path_factory):
    """The checkpoints of a run before each of its iterations, and all that it knew then."""
    folder, saved, results = tmp_path_factory.mktemp("saved"), [], []
    with config(2, sample_ahead=2).build_algo() as algo:
        for number in range(4):
            at_save = known(algo)
            saved.append((algo.save_to_path(folder / str(number), background=True), at_save))
            algo.finish_saving()
            results += trained(algo, 1)
        assert (results, known(algo)) == undisturbed()
    return saved


@pytest.mark.process
@pytest.mark.parametrize("num_before", [0, 2])
def test_a_restored_run_asks_for_the_same_sample_again(num_before, saved_often):
    results, end = undisturbed()
    path, at_save = saved_often[num_before]
    with Algorithm.from_checkpoint(path, callbacks=Remembering) as restored:
        assert known(restored) == at_save
        assert trained(restored, 4 - num_before) == results[num_before:]
        assert known(restored) == end


@pytest.mark.process
def test_a_checkpoint_from_the_middle_goes_on_elsewhere_and_with_other_runners(tmp_path):
    saves = {"on_train_result": lambda algorithm, **_: save(algorithm)}

    def save(algorithm):
        if algorithm.training_iteration == 2:
            algorithm.after_train_result(lambda _: algorithm.save_to_path(tmp_path / "checkpoint"))

    with config(2, sample_ahead=3).callbacks(Remembering, **saves).build_algo() as algo:
        trained(algo, 4)
        expected = learnt(algo)
    for num_env_runners, num_envs in ((0, 6), (3, 2)):
        with Algorithm.from_checkpoint(
            tmp_path / "checkpoint",
            callbacks_class=Remembering,
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_envs,
            callbacks_on_train_result=None,
        ) as restored:
            trained(restored, 2)
            assert learnt(restored) == expected


def test_without_the_weights_that_act_a_run_goes_on_differently():
    with config().build_algo() as algo:
        trained(algo, 2)
        state = algo.get_state()
        acting = algo.get_state()["sample_ahead"]["acting"][0]["weights"]["modules"]
        assert acting["default_policy"]["version"] == 1
        trained(algo, 1)
        expected = learnt(algo)
        algo.set_state(state)
        trained(algo, 1)
        assert learnt(algo) == expected
        algo.set_state({**state, "sample_ahead": {}})
        trained(algo, 1)
        assert learnt(algo) != expected


@pytest.mark.process
def test_a_restore_that_finds_nothing_costs_no_runner_its_sample(tmp_path):
    with config(2).build_algo() as algo:
        trained(algo, 2)
        pids = algo.env_runner_group.env_runner_pids()
        with pytest.raises(CheckpointNotFoundError):
            algo.restore_from_path(tmp_path / "nothing")
        trained(algo, 1)
        assert algo.env_runner_group.env_runner_pids() == pids


@pytest.mark.parametrize("part", ["modules", "normalization"])
@pytest.mark.parametrize("ids", [[], ["default_policy", "other"]])
def test_what_acts_ahead_must_be_of_the_one_module(part, ids):
    with config().build_algo() as algo:
        trained(algo, 2)
        state = algo.get_state()
        acting = state["sample_ahead"]["acting"][0]
        place = acting["weights"] if part == "modules" else acting
        place[part] = dict.fromkeys(ids, place[part]["default_policy"])
        before = learnt(algo)
        with pytest.raises(CheckpointMismatchError, match=f"{part}.* has {len(ids)} items"):
            algo.set_state(state)
        assert learnt(algo) == before


def restored_by_path(algo, source, folder):
    algo.restore_from_path(source.save_to_path(folder / "checkpoint"))


def restored_by_state(algo, source, _):
    algo.set_state(source.get_state())


@pytest.mark.parametrize(
    ("is_ahead", "restore"), [(True, restored_by_path), (False, restored_by_state)]
)
def test_states_are_taken_with_the_other_setting(is_ahead, restore, tmp_path):
    other = config(sample_ahead=not is_ahead, seed=4)
    with config(sample_ahead=is_ahead).build_algo() as source, other.build_algo() as algo:
        trained(source, 2)
        trained(algo, 3)  # what acts in it now has nothing to do with the source
        restore(algo, source, tmp_path)
        assert encode(algo.get_weights()) == encode(source.get_weights())
        assert algo.env_runner is not None
        newest = source.learner.module.get_state(inference_only=True)
        assert encode(algo.env_runner.module.get_state()) == encode(newest)
        assert not algo.get_state().get("sample_ahead")
        trained(algo, 2)
        with other.build_algo() as fresh:
            restore(fresh, source, tmp_path)
            fresh.train()
            assert fresh.env_runner is not None
            assert fresh.env_runner.weights_version == (3 if is_ahead else 2)
            fresh.train()
            assert learnt(algo) == learnt(fresh)


def test_a_part_of_a_state_leaves_what_acts():
    with config().build_algo() as algo:
        trained(algo, 2)
        acting = encode(algo.get_state()["sample_ahead"])
        algo.set_state({"learner": algo.get_state()["learner"]})
        assert encode(algo.get_state()["sample_ahead"]) == acting


def test_new_weights_act_in_the_sample_after_the_next():
    with config().build_algo() as algo:
        trained(algo, 2)
        algo.set_weights({id_: {name: array * 0 for name, array in state.items()}
                          for id_, state in algo.get_weights().items()})  # fmt: skip
        runner = algo.env_runner
        assert runner is not None
        acting = encode(runner.module.get_state())
        algo.train()
        assert encode(runner.module.get_state()) == acting
        algo.train()
        assert encode(runner.module.get_state()) != acting


# ---- what it is not combined with


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (DQNConfig().environment("CartPole-v1").training(sample_ahead=True), "not offered"),
        (SACConfig().environment("Pendulum-v1").training(sample_ahead=True), "not offered"),
        (PGConfig().environment("CartPole-v1").training(sample_ahead=True), "lack an update"),
        (
            config().environment(TaskCountdownEnv, env_task_fn=lambda result, env, context: 1),
            "env_task_fn",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(made, why):
    with pytest.raises(ConfigError, match=rf"sample_ahead=True.*{why}"):
        made.validate()
