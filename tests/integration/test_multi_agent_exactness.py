"""Runs of several agents, beyond `tests/contract`: one agent, orders, faults at every step.

What is whole here is slow; each has a sample of itself in the default run.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from tests.exact_runs import Counted
from tests.multi_agent_runs import (
    STRATEGIES,
    Drawing,
    Gaps,
    OneCartPole,
    Pushing,
    evaluated,
    everything,
    exploring,
    gaps,
    told,
    whole_state,
)
from tests.multi_agent_scripts import G4
from tests.traced_memory import peak_bytes
from trainer import PPOConfig
from trainer.metrics import comparable
from trainer.testing import ScriptedMultiAgentEnv, wait_until

# ---- X1: one agent


@pytest.mark.parametrize(
    "num_env_runners", [0, pytest.param(2, marks=[pytest.mark.process, pytest.mark.slow])]
)
def test_x1_the_one_agent_of_an_env_plays_and_learns_as_a_single_one(num_env_runners):
    """Weights, results, records and counters are byte-equal; records of several have another form,
    and their results and counters say more."""
    learnt, played, told_by = [], [], []
    for env in ("CartPole-v1", OneCartPole):
        config = PPOConfig().environment(env).debugging(seed=3)
        config.env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=2)
        config.training(train_batch_size=64, minibatch_size=32, num_epochs=2)
        config.rl_module(model_config={"fcnet_hiddens": [8]})
        with config.build_algo() as algo:
            told_by.append([told(algo.train()) for _ in range(5)])
            state = whole_state(algo)
        counters = {**state["counters"]}
        for more in ("num_agent_steps_trained", "num_module_steps_trained"):
            assert (counters.pop(more, None) is None) == (env != OneCartPole)
        learnt.append(encode([state["learner"], counters, state["metrics"]["logger"]]))
        played.append([_as_of_one(record) for record in state["metrics"]["episodes"]["records"]])
    assert learnt[0] == learnt[1]
    assert encode(played[0]) == encode(played[1])
    for single, joint in zip(*told_by, strict=True):
        assert encode(single) == encode(_part(joint, single))


def _part(result, like):
    """What a result says under the keys of another one."""
    if not isinstance(like, dict):
        return result
    return {key: _part(result[key], value) for key, value in like.items()}


def _as_of_one(record):
    """A record of several agents, of which there is one, in the form for a single one."""
    if "agents" not in record:
        return record
    (agent,) = record["agents"]
    whole = {key: value for key, value in record.items() if key != "agents"}
    assert agent["episode_return"] == whole["episode_return"]
    return {key: agent.get(key, value) for key, value in whole.items()}


# ---- X2, X3, X12: processes and orders


@pytest.mark.slow
@pytest.mark.process
def test_x3_and_x12_no_order_and_no_hash_makes_a_difference():
    """Dicts of the env come in the order of a set of texts, which differs between processes."""
    seeds = ["1", "2"]
    runs = [_start_with_hash_seed(seed) for seed in seeds]
    told_by = [run.communicate(timeout=120)[0].split() for run in runs]
    assert all(run.returncode == 0 for run in runs)
    digests, orders = zip(*told_by, strict=True)
    assert orders[0] != orders[1]  # a control: the order did differ
    assert digests[0] == digests[1]


def _start_with_hash_seed(seed):
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.multi_agent_runs import tell; tell()"],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )


# ---- X4, X5: who else is there


class WithOthers(Gaps):
    """Beside the agents of `Gaps` there may be one that never appears (`absent`)."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.possible_agents = [*self.possible_agents, *env_config.get("absent", ())]


def drawn(config, num_timesteps=60):
    """{agent: its actions}, in order."""
    with config.build_algo() as algo:
        runner = algo.env_runner
        return _actions_of(runner.sample(num_timesteps=num_timesteps))


def test_x4_an_agent_that_is_not_there_changes_nobodys_draws():
    alone = drawn(gaps().environment(WithOthers))
    assert drawn(gaps().environment(WithOthers, env_config={"absent": ["zoe"]})) == alone
    assert drawn(gaps().environment(WithOthers, env_config={"absent": [0, "b"]})) == alone


def test_x4_draws_follow_from_the_id():
    def of(names):
        return drawn(shown_the_same().environment(Same, env_config={"names": names}))

    first, renamed = of(["A", "B", "C"]), of(["A", "B", "D"])
    assert [first[a] for a in "AB"] == [renamed[a] for a in "AB"]
    assert first["C"] != renamed["D"]
    assert first["A"] != first["B"]


