"""Networks with memory: sequences, states, gradients, what is refused; batches of sequences."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_modules import RunningMean
from tests.small_runs import small_ppo
from trainer import ConfigError, DQNConfig, RLModuleSpec, SACConfig
from trainer.connectors import PreviousSteps
from trainer.errors import EpisodeError, ModuleError
from trainer.learners.batching import RowBatching, SequenceBatching, batching_for, values_of_chunk
from trainer.learners.columns import Columns
from trainer.modules.memory import Sequences, max_seq_len_of, state_form
from trainer.testing.envs import CountdownEnv, StatelessCartPole

OBS, ACT = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(3)
SMALL = {"fcnet_hiddens": [5], "lstm_cell_size": 4}


def built(model_config, *, action_space=ACT, **spec):
    return RLModuleSpec(
        observation_space=OBS,
        action_space=action_space,
        model_config={**SMALL, **model_config},
        **spec,
    ).build(np.random.default_rng(2))


# ---- modules


@pytest.mark.parametrize("kind", ["use_lstm", "use_gru"])
def test_torch_learns_what_numpy_does(kind):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    batch = {"obs": rng.standard_normal((9, 3)).astype(np.float32), "seq_lens": np.array([4, 5])}
    found = []
    for backend in ("numpy", "torch"):
        module = built({kind: True, "backend": backend})
        outputs = module.forward_train(batch)
        inputs, values = outputs["action_dist_inputs"].copy(), outputs["vf_preds"].copy()
        module.backward(d_action_dist_inputs=np.cos(inputs), d_vf_preds=np.sin(values))
        found.append((inputs, values, module.gradients.flat.copy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_previous_actions_and_rewards_change_what_is_computed():
    reads = {"use_gru": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    module = built(reads)
    obs = np.zeros((2, 3), np.float32)
    codes, rewards = np.eye(3, dtype=np.float32)[[0, 1]], np.zeros(2, np.float32)
    first = module.compute_values({"obs": obs, "prev_actions": codes, "prev_rewards": rewards})
    assert first[0] != first[1]
    second = module.compute_values({"obs": obs, "prev_actions": codes, "prev_rewards": rewards + 1})
    assert (first != second).all()
    assert module.parameters.shapes["encoder/memory/kernel"] == (5 + 3 + 1, 12)


# ---- sequences


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_padding_and_taking_out_are_inverse(lengths):
    sequences = Sequences(np.array(lengths))
    rows = np.arange(2.0 * sum(lengths)).reshape(-1, 2) + 1.0
    padded = sequences.padded(rows)
    assert padded.shape == (len(lengths), max(lengths), 2)
    assert (sequences.flat(padded) == rows).all()
    assert ((padded != 0).all(axis=2) == sequences.mask).all()


def columns_of(lengths, *, seed=0):
    """Chunks of so many steps with states that say the row."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    return Columns(
        observations=rng.standard_normal((count + len(lengths), 3)).astype(np.float32),
        actions=rng.integers(3, size=count),
        action_logp=np.zeros(count, np.float32),
        action_dist_inputs=np.zeros((count, 3), np.float32),
        rewards=np.ones(count),
        terminateds=np.zeros(count, np.bool_),
        lengths=np.array(lengths),
        is_terminated=np.zeros(len(lengths), np.bool_),
        state_in={"h": np.arange(4.0 * count).reshape(count, 4).astype(np.float32)},
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 20))
def test_a_pass_holds_every_row_once_in_whole_sequences(lengths, longest, size):
    columns, batching = columns_of(lengths), SequenceBatching(longest)
    count = len(columns.obs)
    chunk = np.repeat(np.arange(len(lengths)), lengths)
    rows = {"row": np.arange(count), **batching.state_rows(columns)}
    rng = np.random.default_rng(1)
    parts = batching.num_minibatches(columns.lengths, count, minibatch_size=size)
    taken = list(
        batching.minibatches(rows, columns.lengths, minibatch_size=size, num_epochs=2, rng=rng)
    )
    assert len(taken) == 2 * parts
    for one_pass in (taken[:parts], taken[parts:]):
        assert sorted(np.concatenate([batch["row"] for batch in one_pass])) == list(range(count))
    for batch in taken:
        numbers, cut = batch["row"], batch["seq_lens"]
        assert cut.sum() == len(numbers)
        assert cut.max() <= longest
        for part, state in zip(
            np.split(numbers, np.cumsum(cut)[:-1]), batch["state_in"]["h"], strict=True
        ):
            assert (part == part[0] + np.arange(len(part))).all()
            assert len(set(chunk[part])) == 1
            assert state[0] == 4.0 * part[0]  # the state before its first row


