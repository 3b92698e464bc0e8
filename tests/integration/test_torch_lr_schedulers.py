"""Learning rates that schedulers of Torch decide: where they are stepped, exactness, refusals."""

from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from checkpoints import CheckpointMismatchError, encode
from tests.small_runs import killing, small_ppo
from trainer import Algorithm, ConfigError, DQNConfig, ModuleError, PPOConfig, PPOTorchLearner
from trainer.learners.torch_schedulers import TorchSchedule
from trainer.testing.envs import CountdownEnv
from trainer.testing.multi_agent_envs import MultiAgentCartPole

PAIR = [partial(ConstantLR, factor=0.1, total_iters=3), partial(ExponentialLR, gamma=0.5)]
RATE = "learners/default_policy/default_optimizer_learning_rate"


def in_sequence(optimizer):
    parts = [LinearLR(optimizer, 0.1, total_iters=4), ExponentialLR(optimizer, 0.9)]
    return SequentialLR(optimizer, parts, milestones=[4])


OF_TORCH = {
    "two": PAIR,
    "milestones": [partial(MultiStepLR, milestones=[2, 2, 5], gamma=0.1)],
    "restarts": [partial(CosineAnnealingWarmRestarts, T_0=3)],
    "a function": [partial(LambdaLR, lr_lambda=lambda count: 1.0 / (1 + count))],
    "in sequence": [in_sequence],
    "one cycle": [partial(OneCycleLR, max_lr=0.1, total_steps=20, cycle_momentum=False)],
}


def scheduled(num_env_runners=0, *, schedulers=PAIR, **settings):
    return small_ppo(num_env_runners, lr=0.02, torch_lr_schedulers=schedulers, **settings)


def rates_of(algo, num_iterations, name=RATE):
    return [algo.train()[name] for _ in range(num_iterations)]


class TwoOptimizers(PPOTorchLearner):
    def configure_optimizers_for_module(self, module_id, config=None):
        values = list(self.module.vf.parameters())
        others = [one for one in self.get_parameters() if all(one is not each for each in values)]
        groups = [{"params": others[:1], "lr": 1e-3}, {"params": others[1:], "lr": 1e-2}]
        self.register_optimizer(optimizer_name="rest", optimizer=Adam(groups))
        self.register_optimizer(
            optimizer_name="values",
            optimizer=SGD(values, momentum=0.9, lr=1.0),
            lr_or_lr_schedule=0.1,
        )


# ---- the rates


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_schedule_gives_the_rates_of_torch(name):
    mine = TorchSchedule(OF_TORCH[name], [0.02, 0.3])
    theirs = Adam([{"params": [torch.zeros(1)], "lr": rate} for rate in (0.02, 0.3)])
    made = [factory(theirs) for factory in OF_TORCH[name]]
    for _ in range(9):
        assert mine.rates == [group["lr"] for group in theirs.param_groups]
        assert mine.value_at(10**9) == mine.rates[0]
        mine.step()
        theirs.step()
        for scheduler in made:
            scheduler.step()


def test_they_are_stepped_after_each_update_one_after_another():
    with scheduled().build_algo() as algo:
        rates = rates_of(algo, 5)
        learner = algo.learner
        assert learner.get_optimizer().param_groups[0]["lr"] == pytest.approx(0.02 * 0.5**5)
        assert learner.get_optimizer("default_policy", "default_optimizer") is (
            learner.get_optimizer()
        )
    expected = [0.002, 0.001, 0.0005, 0.0025, 0.00125]
    assert rates == pytest.approx(expected)


def test_rllibs_name_is_understood():
    made = PPOConfig().environment(CountdownEnv).experimental(_torch_lr_scheduler_classes=PAIR)
    assert made.torch_lr_schedulers[0].keywords == {"factor": 0.1, "total_iters": 3}
    assert made._torch_lr_scheduler_classes is made.torch_lr_schedulers
    assert PPOConfig.overrides(exploration=False) == {"explore": False}


@pytest.mark.parametrize("cls", [None, PPOTorchLearner])
def test_the_rate_decides_what_is_learnt(cls):
    outcomes = []
    for schedulers in (None, PAIR):
        with scheduled(schedulers=schedulers, learner_class=cls).build_algo() as algo:
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]["rl_module"]))
    assert outcomes[0] != outcomes[1]


def test_registered_optimisers_follow_with_all_their_groups():
    made = scheduled(learner_class=TwoOptimizers)
    with made.build_algo() as algo:
        rates = rates_of(algo, 3, "learners/default_policy/values_learning_rate")
        groups = algo.learner.get_optimizer(None, "rest").param_groups
        assert [group["lr"] for group in groups] == pytest.approx([1e-4 / 4, 1e-3 / 4])
    assert rates == pytest.approx([0.01, 0.005, 0.0025])


def test_each_module_has_rates_of_its_own():
    made = scheduled().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    made.multi_agent(policies={"a", "b"}, policy_mapping_fn={0: "a", 1: "b"})
    made.multi_agent(algorithm_config_overrides_per_module={"b": {"torch_lr_schedulers": None}})
    with made.build_algo() as algo:
        algo.train()
        result = algo.train()
    rates = [result[f"learners/{id_}/default_optimizer_learning_rate"] for id_ in "ab"]
    assert rates == pytest.approx([0.001, 0.02])


# ---- exactness