class Same(Gaps):
    """All agents see the same zeros at every step of an episode of ten."""

    def __init__(self, env_config):
        super().__init__({})
        self.possible_agents = env_config.get("names", ["A", "B"])
        self.action_space = env_config.get("space") or self.action_space

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._zeros(), {}

    def step(self, actions):
        self._t += 1
        is_over = self._t >= 10
        rewards = {agent: float(np.sum(action)) for agent, action in actions.items()}
        return self._zeros(), rewards, {"__all__": is_over}, {}, {}

    def _zeros(self):
        return {agent: np.zeros(3, np.float32) for agent in self.possible_agents}


def shown_the_same():
    config = PPOConfig().environment(Same).debugging(seed=3)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    config.training(train_batch_size=60, minibatch_size=30, num_epochs=1)
    return config.rl_module(model_config={"fcnet_hiddens": [8]})


def test_x5_modules_with_equal_weights_act_as_one_module():
    shared = drawn(shown_the_same())
    two = shown_the_same().multi_agent(policies={"p", "q"}, policy_mapping_fn={"A": "p", "B": "q"})
    with shown_the_same().build_algo() as algo:
        weights = algo.get_weights()["default_policy"]
    with two.build_algo() as algo:
        algo.set_weights({"p": weights, "q": weights})
        runner = algo.env_runner
        actions = _actions_of(runner.sample(num_timesteps=60))
    assert actions == shared


# ---- X6, X7: faults


class Scripted(ScriptedMultiAgentEnv):
    """A script in which the env fails as `Gaps` does."""

    def __init__(self, env_config):
        super().__init__({"script": G4})
        self._faults = {kind: env_config.get(kind) for kind in ("breaks", "kills")}

    def step(self, actions):
        Gaps._fail(self)  # it looks at `_faults` only
        return super().step(actions)


def scripted(num_env_runners, **env_config):
    """Batches of three env steps, so that chunks end at every place of G4's four."""
    return (
        PPOConfig()
        .environment(Scripted, env_config=env_config)
        .env_runners(num_env_runners=num_env_runners)
        .training(train_batch_size=3, minibatch_size=2, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .debugging(seed=3)
    )


NUM_STEPS_OF_G4 = 12
"""Three episodes: every place of the script and of a batch, in four iterations."""


def with_faults(folder, kind, *numbers):
    file = folder / f"{kind}_{'_'.join(map(str, numbers))}"
    file.write_text(" ".join(map(str, numbers)))
    return {kind: str(file)}


def happened(faults, number):
    (file,) = faults.values()
    return int(Path(file).with_suffix(".count").read_text()) > number


@pytest.mark.process
@pytest.mark.parametrize(
    "numbers",
    [
        [6],
        pytest.param(range(NUM_STEPS_OF_G4), marks=pytest.mark.slow),
    ],
    ids=["a sample", "all"],
)
def test_x6_a_runner_killed_at_any_env_step_of_g4(numbers, tmp_path):
    undisturbed = everything(scripted(0), 4)
    for number in numbers:
        faults = with_faults(tmp_path, "kills", number)
        assert everything(scripted(1, **faults), 4) == undisturbed, number
        assert happened(faults, number)


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 7],
        pytest.param(range(NUM_STEPS_OF_G4), marks=pytest.mark.slow),
    ],
    ids=["a sample", "all"],
)
def test_x7_a_sub_env_that_fails_at_any_env_step_of_g4(numbers, tmp_path):
    undisturbed = everything(scripted(0), 4)
    for number in numbers:
        faults = with_faults(tmp_path, "breaks", number)
        config = scripted(0, **faults).fault_tolerance(restart_failed_sub_environments=True)
        assert everything(config, 4) == undisturbed, number
        assert happened(faults, number)


@pytest.mark.slow
def test_x7_a_sub_env_that_fails_at_any_env_step_of_a_run_with_gaps(tmp_path):
    undisturbed = everything(gaps(0, 2), 2)
    for number in range(80):
        faults = with_faults(tmp_path, "breaks", number)
        config = gaps(0, 2, **faults).fault_tolerance(restart_failed_sub_environments=True)
        assert everything(config, 2) == undisturbed, number
        assert happened(faults, number)


NUM_ITERATIONS = 6


def stopped_and_restored(make, stops, folder, num_iterations=NUM_ITERATIONS):
    """`everything` of a run that ends at some iterations and goes on from a checkpoint."""
    results = []
    algo = make().build_algo()
    for number in range(num_iterations):
        if number in stops:
            path = algo.save_to_path(folder / f"{number}")
            algo.stop()
            algo = make().build_algo()
            algo.restore_from_path(path)
        results.append(told(algo.train()))
    with algo:
        return encode([whole_state(algo), results])


