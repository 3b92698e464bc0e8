"""The code blocks of RLlib's pages "Advanced Python APIs" run with their imports changed.

The blocks are in `tests/document_blocks_advanced.py`. What they leave open, and what would take
long, is given from outside.
"""

import re

import numpy as np
import pytest

from callbacks import DefaultCallbacks, MultiCallbacks, make_multi_callbacks
from tests.document_blocks_advanced import (
    ENV_TASK_FN,
    EVALUATION_CALLS,
    EVALUATION_DICTS,
    EVALUATION_RESULT,
    EXPLORATION,
    EXPLORATION_CALL,
    GLOBAL_WORKER,
    MULTI_CALLBACKS,
    TASKS_BETWEEN_ITERATIONS,
    TASKS_BY_A_CALLBACK,
    WORKERS_RECREATED,
    dicts_in,
)
from trainer import (
    DQN,
    PPO,
    AlgorithmConfig,
    ConfigError,
    PPOConfig,
    collect_episodes,
    summarize_episodes,
)
from trainer.testing.envs import CountdownEnv, FailingEnv
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process

SMALL = {
    "num_workers": 0,
    "train_batch_size": 70,
    "sgd_minibatch_size": 70,
    "num_sgd_iter": 1,
    "model": {"fcnet_hiddens": [4]},
    "seed": 0,
    "env_config": {"min_length": 7, "max_length": 7},
}
"""Ten episodes of seven steps in each iteration."""


def names_of(block, **given):
    """The names that a block leaves behind."""
    names = {"__name__": "__main__", **given}
    exec(compile(block, "<block>", "exec"), names)
    return names


def trained(settings, *, iterations, env=CountdownEnv):
    with PPO(config={**SMALL, **settings}, env=env) as algo:
        return [algo.train() for _ in range(iterations)]


# ---- curriculum


class YourEnv(CountdownEnv):
    """Pays 20 per step, and so much more for each step of difficulty: 140, 280, 420 an episode."""

    task = 0

    def set_task(self, task):
        self.task = task

    def step(self, action):
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, 20.0 * (1 + self.task), terminated, truncated, infos


EXPECTED_RETURNS = [{140.0}, {280.0}, {420.0}, {420.0}]
"""Mean 140: task 1. Mean of 140 and 280, 210: task 2, and so it stays."""


def returns_of(result):
    return set(result["env_runners"]["hist_stats"]["episode_reward"])


class StopError(Exception):
    pass


def test_tasks_are_set_between_iterations():
    names = names_of(TASKS_BETWEEN_ITERATIONS, YourEnv=YourEnv)
    reported = []

    def reporter(**result):
        reported.append(result)
        if len(reported) == 4:
            raise StopError

    param_space = {"num_gpus": names["num_gpus"], "num_workers": names["num_workers"]}
    with pytest.raises(StopError):
        names["train"]({**SMALL, **param_space}, reporter)
    assert [returns_of(result) for result in reported] == EXPECTED_RETURNS


def test_tasks_are_set_by_a_callback():
    names = names_of(TASKS_BY_A_CALLBACK)
    param_space = {"env": YourEnv, "callbacks": names["MyCallbacks"]}
    results = trained(param_space, iterations=4, env=None)
    assert [returns_of(result) for result in results] == EXPECTED_RETURNS


def test_tasks_follow_from_results():
    names = names_of(ENV_TASK_FN)
    stub = names["MyEnv"]

    class MyEnv(stub, CountdownEnv):
        """The document's class shows two methods; the others make an env of it."""

        def __init__(self, env_config):
            super().__init__(env_config)
            self.current_difficulty = 0

        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(self.current_difficulty), *rest

    for num_workers in (0, 2):
        more = {"env": MyEnv, "num_workers": num_workers}
        results = trained({**names["config"], **more}, iterations=3, env=None)
        assert [returns_of(result) for result in results] == [{0.0}, {7.0}, {14.0}]


# ---- callbacks