@pytest.mark.parametrize("cls", [None, PPOTorchLearner, TwoOptimizers])
def test_a_restored_run_goes_on_with_the_same_bytes(cls, tmp_path):
    made = scheduled(schedulers=[*PAIR, *OF_TORCH["milestones"]], learner_class=cls)
    with made.build_algo() as algo:
        rates_of(algo, 2, "training_iteration")
        algo.save_to_path(tmp_path / "half")
        rates_of(algo, 2, "training_iteration")
        expected = encode(algo.get_state()["learner"])
    given = {"torch_lr_schedulers": made.torch_lr_schedulers, "learner_class": cls}
    with Algorithm.from_checkpoint(tmp_path / "half", **given) as algo:
        rates_of(algo, 2, "training_iteration")
        assert encode(algo.get_state()["learner"]) == expected


def test_a_run_whose_count_is_lost_learns_otherwise():
    outcomes = []
    for is_lost in (False, True):
        with scheduled().build_algo() as algo:
            rates_of(algo, 2)
            if is_lost:
                algo.learner.parts["lr_schedulers"].set_state({"num_steps": 0})
            rates_of(algo, 1)
            outcomes.append(encode(algo.get_state()["learner"]["rl_module"]))
    assert outcomes[0] != outcomes[1]


@pytest.mark.parametrize("cls", [None, TwoOptimizers])
def test_a_failed_iteration_takes_their_steps_back(cls):
    def on_train_result(*, result, **_):
        if result["training_iteration"] == 2 and not failed:
            failed.append(1)
            raise InterruptedError

    failed, outcomes = [], []
    for listeners in ({}, {"on_train_result": on_train_result}):
        made = scheduled(learner_class=cls).callbacks(**listeners)
        with made.build_algo() as algo:
            algo.train()
            if listeners:
                with pytest.raises(Exception, match="InterruptedError"):
                    algo.train()
            rates_of(algo, 2, "training_iteration")
            outcomes.append(encode(algo.get_state()["learner"]))
    assert outcomes[0] == outcomes[1]
    assert failed


@pytest.mark.process
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    file = tmp_path / "kill"
    file.touch()
    outcomes = []
    for made in (scheduled(), scheduled(2).callbacks(on_episode_step=killing(file, at_step=3))):
        with made.build_algo() as algo:
            rates_of(algo, 2)
            outcomes.append(encode(algo.get_state()["learner"]))
    assert outcomes[0] == outcomes[1]
    assert not file.exists(), "no runner was killed"


@pytest.mark.parametrize("count", [-1, 2**40, 1.5, None])
def test_a_count_that_cannot_be_is_refused(count):
    with scheduled().build_algo() as algo:
        rates_of(algo, 1)
        state = algo.get_state()
        before = encode(state["learner"])
        state["learner"]["lr_schedulers"] = {"num_steps": count}
        with pytest.raises(CheckpointMismatchError, match="lr_schedulers"):
            algo.set_state(state)
        assert encode(algo.get_state()["learner"]) == before


ENDS = [partial(ExponentialLR, gamma=0.5), partial(OneCycleLR, max_lr=0.1, total_steps=3)]
ENDS[1].keywords["cycle_momentum"] = False


def test_a_scheduler_that_is_over_is_told_and_its_failed_step_is_taken_back():
    mine = TorchSchedule(ENDS, [0.02])
    for _ in range(3):
        mine.step()
    state, rates = mine.get_state(), mine.rates
    for _ in range(2):
        with pytest.raises(ConfigError, match="OneCycleLR makes no step after the 3 that"):
            mine.step()
        assert mine.rates != rates  # half of the step
        mine.set_state(state)
        assert (mine.rates, mine.get_state()) == (rates, state)


def test_a_count_of_more_steps_than_there_are_changes_nothing():
    mine = TorchSchedule(ENDS, [0.02])
    mine.step()
    rates = mine.rates
    with pytest.raises(CheckpointMismatchError, match="of other schedulers"):
        mine.set_state({"num_steps": 50})
    assert (mine.rates, mine.get_state()) == (rates, {"num_steps": 1})


def test_of_registered_optimisers_alone_schedulers_are_kept():
    with scheduled(learner_class=TwoOptimizers).build_algo() as algo:
        parts = [name for name in algo.learner.parts if "lr_schedulers" in name]
        assert "lr_schedulers" not in parts
        assert len(parts) == len(algo.learner.torch_schedules) == 2


# ---- refused


@pytest.mark.parametrize(
    ("schedulers", "match"),
    [
        ([ReduceLROnPlateau], "step.. wants metrics"),
        ([ExponentialLR], "ExponentialLR raised TypeError"),
        ([partial(OneCycleLR, max_lr=0.1, total_steps=20)], "change betas"),
        ([lambda optimizer: 3], "raised AttributeError"),
    ],
)
def test_what_is_no_schedule_of_rates_is_refused(schedulers, match):
    with pytest.raises(ConfigError, match=match):
        scheduled(schedulers=schedulers).build_algo()


def test_two_schedules_of_one_rate_are_refused():
    with pytest.raises(
        ConfigError, match="it is a schedule, and `torch_lr_schedulers` are another"
    ):
        scheduled().training(lr=[[0, 1e-3], [1000, 1e-4]]).validate()


def test_replay_refuses_them():
    with pytest.raises(ConfigError, match="torch_lr_schedulers"):
        DQNConfig().environment(CountdownEnv).training(torch_lr_schedulers=PAIR).validate()


def test_no_optimiser_of_torch_is_told():
    with small_ppo().build_algo() as algo, pytest.raises(ModuleError, match="has no optimiser"):
        algo.learner.get_optimizer()
