"""What modules learn from beside others: their own minibatches, ends and rows, all or nothing."""

import numpy as np
import pytest
from gymnasium import spaces

from callbacks import CallbackError
from checkpoints import encode
from tests.multi_agent_runs import gaps, told, whole_state
from tests.multi_agent_scripts import G4, G7, G8, G12, G13, step
from trainer import DQNConfig, PPOConfig
from trainer.envs import MultiAgentEnv
from trainer.errors import ModuleError
from trainer.testing import AgentScript, ScriptedMultiAgentEnv

# ---- T1: few rows beside many


class Counting(MultiAgentEnv):
    """Shows random numbers to its agents, and counts env steps."""

    agents_played = ()

    def __init__(self, env_config):
        del env_config
        self.possible_agents = list(self.agents_played)
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._t = 0
        return {agent: self._seen() for agent in self.possible_agents}, {}

    def _seen(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)


class Rarely(Counting):
    """`often` is observed at every env step, `rare` at every thousandth one."""

    agents_played = ("often", "rare")

    def step(self, actions):
        self._t += 1
        present = self.possible_agents[: 1 if self._t % 1000 else 2]
        rewards = {agent: float(action) for agent, action in actions.items()}
        return {agent: self._seen() for agent in present}, rewards, {}, {}, {}


def test_t1_a_module_with_few_rows_makes_as_many_steps_as_its_own_rows_give():
    """3,000 rows make 60 steps, and 3 rows one: not as many as those of the largest module."""
    config = PPOConfig().environment(Rarely).env_runners(num_env_runners=0)
    config.multi_agent(policies={"many", "few"}, policy_mapping_fn={"often": "many", "rare": "few"})
    config.training(train_batch_size=3000, minibatch_size=100, num_epochs=2)
    config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)
    with config.build_algo() as algo:
        result = algo.train()
        steps = {
            id_: learner.get_state()["optimizer"]["num_steps"]
            for id_, learner in algo.learners.items()
        }
    assert result["env_runners"]["num_module_steps_sampled"] == {"few": 3, "many": 3000}
    assert steps == {"few": 1, "many": 60}


# ---- T2: an iteration without rows


class Alone(Counting):
    """One agent plays ten env steps."""

    agents_played = ("a",)

    def step(self, actions):
        self._t += 1
        return {"a": self._seen()}, {"a": float(actions["a"])}, {"__all__": self._t == 10}, {}, {}


def in_turns(agent_id, episode):
    """`q` plays every third episode, beginning with the second one."""
    del agent_id
    return "q" if episode.number % 3 == 1 else "p"


def ppo_in_turns():
    config = PPOConfig().training(train_batch_size=10, minibatch_size=5, num_epochs=2)
    return config.env_runners(num_env_runners=0)


def dqn_in_turns():
    config = DQNConfig().env_runners(rollout_fragment_length=10)
    config.training(train_batch_size=4, num_steps_sampled_before_learning_starts=10)
    return config.reporting(min_sample_timesteps_per_iteration=10)


@pytest.mark.parametrize(
    ("make", "updates"),
    [
        (ppo_in_turns, {"p": [1, 1, 2, 3, 3], "q": [0, 1, 1, 1, 2]}),
        # From replay, every module that has rows at all learns in every round.
        (dqn_in_turns, {"p": None, "q": None}),
    ],
    ids=["ppo", "dqn"],
)
def test_t2_a_module_without_rows_makes_no_update_and_goes_on_later(make, updates):
    config = make().environment(Alone).debugging(seed=3)
    config.multi_agent(policies={"p", "q"}, policy_mapping_fn=in_turns)
    config.rl_module(model_config={"fcnet_hiddens": [4]})
    seen = {"p": [], "q": []}
    with config.build_algo() as algo:
        for iteration in range(5):
            before = {id_: encode(one.get_state()) for id_, one in algo.learners.items()}
            result = algo.train()
            acted = result["env_runners"]["num_module_steps_sampled"]
            assert {id_ for id_, rows in acted.items() if rows} == {
                "q" if iteration in (1, 4) else "p"
            }
            for id_, learner in algo.learners.items():
                learnt = result["learners"][id_]
                has_learnt = encode(learner.get_state()) != before[id_]
                assert learnt["num_updates_lifetime"] == learner.num_updates
                assert (learnt["num_module_steps_trained"] > 0) == has_learnt
                seen[id_].append(learner.num_updates)
    if updates["p"] is not None:
        assert seen == updates
    else:
        assert seen["q"][0] == 0  # its buffer is empty
        assert 0 < seen["q"][-1] < seen["p"][-1]


# ---- T3: what follows after an agent's last row

GAMMA = 0.9
VALUE = 100.0
"""What the value function answers, whatever it is shown."""


class OfScript(ScriptedMultiAgentEnv):
    """Plays the script that its class has."""

    def __init__(self, env_config):
        super().__init__({"script": env_config["script"]})