def test_recreated_workers_are_prepared_by_a_callback(tmp_path):
    armed = tmp_path / "armed"
    settings = {
        "num_workers": 1,
        "evaluation_num_workers": 1,
        "recreate_failed_workers": True,
        "env_config": {"where": "step", "how": "kill", "armed_file": str(armed)},
        "callbacks": names_of(WORKERS_RECREATED)["MyCallbacks"],
    }

    def properties(w):
        return [name for name in vars(w) if name.startswith("_custom_property")]

    made = PPO(config={**SMALL, **settings}, env=FailingEnv)
    with made as algo:
        for play in (algo.train, algo.evaluate):
            armed.touch()
            play()
        groups = {"training": algo.workers, "evaluation": algo.evaluation_workers}
        for purpose, group in groups.items():
            assert group.foreach_worker(properties) == [[f"_custom_property_for_{purpose}"]]


def test_the_tip_to_tell_evaluation_by_the_workers_config():
    events = []

    class Telling(DefaultCallbacks):
        def on_episode_start(self, *, worker, **kwargs):
            events.append("evaluation" if worker.policy_config["in_evaluation"] else "training")

        def on_episode_end(self, *, worker, episode, **kwargs):
            is_evaluation = worker.policy_config["in_evaluation"]
            assert episode.id_.startswith("evaluation" if is_evaluation else "training")

        def on_evaluate_start(self, *, algorithm, **kwargs):
            events.append("start")

        def on_evaluate_end(self, *, algorithm, **kwargs):
            events.append("end")

    settings = {"callbacks": Telling, "evaluation_interval": 1, "evaluation_duration": 2}
    trained(settings, iterations=1)
    assert events == ["training"] * 10 + ["start", "evaluation", "evaluation", "end"]


def custom_callbacks(called):
    """The classes that the document names."""

    def made(name):
        def on_train_result(self, *, algorithm, result, **kwargs):
            called.append(name)

        return type(name, (DefaultCallbacks,), {"on_train_result": on_train_result})

    return {
        name: made(name)
        for name in ("MyCustomStatsCallbacks", "MyCustomVideoCallbacks", "MyCustomTraceCallbacks")
    }


@pytest.mark.parametrize("join", [make_multi_callbacks, MultiCallbacks])
def test_several_classes_are_called_in_their_order(join):
    called = []
    classes = custom_callbacks(called)
    config = PPOConfig().update_from_dict(SMALL).environment(CountdownEnv)
    names_of(MULTI_CALLBACKS, config=config, make_multi_callbacks=join, **classes)
    with config.build() as algo:
        algo.train()
    assert called == list(classes)


def test_any_callback_reaches_the_worker_of_its_process():
    seen = []

    class Asking(DefaultCallbacks):
        def on_postprocess_trajectory(self, *, worker, policies, **kwargs):
            found = names_of(GLOBAL_WORKER)["rollout_worker"]
            seen.append(
                found is worker
                and found.policy_map["default_policy"] is policies["default_policy"]
                and found.get_policy() is found.module
            )

    trained({"callbacks": Asking}, iterations=1)
    assert seen == [True] * 10


# ---- exploration


@pytest.mark.parametrize("number", range(5))
def test_the_configs_of_exploration_run(number):
    settings = dicts_in(EXPLORATION, begins_with="explore")[number]
    kind = settings.get("exploration_config", {}).get("type")
    # "a) DQN …, b) DQN Soft-Q …, c) all policy-gradient algos"
    algorithm = DQN if kind in ("EpsilonGreedy", "SoftQ") else PPO
    outside = {name: SMALL[name] for name in ("num_workers", "model", "seed")}
    if algorithm is DQN:
        outside |= {"train_batch_size": 8, "min_sample_timesteps_per_iteration": 20}
        outside |= {"num_steps_sampled_before_learning_starts": 8}
    else:
        outside = SMALL
    with algorithm(config={**outside, **settings}, env=CountdownEnv) as algo:
        algo.train()
        actions = {
            explore: {
                algo.compute_single_action(np.zeros(2, np.float32), explore=explore)
                for _ in range(60)
            }
            for explore in (None, True, False)
        }
    assert len(actions[None]) == (2 if settings["explore"] else 1)
    assert len(actions[True]) == 2, "the call overrides the default"
    assert len(actions[False]) == 1