def test_minibatches_have_about_the_rows_that_were_asked_for():
    columns, batching = columns_of([40] * 10), SequenceBatching(20)
    rows = {"row": np.arange(400), **batching.state_rows(columns)}
    sizes = [
        len(batch["row"])
        for batch in batching.minibatches(
            rows, columns.lengths, minibatch_size=100, num_epochs=1, rng=None
        )
    ]
    assert sizes == [100] * 4


def test_values_over_sequences_are_those_over_whole_chunks():
    module = built({"use_gru": True})
    columns = columns_of([7, 1, 4])
    obs, starts = columns.obs, [0, 7, 8]
    # The states that this network has there.
    states, expected = [], []
    for start, length, last in zip(starts, [7, 1, 4], columns.last_obs, strict=True):
        chunk = np.concatenate([obs[start : start + length], last[None]])
        state = state_form(module).repeated(1)
        expected.append(module.compute_values({"obs": chunk, "seq_lens": np.array([length + 1])}))
        for row in chunk[:-1]:
            states.append(state["h"][0])
            outputs = module.forward_inference({"obs": row[None], "state_in": state})
            state = outputs["state_out"]
    columns = Columns(**{**vars(columns), "state_in": {"h": np.stack(states)}})
    wanted = np.concatenate([*(part[:-1] for part in expected), [part[-1] for part in expected]])
    for longest in (1, 3, 7, 20):
        found = SequenceBatching(longest).values(module, columns)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    of_chunk = values_of_chunk(
        module,
        np.concatenate([obs[:7], columns.last_obs[:1]]),
        {"state_in": columns.state_in, "actions": columns.actions[:7], "rewards": np.ones(7)},
    )
    np.testing.assert_allclose(of_chunk, expected[0], rtol=1e-4)


def test_rows_by_themselves_are_batched_as_before():
    batching = batching_for(built({}))
    assert isinstance(batching, RowBatching)
    assert not batching.keeps_rows
    assert batching.num_minibatches(np.array([5]), 5, minibatch_size=2) == 3


@pytest.mark.parametrize(
    ("space", "actions", "codes"),
    [
        (spaces.Discrete(3, start=5), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (spaces.MultiDiscrete([2, 2], start=[4, -1]), [[0, 1]], [[1, 0, 0, 1]]),
        (
            spaces.Tuple([spaces.Discrete(2, start=1), spaces.Dict(a=spaces.Discrete(2, start=9))]),
            [(1, {"a": 0})],
            [[0, 1, 1, 0]],
        ),
    ],
)
def test_choices_before_are_counted_from_zero_as_modules_give_them(space, actions, codes):
    previous = PreviousSteps(space, {"lstm_use_prev_action": True})
    found = previous.columns(actions, [0.0] * len(actions))
    assert found["prev_actions"].tolist() == codes


def test_a_run_whose_actions_begin_at_three_reads_the_action_before():
    class FromThree(CountdownEnv):
        def __init__(self, config=None):
            super().__init__(config)
            self.action_space = spaces.Discrete(2, start=3)

        def step(self, action):
            return super().step(action - 3)

    model = {"use_gru": True, "lstm_use_prev_action": True, "lstm_cell_size": 4}
    seen = []
    config = small_ppo(env=FromThree, batch=20, model={**model, "fcnet_hiddens": [4]})
    config.callbacks(on_sample_end=lambda *, samples, **_: seen.extend(samples))
    with config.build_algo() as algo:
        algo.train()
    checked = 0
    for chunk in (chunk for chunk in seen if chunk.t_started == 0):
        before = chunk.get_extra_model_outputs("prev_actions")
        for step in range(1, len(chunk)):
            assert before[step].tolist() == np.eye(2)[chunk.get_actions(step - 1)].tolist()
            checked += 1
    assert checked


def test_the_step_before_is_encoded_like_observations():
    previous = PreviousSteps(ACT, {"lstm_use_prev_action": True, "lstm_use_prev_reward": True})
    columns = previous.columns([None, 2], [0.0, 1.5])
    assert columns["prev_actions"].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert columns["prev_rewards"].tolist() == [0.0, 1.5]
    assert PreviousSteps(ACT, {}).columns([None], [0.0]) == {}


# ---- what is refused


@pytest.mark.parametrize("given_length", [0, 2.5, None])
def test_a_wrong_max_seq_len_is_one_error(given_length):
    with pytest.raises(ConfigError, match=r"max_seq_len.*an integer ≥ 1"):
        max_seq_len_of({"max_seq_len": given_length})
    with pytest.raises(ConfigError, match=r"max_seq_len.*must be an integer ≥ 1"):
        ppo(model={"use_gru": True, "max_seq_len": given_length}).validate()


def test_settings_of_memory_are_judged_together():
    wrong = {"use_lstm": True, "use_gru": True, "lstm_cell_size": 0, "lstm_use_prev_action": 3}
    with pytest.raises(ConfigError) as caught:
        built(wrong)
    for part in ("one of them at a time", "lstm_cell_size=0", "lstm_use_prev_action=3"):
        assert part in str(caught.value)


def ppo(**settings):
    return small_ppo(env=StatelessCartPole).update_from_dict(settings)


def replaying(config_class, **settings):
    config = config_class().environment("CartPole-v1").env_runners(num_env_runners=0)
    return config.rl_module(**settings)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (replaying(DQNConfig, model_config={"use_gru": True}), "use_gru=True.*PPO or PG"),
        (replaying(SACConfig, model_config={"use_lstm": True}), "use_lstm=True.*PPO or PG"),
        (replaying(DQNConfig, rl_module_spec=RLModuleSpec(RunningMean)), "RunningMean has memory"),
        (
            ppo(model={"use_gru": True}, exploration_config={"type": "ParameterNoise"}),
            "ParameterNoise plays with noise on the weights",
        ),
        (
            ppo(model={"use_gru": True, "lstm_use_prev_reward": True}, episode_lookback_horizon=0),
            "episode_lookback_horizon=0",
        ),
    ],
)
def test_runs_that_cannot_have_memory_are_refused(config, text):
    with pytest.raises(ConfigError, match=text):
        config.build_algo()