# ---- X9, X10: what a replay cannot bring back, and what needs none


class Fickle(Gaps):
    """When it plays a seed for the second time, it does not show who `a` is any more."""

    played = set()

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed, options=options)
        self._is_again = seed in self.played
        self.played.add(seed or 0)
        return answer

    def step(self, actions):
        seen, *rest = super().step(actions)
        if self._is_again:
            seen.pop("a", None)
        return seen, *rest


def test_x9_another_set_of_observed_agents_is_noticed(tmp_path):
    """Everything else is the same; the episode is given up and counted, and the run goes on."""
    Fickle.played.clear()
    config = gaps(0, 6).environment(Fickle)
    with config.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
        running = [slot.newest for slot in algo.env_runner._player.slots]
    with config.build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        lost = algo.train()["fault_tolerance"]["num_episodes_lost"]
    assert 0 < lost <= sum("a" in newest for newest in running)


class WithState(Gaps):
    """Gives its state instead of being played again; counts how often it was taken."""

    num_taken = 0
    _KEPT = ("_t", "_total", "_late", "_length")

    def get_state(self):
        kept = {name: getattr(self, name) for name in self._KEPT if hasattr(self, name)}
        rng = self.np_random.bit_generator.state
        return {"kept": kept, "ended": sorted(getattr(self, "_ended", ()), key=str), "rng": rng}

    def set_state(self, state):
        type(self).num_taken += 1
        for name, value in state["kept"].items():
            setattr(self, name, value)
        self._ended = set(state["ended"])
        self.np_random.bit_generator.state = state["rng"]


def test_x10_an_env_goes_on_from_its_state(tmp_path):
    def make():
        return gaps(0, 2).environment(WithState)

    undisturbed = everything(make(), NUM_ITERATIONS)
    stopped = stopped_and_restored(make, {2, 3}, tmp_path)
    assert stopped == undisturbed
    assert WithState.num_taken >= 2


class Fewer(RLlibCallback):
    """Drops a module after the first iteration; the second one fails at its end, if `fails`."""

    fails = False

    def on_train_result(self, *, algorithm, result, **_):
        if result["training_iteration"] == 1:
            algorithm.remove_module("odd", new_agent_to_module_mapping_fn=_all_even)
        elif type(self).fails:
            type(self).fails = False
            raise KeyboardInterrupt


def _slots(algo):
    return whole_state(algo)["env_runners"]["slots"]


def _states(env_state):
    return [state for name, state in env_state["layers"] if name == "Drawing"]


def _all_even(*_, **__):
    return "even"


@pytest.mark.parametrize("more", [{}, {"env_to_module_connector": lambda *_: Counted()}])
@pytest.mark.parametrize(
    "num_env_runners", [0, pytest.param(1, marks=[pytest.mark.process, pytest.mark.slow])]
)
def test_x10_an_episode_given_up_with_its_module_leaves_the_env_where_it_stood(
    num_env_runners, more
):
    """The iteration after it can be undone like any other."""
    outcomes = []
    for fails in (False, True):
        Fewer.fails = fails
        made = gaps(num_env_runners).environment(Drawing).env_runners(**more)
        with made.callbacks(Fewer).build_algo() as algo:
            results = [told(algo.train())]
            given_up = [slot for slot in _slots(algo) if slot["env_seed"] is None]
            first = np.random.default_rng(11).bit_generator.state
            assert given_up
            for slot in given_up:
                assert first not in [state["generator"] for state in _states(slot["env_state"])]
            if fails:
                with pytest.raises(KeyboardInterrupt):
                    algo.train()
            result = algo.train()
            assert result["fault_tolerance"]["num_episodes_lost"] > 0
            results.append(told(result))
            outcomes.append(encode([whole_state(algo), results]))
    assert outcomes[0] == outcomes[1]


# ---- X13: evaluation, X16: exploration in between, X18: many agents


@pytest.mark.slow
@pytest.mark.process
def test_x13_evaluation_is_the_same_with_any_number_of_runners():
    def told_by(num_evaluation_runners):
        config = evaluated(gaps()).evaluation(
            evaluation_num_env_runners=num_evaluation_runners, evaluation_duration=5
        )
        with config.build_algo() as algo:
            return encode([told(algo.train()) for _ in range(2)])

    assert told_by(1) == told_by(3) == told_by(0)


# ---- X14: an asynchronous evaluation under way


class AtAGate(Gaps):
    """Waits in the middle of every episode while the file `gate` is there; notes that it does."""

    def __init__(self, env_config):
        super().__init__({})
        self._gate = Path(env_config.get("gate", "no gate"))
        self._note = self._gate.with_name(f"waits_{env_config.worker_index}")

    def step(self, actions):
        if self._t == 3 and self._gate.exists():
            self._note.touch()
            assert wait_until(lambda: not self._gate.exists(), within_s=60)
        return super().step(actions)