def test_the_placeholder_of_the_exploration_config_is_named_as_unknown():
    with pytest.raises(ConfigError, match="StochasticSampling has no argument 'constructor_arg'"):
        names_of(EXPLORATION_CALL)["config"].validate()


# ---- evaluation


_CALLS = [
    names_of(block, AlgorithmConfig=AlgorithmConfig)["config"].given_settings()
    for block in EVALUATION_CALLS
]
_DICTS = [config for block in EVALUATION_DICTS for config in dicts_in(block)]
_DICTS[-1] = {**_DICTS[-2], **_DICTS[-1]}  # "same settings as above, plus"


def under_new_names(settings):
    """An older page says the same with older names."""
    given = AlgorithmConfig().update_from_dict(settings).given_settings()
    return repr(sorted((name, repr(value)) for name, value in given.items()))


_EVALUATIONS = {under_new_names(settings): settings for settings in [*_CALLS, *_DICTS]}


def name_of(settings):
    short = {name.removeprefix("evaluation_"): value for name, value in settings.items()}
    return "-".join(f"{name}={value}" for name, value in short.items())


@pytest.mark.parametrize("settings", _EVALUATIONS.values(), ids=name_of)
def test_the_configs_of_evaluation_do_what_is_printed_beside_them(settings):
    is_parallel = settings.get("evaluation_parallel_to_training", False)
    interval = settings.get("evaluation_interval", 1)
    outside = {**SMALL, "evaluation_interval": interval}
    if is_parallel and "evaluation_num_workers" not in settings:
        outside["evaluation_num_workers"] = 1
    results = []

    with PPO(config={**outside, **settings}, env=CountdownEnv) as algo:

        def is_evaluated():
            results.append(algo.train())
            return "evaluation" in results[-1]

        if settings.get("enable_async_evaluation"):
            assert wait_until(is_evaluated), "the result comes as soon as it is there"
        else:
            assert [is_evaluated() for _ in range(interval)] == [False] * (interval - 1) + [True]
    evaluation = results[-1]["evaluation"]
    runners = evaluation["env_runners"]
    assert runners["episode_return_mean"] == 7.0
    assert evaluation["weights_version"] == interval - is_parallel
    duration = settings.get("evaluation_duration", 10)
    if duration == "auto":
        assert runners["num_env_steps_sampled"] >= 100
    elif settings.get("evaluation_duration_unit") == "timesteps":
        assert runners["num_env_steps_sampled"] == duration == 200
    else:
        assert runners["num_episodes"] == duration == 10


@pytest.mark.parametrize("is_custom", [True, False])
def test_an_evaluation_has_the_metrics_that_are_printed(is_custom):
    def custom_eval_function(algorithm, eval_workers):
        assert eval_workers is algorithm.evaluation_workers
        eval_workers.foreach_worker(lambda worker: len(worker.sample(num_episodes=3)))
        metrics = summarize_episodes(collect_episodes(workers=eval_workers))
        metrics["foo"] = 1
        return metrics

    settings = {"evaluation_interval": 1, "evaluation_duration": 3}
    if is_custom:
        settings["custom_eval_function"] = custom_eval_function
    evaluation = trained(settings, iterations=1)[0]["evaluation"]
    expected = {
        "custom_metrics": {},
        "episode_len_mean": 7.0,
        "episode_reward_max": 7.0,
        "episode_reward_mean": 7.0,
        "episode_reward_min": 7.0,
        "episodes_this_iter": 3,
        "foo": 1,
    }
    printed = re.findall(r"^    (\w+): ", EVALUATION_RESULT, re.MULTILINE)
    assert printed == [*expected]
    assert ("foo" in evaluation) == is_custom
    for name in printed[: None if is_custom else -1]:
        assert evaluation[name] == expected[name]