def advantages(script, batch_sizes):
    """{agent: the advantages of its rows, update by update}, λ = 1, with V = 100 everywhere."""
    found = {"A": [], "B": []}
    modules = {}

    def note(*, policy, train_batch, **_):
        assert np.allclose(train_batch["vf_preds"], VALUE)
        found[modules[id(policy)]].append(
            (np.asarray(train_batch["value_targets"], np.float64) - VALUE).round(3).tolist()
        )

    config = PPOConfig().environment(OfScript, env_config={"script": script})
    config.env_runners(num_env_runners=0).debugging(seed=3).callbacks(on_learn_on_batch=note)
    config.multi_agent(policies={"A", "B"}, policy_mapping_fn={"A": "A", "B": "B"})
    config.training(
        train_batch_size=batch_sizes[0],
        minibatch_size=1,
        num_epochs=1,
        lr=0.0,
        gamma=GAMMA,
        lambda_=1.0,
    )
    config.rl_module(model_config={"fcnet_hiddens": [4], "vf_share_layers": False})
    with config.build_algo() as algo:
        for id_ in ("A", "B"):
            modules[id(algo.get_module(id_))] = id_
            weights = algo.get_weights()[id_]
            for name in weights:
                if name.startswith("vf/"):
                    weights[name] = np.full_like(weights[name], 0.0)
            last = max(name for name in weights if name.startswith("vf/") and name.endswith("bias"))
            weights[last] = np.full_like(weights[last], VALUE)
            algo.set_weights({id_: weights})
        for _ in batch_sizes:
            algo.train()
    return found


def of_rows(rewards, *, is_terminated):
    """r + γ V' - V, and γ times what comes after it; V' is 0 after a terminated agent."""
    after, answer = 0.0, []
    for number, reward in enumerate(reversed(rewards)):
        following = 0.0 if is_terminated and number == 0 else VALUE
        after = reward + GAMMA * following - VALUE + GAMMA * after
        answer.append(round(after, 3))
    return answer[::-1]


def test_of_rows_is_what_a_hand_computes():
    assert of_rows([1.0, 1.0], is_terminated=False) == [-17.1, -9.0]
    assert of_rows([1.0, 1.0], is_terminated=True) == [-98.1, -99.0]


TURNS = AgentScript(
    ("A", "B"),
    [
        step({"A": 0}),
        step({"B": 20}),
        step({"A": 1}),
        step({"B": 21}),
        step({"A": 2}),
        step({}, {"A": 1.0, "B": -1.0}, terminated="*"),
    ],
)
"""A game in turns that A wins with its third move; B loses after its second one, when it waits."""


ENDS = {
    # script; rewards and end of A; of B: U is bootstrapped from the last own observation
    "G7": (G7, [1.0, 1.0], "U", [1.0, 1.0], "U"),
    "G8": (G8, [1.0], "T", [1.0, 1.0], "U"),
    "G12": (G12, [1.0, 1.0, 1.0], "U", [0.75], "U"),
    "G13": (G13, [1.0, 1.0, 1.0], "T", [0.75], "T"),
    "turns": (TURNS, [0.0, 0.0, 1.0], "T", [0.0, -1.0], "T"),
}


@pytest.mark.parametrize("name", ENDS)
def test_t3_limits_are_bootstrapped_and_ends_are_not(name):
    script, paid_to_a, end_of_a, paid_to_b, end_of_b = ENDS[name]
    found = advantages(script, [len(script.steps) - 1])
    assert found == {
        "A": [of_rows(paid_to_a, is_terminated=end_of_a == "T")],
        "B": [of_rows(paid_to_b, is_terminated=end_of_b == "T")],
    }


def test_t3_an_agent_that_waits_at_a_cut_learns_its_row_once_and_later():
    """G5: G4 cut after two steps; B's first row is completed in the second chunk."""
    found = advantages(G4, [2, 2])
    cut = of_rows([1.0, 1.0], is_terminated=False)
    assert found == {"A": [cut, cut], "B": [of_rows([1.75, 2.0], is_terminated=False)]}


# ---- T5: an error in the second module


def spoilt(module_id, kind):
    """A listener that fails, or makes learning fail, for one module in the second iteration."""
    count = [0]

    def listen(*, policy, train_batch, **_):
        count[0] += 1
        if count[0] != {"even": 3, "odd": 4}[module_id]:  # modules learn in canonical order
            return
        if kind == "raises":
            raise ValueError("on purpose")
        train_batch["advantages"] = np.full_like(train_batch["advantages"], np.nan)

    return listen


@pytest.mark.parametrize(("kind", "module_id"), [("raises", "odd"), ("spoils", "even")])
def test_t5_an_error_in_one_module_undoes_the_others_and_the_iteration(kind, module_id):
    with gaps(0, 2).build_algo() as algo:
        results = [told(algo.train()) for _ in range(3)]
        undisturbed = encode([whole_state(algo), results])
    with gaps(0, 2).callbacks(on_learn_on_batch=spoilt(module_id, kind)).build_algo() as algo:
        results = [told(algo.train())]
        before = {id_: encode(one.get_state()) for id_, one in algo.learners.items()}
        with pytest.raises((CallbackError, ModuleError)):
            algo.train()
        assert {id_: encode(one.get_state()) for id_, one in algo.learners.items()} == before
        assert algo.training_iteration == 1
        results += [told(algo.train()) for _ in range(2)]
        assert encode([whole_state(algo), results]) == undisturbed