class Misbehaving(RunningMean):
    """Breaks one rule, which `model_config` names."""

    def get_initial_state(self):
        given = {"list": [1.0], "empty": {}, "words": {"a": "b"}}
        given["counts"] = {"a": np.zeros(3, int)}
        return given.get(self.model_config["breaks"], super().get_initial_state())

    def forward_step(self, batch):
        outputs = super().forward_step(batch)
        mean = outputs["state_out"]["mean"]
        changed = {
            "shape": {"mean": mean[:, :1]},
            "name": {"average": mean},
            "kind": {"mean": "text"},
        }
        if self.model_config["breaks"] == "missing":
            del outputs["state_out"]
        elif self.model_config["breaks"] in changed:
            outputs["state_out"] = changed[self.model_config["breaks"]]
        return outputs


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ("list", "returned list of length 1; expected a dict"),
        ("empty", "returned dict; expected a dict"),
        ("words", "holds str; expected arrays"),
        ("counts", "holds int64 array of shape .3,.; expected arrays of finite floating"),
        ("missing", "without 'state_out'"),
        ("shape", r"of the shape \[1, 1\] at \['mean'\].*\[1, 3\]"),
        ("name", r"a dict of \['average'\]"),
        ("kind", "a str, which is no array at"),
    ],
)
def test_what_breaks_the_contract_of_states_is_one_error(breaks, message):
    module = RLModuleSpec(Misbehaving, OBS, ACT, {"breaks": breaks}).build()
    with pytest.raises(ModuleError, match=message) as caught:
        module.forward_inference({"obs": np.zeros((1, 3), np.float32)})
    assert "Misbehaving" in str(caught.value)


def test_states_of_another_network_are_refused():
    module = built({"use_gru": True})
    batch = {"obs": np.zeros((2, 3), np.float32)}
    batch["state_in"] = {"h": np.zeros((2, 9), np.float32)}
    with pytest.raises(ModuleError, match=r"of the shape \[2, 9\].*\[2, 4\]"):
        module.forward_inference(batch)
    with pytest.raises(ModuleError, match=r"seq_lens.*which add up"):
        module.forward_train({"obs": batch["obs"], "seq_lens": np.array([3])})
    columns = Columns(**{**vars(columns_of([3])), "state_in": None})
    with pytest.raises(EpisodeError, match="no 'state_in'"):
        SequenceBatching(5).values(module, columns)