def asynchronous(gate):
    """Two evaluation runners with a mapping of their own; without a gate, one after the other."""
    made = evaluated(gaps()).environment(AtAGate)
    return made.evaluation(
        evaluation_interval=1,
        evaluation_duration=5,
        evaluation_num_env_runners=2,
        enable_async_evaluation=gate is not None,
        evaluation_config={
            "env_config": {} if gate is None else {"gate": str(gate)},
            "policy_mapping_fn": {"a": "odd", 3: "even", "late": "even"},
        },
    )


def numbers(evaluation):
    """What an evaluation found out, without how."""
    found = comparable({"evaluation": evaluation})["evaluation"]
    return encode(told({key: found[key] for key in ("env_runners", "num_episodes")}))


@functools.cache
def one_after_the_other():
    """What the first evaluation finds out, and what is learnt after the second one."""
    with asynchronous(None).build_algo() as algo:
        expected, other = (numbers(algo.train()["evaluation"]) for _ in range(2))
        learnt = encode(algo.get_state(["learner", "counters", "connectors"]))
    assert expected != other
    return expected, learnt


@pytest.mark.process
@pytest.mark.parametrize("how", ["killed", "restored"])
def test_x14_an_evaluation_under_way_begins_its_episodes_again(how, tmp_path):
    """Its runners stand in the middle of episodes when they die, or the run ends and is restored;
    training went on meanwhile, and is not disturbed."""
    expected, learnt = one_after_the_other()
    gate = tmp_path / "gate"
    gate.touch()
    algo = asynchronous(gate).build_algo()
    algo.train()
    assert wait_until(lambda: len([*tmp_path.glob("waits_*")]) == 2, within_s=30)
    assert "evaluation" not in algo.train()
    assert encode(algo.get_state(["learner", "counters", "connectors"])) == learnt
    if how == "killed":
        for pid in algo.eval_env_runner_group.env_runner_pids().values():
            os.kill(pid, signal.SIGKILL)
    else:
        path = algo.save_to_path(tmp_path / "checkpoint")
        algo.stop()
        algo = asynchronous(gate).build_algo()
        algo.restore_from_path(path)
    gate.unlink()
    found = []

    def has_ended():
        found.append(algo.train().get("evaluation"))
        return found[-1] is not None

    with algo:
        assert wait_until(has_ended, within_s=30)
    assert found[-1]["evaluated_at_iteration"] == 1
    assert numbers(found[-1]) == expected


# ---- X15: exploration


@pytest.mark.parametrize("type_", STRATEGIES)
def test_x15_what_an_agent_explores_does_not_depend_on_who_else_acts(type_):
    def of(names):
        space = Pushing({}).action_space if type_ == "OrnsteinUhlenbeckNoise" else None
        return drawn(exploring(type_, Same, names=names, space=space))

    alone, two, three = of(["A"]), of(["A", "B"]), of(["A", "B", "C"])
    assert alone["A"] == two["A"] == three["A"]
    assert two["B"] == three["B"] != three["A"]
    assert three["C"] != three["A"]


def test_x16_greedy_steps_in_between_use_up_as_many_numbers():
    """What the agents draw afterwards follows from how often they acted, not from how."""

    def afterwards(explore):
        with shown_the_same().build_algo() as algo:
            runner = algo.env_runner
            runner.sample(num_timesteps=8, explore=explore)
            return _actions_of(runner.sample(num_timesteps=40))

    assert afterwards(True) == afterwards(False)


def _actions_of(episodes):
    actions = {}
    for episode in episodes:
        for agent, own in episode.agent_episodes.items():
            actions.setdefault(agent, []).extend(np.asarray(own.get_actions()).tolist())
    return actions


class Crowd(Same):
    """300 agents may come, and three do."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.possible_agents = list(range(env_config["num_agents"]))

    def _zeros(self):
        return {agent: np.zeros(3, np.float32) for agent in self.possible_agents[:3]}


def test_x18_agents_that_do_not_come_cost_little():
    def bytes_of_training(num_agents):
        config = shown_the_same().environment(Crowd, env_config={"num_agents": num_agents})
        with config.build_algo() as algo:
            algo.train()
            # what runs the tests may receive a message meanwhile, but not each time
            least = min(peak_bytes(algo.train) for _ in range(3))
            assert algo.counters.num_env_steps_sampled == 240
        return least

    few, many = bytes_of_training(3), bytes_of_training(300)
    assert (many - few) / 297 <= 10_000
