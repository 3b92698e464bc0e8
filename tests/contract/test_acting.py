"""One acting path: the same row gets the same action wherever it comes from.

Rows come from env slots, from the agents of several, from the columns of a vector env, and from
single observations: `compute_single_action`, and `TrainedPolicy` from a checkpoint.
"""

from typing import Any

import numpy as np
import pytest

from tests.exact_runs import MaskedEnv, NestedEnv
from tests.small_runs import small_ppo
from trainer import DQNConfig, TrainedPolicy
from trainer.connectors import Normalization
from trainer.env_runners.acting import Rows, Seat, policy_in_runner
from trainer.episodes import nested
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, STATE_IN
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.seeding import NOISE_DRAWS, NoiseStream, Role
from trainer.testing import ContinuousEnv, MultiAgentCartPole, StatelessCartPole
from trainer.testing.multi_agent_envs import MultiAgentPendulum
from trainer.types import DEFAULT_AGENT_ID

MEMORY = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
STEP_BEFORE = {**MEMORY, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
NUM_ROWS = 9


def ppo(env, **model):
    made = small_ppo(env=env, model={"fcnet_hiddens": [8], **model})
    return made.env_runners(observation_filter="MeanStdFilter")


def dqn():
    made = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    made.env_runners(num_envs_per_env_runner=3).debugging(seed=5)
    made.reporting(min_sample_timesteps_per_iteration=40)
    return made.training(model={"fcnet_hiddens": [8]}, num_steps_sampled_before_learning_starts=9)


def several(env, **model):
    made = ppo(env, **model).environment(env_config={"num_agents": 2})
    return made.multi_agent(policies={"p", "q"}, policy_mapping_fn={0: "p", 1: "q"})


def exploring(env, kind, **model):
    return ppo(env, **model).env_runners(exploration_config={"type": kind})


CASES = {
    "one agent, scaled actions": lambda: ppo(ContinuousEnv),
    "nested actions": lambda: ppo(NestedEnv),
    "masks": lambda: ppo(MaskedEnv),
    "a strategy": dqn,
    "noise on weights": lambda: exploring("CartPole-v1", "ParameterNoise"),
    "a vector env": lambda: ppo("CartPole-v1").env_runners(
        gym_env_vectorize_mode="vector_entry_point"
    ),
    "memory": lambda: ppo(StatelessCartPole, use_gru=True, lstm_cell_size=6, max_seq_len=5),
    "memory that reads the step before": lambda: ppo(StatelessCartPole, **STEP_BEFORE),
    "several agents": lambda: several(MultiAgentCartPole),
    "several agents, scaled actions": lambda: several(MultiAgentPendulum),
    "several agents with memory": lambda: several(MultiAgentCartPole, **STEP_BEFORE),
}

Trained = dict[str, TrainedPolicy]


def trained(algo, path):
    algo.save_to_path(path)
    ids = list(algo.learners)
    return {id_: TrainedPolicy.from_checkpoint(path, module_id=id_) for id_ in ids}


def check_alike(algo, policies, *, num_steps=10):
    """What a runner plays without exploration is what its observations get elsewhere."""
    runner = algo.env_runner
    player = runner._player
    # A vector env records as columns when steps are asked for, and a chunk then begins anywhere.
    unit = "num_timesteps" if runner.spec.has_vector_env else "num_episodes"
    wanted = 40 if runner.spec.has_vector_env else 3
    for episode in runner.sample(explore=False, **{unit: wanted}):
        for chunk in player.chunks_of(episode):
            module_id = chunk.module_id or algo.learners.only_id
            to_env = player.policies[module_id].to_env
            check_chunk(algo, policies[module_id], chunk, to_env, module_id, num_steps)


def check_chunk(algo, policy, chunk, to_env, module_id, num_steps):
    state, before = None, dict[str, Any]()
    for t in range(min(len(chunk), num_steps)):
        observation, action = chunk.get_observations(t), chunk.get_actions(t)
        expected, inputs = to_env(action), chunk.get_extra_model_outputs(ACTION_DIST_INPUTS, t)
        single, after, fetched = algo.compute_single_action(
            observation, state, policy_id=module_id, explore=False, full_fetch=True, **before
        )
        assert fetched[ACTION_DIST_INPUTS].tobytes() == inputs.tobytes()
        assert nested.equal(single, expected)
        predicted = policy.predict(observation, state, **before)
        if policy.module.is_stateful():
            predicted, policy_after = predicted
            assert nested.equal(policy_after, after)
            if t + 1 < len(chunk):
                assert nested.equal(after, chunk.get_extra_model_outputs(STATE_IN, t + 1))
            state = after
            before = {"prev_action": action, "prev_reward": chunk.get_rewards(t)}
        assert nested.equal(predicted, expected)


@pytest.mark.parametrize("case", CASES)
def test_runners_single_actions_and_trained_policies_act_alike(case, tmp_path):
    with CASES[case]().build_algo() as algo:
        algo.train()
        check_alike(algo, trained(algo, tmp_path / "saved"))


def _other_weights(algo, policies):
    policies["p"].module.parameters.flat[:] *= 1.5


def _other_statistics(algo, policies):
    algo._inference["q"].normalize_with(Normalization())


def _forgotten_memory(algo, policies):
    policy = algo.env_runner._player.policies["p"]
    choose = policy.choose

    def forgetful(rows, request):
        return choose(rows._replace(memory=[None] * len(rows.slots)), request)

    policy.choose = forgetful


@pytest.mark.parametrize("spoil", [_other_weights, _other_statistics, _forgotten_memory])
def test_who_acts_otherwise_is_noticed(spoil, tmp_path):
    with several(MultiAgentCartPole, **MEMORY).build_algo() as algo:
        algo.train()
        policies = trained(algo, tmp_path / "saved")
        spoil(algo, policies)
        with pytest.raises(AssertionError):
            check_alike(algo, policies)


# ---- how rows are given

POLICIES = {
    "plain": lambda: ppo("CartPole-v1"),
    "scaled actions": lambda: ppo(ContinuousEnv),
    "nested actions": lambda: ppo(NestedEnv),
    "masks": lambda: ppo(MaskedEnv),
    "memory": lambda: ppo(StatelessCartPole, **STEP_BEFORE),
    "EpsilonGreedy": lambda: exploring("CartPole-v1", "EpsilonGreedy"),
    "masks, SoftQ": lambda: exploring(MaskedEnv, "SoftQ"),
    "noise that goes on": lambda: exploring(ContinuousEnv, "OrnsteinUhlenbeckNoise"),
    "noise of features": lambda: exploring(
        ContinuousEnv, "StateDependentNoise", free_log_std=True, log_std_by_feature=True
    ),
    "noise on weights": lambda: exploring("CartPole-v1", "ParameterNoise"),
    "memory, EpsilonGreedy": lambda: exploring(StatelessCartPole, "EpsilonGreedy", **MEMORY),
}


def choose(policy, rows):
    """Two steps of the rows, each in an episode of its own; what a strategy remembers goes on."""
    for slot in rows.slots:
        policy.begin_episode(slot, lambda slot=slot: np.random.default_rng(slot))
    request = ActingRequest(50, explore=True)
    if policy.state_form is not None:
        nothing = [None] * len(rows.slots)
        previous = policy.previous_steps.columns(nothing, [0.5] * len(rows.slots))
        rows = rows._replace(memory=nothing, previous=previous)
    first = policy.choose(rows, request)
    return policy.choose(rows._replace(memory=first.memory), request)


def pieces(choice, count):
    """Every row of a choice as bytes."""
    columns = [choice.actions, *choice.outputs.values()]
    each = [nested.unstack(column, count) for column in columns]
    each += [list(choice.memory)] if choice.memory else []
    found = []
    for row in zip(*each, strict=True):
        leaves = []
        nested.map_leaves(lambda leaf, to=leaves: to.append(np.asarray(leaf)), tuple(row))
        found.append(b"".join(leaf.tobytes() for leaf in leaves))
    return found


@pytest.mark.parametrize("case", POLICIES)
def test_a_row_is_chosen_for_alike_alone_beside_others_and_in_a_batch(case):
    with POLICIES[case]().build_algo() as algo:
        runner = algo.env_runner
        chunks = runner.sample(num_timesteps=60)
        seen = [chunk.get_observations(t) for chunk in chunks for t in range(len(chunk))]
        observations = seen[:NUM_ROWS]

        def new():
            return policy_in_runner(runner.module, runner.spec, where=str)

        kind, shape = new().noise_kind, (NUM_ROWS, new().noise_width)

        def chosen(given, order, seed=1):
            noise = NOISE_DRAWS[kind](np.random.default_rng(seed), shape)
            return pieces(choose(new(), Rows(given, noise[order], list(order))), len(order))

        everyone = range(NUM_ROWS)
        together = chosen(observations, everyone)
        backwards = chosen(observations[::-1], everyone[::-1])
        assert backwards[::-1] == together
        assert [one for t in everyone for one in chosen([observations[t]], [t])] == together
        assert chosen(nested.stack(observations, name="obs"), everyone) == together
        assert chosen(observations, everyone, seed=2) != together, "the control: other numbers"


def test_a_choice_is_no_memory_that_the_network_writes_into_again():
    with ppo("CartPole-v1").build_algo() as algo:
        runner = algo.env_runner
        policy = policy_in_runner(runner.module, runner.spec, where=str)
        forward, same = policy.module.forward_exploration, np.zeros((1, 2), np.float32)

        def reusing(batch):
            same[:] = forward(batch)[ACTION_DIST_INPUTS]
            return {ACTION_DIST_INPUTS: same}

        policy.module.__dict__["forward_exploration"] = reusing
        first, _ = (
            policy.choose(
                Rows([np.full(4, shown, np.float32)], np.zeros((1, 2)), [0]), ActingRequest(0, True)
            ).outputs[ACTION_DIST_INPUTS]
            for shown in (0.5, -0.5)
        )
        assert not np.array_equal(first, same)


def test_without_exploration_likelihoods_are_those_of_the_network():
    with exploring("CartPole-v1", "EpsilonGreedy").build_algo() as algo:
        runner = algo.env_runner
        policy = policy_in_runner(runner.module, runner.spec, where=str)
        inputs, actions = np.array([[0.3, 0.1]], np.float32), np.array([0])
        of_network, explored = (
            policy.logp(inputs, actions, ActingRequest(10_000, explore))
            for explore in (False, True)
        )
        assert of_network == policy.distribution.logp(inputs, actions) != explored


# ---- seats


def test_each_agent_draws_numbers_of_its_own():
    with ppo("CartPole-v1").build_algo() as algo:
        runner = algo.env_runner
        policy = policy_in_runner(runner.module, runner.spec, where=str)
    drawn, uniform = [], []
    for agent in (DEFAULT_AGENT_ID, "a", "b", "a"):
        seat = Seat(0, root_seed=3, role=Role.TRAINING, agent=agent)
        seat.take(policy)
        seat.begin(1, 2)
        drawn.append(seat.noise.next_row().tobytes())
        uniform.append(seat.uniform_rng(1, 2, 0).random())
    alone = NoiseStream(3, Role.TRAINING, kind=policy.noise_kind, width=policy.noise_width)
    alone.start(1, 2)
    assert drawn[0] == alone.next_row().tobytes(), "as in an env of one agent"
    for numbers in (drawn, uniform):
        assert numbers[1] == numbers[3]
        assert len({*numbers}) == 3
