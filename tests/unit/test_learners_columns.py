"""The train batch: what a listener changes in it is what the loss sees."""

import copy
import math

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.ppo.ppo import PPOConfig, PPOLearner, PPOSettings
from trainer.connectors import ObservationEncoder, standardize
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.learners import TrainBatch, columns_from_episodes, minibatches, num_minibatches
from trainer.learners.columns import RowMemory
from trainer.modules import RLModuleSpec
from trainer.seeding import learner_rng


def learner(learner_class=PPOLearner, **settings):
    chosen = {"lr": 0.01, "num_epochs": 2, "minibatch_size": 4, "use_kl_loss": False, **settings}
    return learner_class(
        module_spec=RLModuleSpec(
            observation_space=spaces.Box(-10.0, 10.0, (2,)),
            action_space=spaces.Discrete(2),
            model_config={"fcnet_hiddens": [4], "vf_share_layers": False},
        ),
        settings=PPOSettings.from_config(PPOConfig().training(**chosen)),
        root_seed=3,
    )


def episodes(subject, **outputs):
    """Two chunks of 5 and 3 steps; extra outputs go into the second one."""
    rng = np.random.default_rng(0)
    chunks = []
    for steps in (5, 3):
        obs = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        inputs = subject.module.forward_acting(obs[:-1])
        actions = rng.integers(2, size=steps)
        chunks.append(
            SingleAgentEpisode(
                f"of {steps}",
                observations=list(obs),
                actions=list(actions),
                rewards=rng.standard_normal(steps).tolist(),
                terminated=steps == 3,
                extra_model_outputs={
                    "action_logp": list(subject.module.action_distribution.logp(inputs, actions)),
                    "action_dist_inputs": list(inputs),
                },
                len_lookback_buffer=0,
            ).to_numpy()
        )
    for name, column in outputs.items():
        chunks[1].set_extra_model_outputs(key=name, new_data=column)
    return chunks


def update(subject, chunks, on_batch=None):
    return subject.update(chunks, num_env_steps_sampled_before=8, on_batch=on_batch)


def weights(subject, prefix=""):
    state = subject.module.get_state()
    return b"".join(state[name].tobytes() for name in sorted(state) if name.startswith(prefix))


def columns_of(subject, chunks):
    encoder = ObservationEncoder(subject.module.observation_space)
    return columns_from_episodes(chunks, encoder=encoder)


def seen_batch(subject, chunks):
    seen = []
    update(subject, chunks, lambda module, batch, result: seen.append(copy.deepcopy(batch)))
    (batch,) = seen
    return batch


def test_the_batch_is_complete_and_shown_once():
    subject = learner()
    chunks = episodes(subject)
    columns = columns_of(subject, chunks)
    values, estimate = subject.estimate_advantages(columns)
    batch = seen_batch(subject, chunks)
    assert batch.count == 8
    assert batch["obs"].tolist() == columns.obs.tolist()
    assert batch["eps_id"].tolist() == ["of 5"] * 5 + ["of 3"] * 3
    assert batch["t"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch["terminateds"].tolist() == [False] * 7 + [True]
    assert not batch["truncateds"].any()
    assert batch["rewards"].tolist() == columns.rewards.tolist()
    np.testing.assert_array_equal(batch["vf_preds"], values)
    np.testing.assert_array_equal(
        batch["advantages"], standardize(estimate.advantages).astype(np.float32)
    )


def test_who_only_looks_changes_no_byte():
    subject, other = learner(), learner()
    chunks = episodes(subject)
    metrics = update(subject, chunks)

    def look(module, batch, result):
        batch.copy()

    assert update(other, chunks, look) == metrics
    assert weights(subject) == weights(other)


@pytest.mark.parametrize("in_place", [True, False])
def test_advantages_of_zero_leave_the_policy_as_it_is(in_place):
    # Without entropy bonus and KL penalty nothing else gives the policy a gradient.
    def to_zero(module, batch, result):
        if in_place:
            batch["advantages"][:] = 0.0
        else:
            batch["advantages"] = [0] * 8

    subject, usual = learner(), learner()
    before = weights(subject, "pi/"), weights(subject, "vf/")
    chunks = episodes(subject)
    metrics = update(subject, chunks, to_zero)
    update(usual, chunks)
    assert weights(subject, "pi/") == before[0] != weights(usual, "pi/")
    assert weights(subject, "vf/") == weights(usual, "vf/") != before[1]
    assert metrics["policy_loss"] == 0.0


def test_a_listener_may_leave_rows_out():
    def first_two(module, batch, result):
        for name in list(batch):
            batch[name] = batch[name][:2]

    subject = learner(num_epochs=1, minibatch_size=None)
    metrics = update(subject, episodes(subject), first_two)
    assert metrics["num_module_steps_trained"] == 2


def test_columns_that_were_added_reach_the_minibatches():
    seen = []

    class Watching(PPOLearner):
        def _step(self, minibatch, **more):
            seen.append(minibatch["weight"])
            return super()._step(minibatch, **more)

    subject = learner(Watching, num_epochs=1, minibatch_size=8, shuffle_batch_per_epoch=False)

    def add(module, batch, result):
        batch["weight"] = np.arange(8.0)

    update(subject, episodes(subject), add)
    assert [column.tolist() for column in seen] == [list(range(8))]


def test_what_the_listener_reports_is_under_custom_metrics():
    def report(module, batch, result):
        assert result == {}
        result["spread"] = float(np.ptp(batch["rewards"]))

    subject = learner()
    chunks = episodes(subject)
    spread = update(subject, chunks, report)["custom_metrics"]["spread"]
    assert spread == float(np.ptp(seen_batch(subject, chunks)["rewards"]))
    assert "custom_metrics" not in update(subject, chunks)


@pytest.mark.parametrize(
    ("column", "given", "words"),
    [
        ("advantages", np.zeros(7), r"different numbers of rows now.*advantages \(7,\)"),
        ("advantages", np.full(8, np.nan), "'advantages' holds nan in row 0"),
        ("obs", np.zeros((8, 3)), r"shape \(3,\) now, but had \(2,\)"),
        ("mine", np.zeros(3), "'mine' has 3 rows now"),
        ("rewards", np.zeros(8), "'rewards' of the train batch was changed"),
        ("value_targets", None, "'value_targets' was removed"),
    ],
)
def test_a_spoilt_batch_is_named_and_nothing_is_learnt(column, given, words):
    def spoil(module, batch, result):
        del result
        if given is None:
            del batch[column]
        else:
            batch[column] = given

    subject = learner()
    before = weights(subject)
    with pytest.raises(EpisodeError, match=words):
        update(subject, episodes(subject), spoil)
    assert weights(subject) == before
    assert subject.num_updates == 0


@pytest.mark.parametrize("is_spoilt", [False, True])
def test_a_batch_is_checked_once_and_the_listener_may_say_who_is_to_blame(is_spoilt, monkeypatch):
    checks = []
    check = TrainBatch.learnable_rows

    def counted(batch):
        checks.append(batch)
        return check(batch)

    def listen(module, batch, result):
        batch["advantages"][3] = math.nan if is_spoilt else 0.0
        return lambda error: LookupError(f"it was me: {error}")

    monkeypatch.setattr(TrainBatch, "learnable_rows", counted)
    subject = learner()
    if is_spoilt:
        with pytest.raises(LookupError, match=r"it was me: .*nan in row 3") as caught:
            update(subject, episodes(subject), listen)
        assert isinstance(caught.value.__cause__, EpisodeError)
    else:
        update(subject, episodes(subject), listen)
    assert len(checks) == 1


def test_what_has_done_its_work_is_read_only():
    def change(module, batch, result):
        batch["rewards"] += 1.0

    subject = learner()
    with pytest.raises(ValueError, match="read-only"):
        update(subject, episodes(subject), change)


def test_warnings_of_the_listeners_own_numbers_are_heard():
    def divide(module, batch, result):
        np.array([1.0]) / np.array([0.0])

    subject = learner()
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        update(subject, episodes(subject), divide)


def test_advantages_and_targets_in_a_chunk_are_taken_instead_of_the_learners():
    subject = learner()
    given = {"advantages": np.array([5.0, 6.0, 7.0]), "value_targets": np.array([1.0, 2.0, 3.0])}
    _, own = subject.estimate_advantages(columns_of(subject, episodes(subject)))
    _, estimate = subject.estimate_advantages(columns_of(subject, episodes(subject, **given)))
    assert estimate.advantages.tolist() == [*own.advantages[:5], 5.0, 6.0, 7.0]
    assert estimate.value_targets.tolist() == [*own.value_targets[:5], 1.0, 2.0, 3.0]


def test_without_a_critic_each_of_the_two_stands_for_itself():
    subject = learner(use_critic=False, use_gae=False)
    chunks = episodes(subject, advantages=np.zeros(3))
    _, estimate = subject.estimate_advantages(columns_of(subject, chunks))
    assert estimate.advantages[5:].tolist() == [0.0] * 3
    assert estimate.value_targets[7] == chunks[1].get_rewards(2)


def test_advantages_of_another_shape_are_refused():
    subject = learner()
    with pytest.raises(EpisodeError, match=r"'advantages' of float64 with the shape \(3, 1\)"):
        update(subject, episodes(subject, advantages=np.zeros((3, 1))))


def test_columns_of_users_are_in_the_batch_if_every_chunk_has_them():
    subject = learner()
    chunks = episodes(subject, mine=np.ones(3))
    assert "mine" not in seen_batch(subject, chunks)
    chunks[0].set_extra_model_outputs(key="mine", new_data=np.zeros(5))
    assert seen_batch(subject, chunks)["mine"].tolist() == [0.0] * 5 + [1.0] * 3
    chunks = episodes(subject, mine=np.ones((3, 2)))
    chunks[0].set_extra_model_outputs(key="mine", new_data=np.zeros(5))
    with pytest.raises(EpisodeError, match=r"'mine' has rows of the shapes \[\(\), \(2,\)\]"):
        update(subject, chunks)


# ---- columns


ENCODER = ObservationEncoder(spaces.Box(-100.0, 100.0, (2,)))


def episode(start, steps, **more):
    numbers = [start + step for step in range(steps)]
    arguments = {
        "observations": [np.array([n, -n], np.float32) for n in [*numbers, start + steps]],
        "actions": [int(n) % 2 for n in numbers],
        "rewards": [10.0 * n for n in numbers],
        "extra_model_outputs": {
            "action_logp": [np.float32(-n) for n in numbers],
            "action_dist_inputs": [np.array([n, 0.0], np.float32) for n in numbers],
        },
        "len_lookback_buffer": 0,
    }
    return SingleAgentEpisode(f"from {start}", **{**arguments, **more})


def test_chunks_stand_one_after_another():
    ended = episode(1.0, 2, terminated=True).to_numpy()
    cut = episode(5.0, 3, truncated=True).to_numpy()
    columns = columns_from_episodes([ended, cut], encoder=ENCODER)
    assert columns.obs[:, 0].tolist() == [1, 2, 5, 6, 7]
    assert columns.last_obs.tolist() == [[3, -3], [8, -8]]
    assert columns.actions.tolist() == [1, 0, 1, 0, 1]
    assert columns.rewards.tolist() == [10, 20, 50, 60, 70]
    assert columns.action_logp.tolist() == [-1, -2, -5, -6, -7]
    assert columns.action_dist_inputs[:, 0].tolist() == [1, 2, 5, 6, 7]
    assert columns.terminateds.tolist() == [False, True, False, False, False]
    assert columns.lengths.tolist() == [2, 3]
    assert columns.is_terminated.tolist() == [True, False]
    dtypes = {"obs": np.float32, "action_logp": np.float32, "rewards": np.float64}
    dtypes |= {"action_dist_inputs": np.float32, "last_obs": np.float32, "terminateds": np.bool_}
    assert {name: getattr(columns, name).dtype for name in dtypes} == dtypes


def test_lookback_is_left_out():
    chunk = episode(1.0, 4, len_lookback_buffer=2).to_numpy()
    columns = columns_from_episodes([chunk], encoder=ENCODER)
    assert columns.obs[:, 0].tolist() == [3, 4]
    assert columns.rewards.tolist() == [30, 40]
    assert columns.action_logp.tolist() == [-3, -4]


def test_chunks_without_steps_are_passed_over():
    empty = SingleAgentEpisode("empty", observations=[np.zeros(2, np.float32)]).to_numpy()
    columns = columns_from_episodes([empty, episode(1.0, 2).to_numpy()], encoder=ENCODER)
    assert columns.lengths.tolist() == [2]
    with pytest.raises(EpisodeError, match="1 episodes with 0 steps"):
        columns_from_episodes([empty], encoder=ENCODER)


def test_episode_of_random_actions_cannot_be_learnt_from():
    chunk = episode(1.0, 2, extra_model_outputs=None).to_numpy()
    with pytest.raises(EpisodeError, match=r"no action_logp and no action_dist_inputs.*random"):
        columns_from_episodes([chunk], encoder=ENCODER)


def test_episode_of_lists_is_refused():
    with pytest.raises(EpisodeError, match=r"to_numpy\(\)"):
        columns_from_episodes([episode(1.0, 2)], encoder=ENCODER)


def test_memory_of_observations_is_used_again_only_when_nobody_holds_it():
    memory = RowMemory()
    first = memory.rows(3, 2)
    first[:] = 1.0
    place = first.ctypes.data
    row = first[1]
    del first
    second = memory.rows(3, 2)
    second[:] = 2.0
    assert row.tolist() == [1.0, 1.0]
    assert second.ctypes.data != place
    place = second.ctypes.data
    del second
    third = memory.rows(2, 2)
    assert (third.shape, third.ctypes.data) == ((2, 2), place)
    del third
    assert memory.rows(4, 2).shape == (4, 2)


# ---- minibatches


def rows_of(num_rows, size, epochs, rng=None):
    pairs = np.arange(2 * num_rows).reshape(num_rows, 2)
    wide = np.repeat(np.arange(num_rows)[:, None], 1024, axis=1)
    columns = {"number": np.arange(num_rows), "pair": pairs, "nested": {"wide": wide}}
    taken = []
    for batch in minibatches(columns, minibatch_size=size, num_epochs=epochs, rng=rng):
        assert (batch["pair"][:, 0] == 2 * batch["number"]).all()
        assert (batch["nested"]["wide"] == batch["number"][:, None]).all()
        taken.append(batch["number"].tolist())
    return taken


@pytest.mark.parametrize(
    ("num_rows", "size", "epochs", "expected"),
    [
        (4, 2, 1, [[0, 1], [2, 3]]),
        (5, 2, 1, [[0, 1], [2, 3], [4, 0]]),
        (5, 2, 2, [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]),
        (3, 3, 2, [[0, 1, 2], [0, 1, 2]]),
        (2, 5, 1, [[0, 1, 0, 1, 0]]),
        (2, 3, 4, [[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
    ],
)
def test_last_minibatch_goes_on_at_the_beginning(num_rows, size, epochs, expected):
    assert rows_of(num_rows, size, epochs) == expected


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 5), st.integers(0, 99))
def test_every_pass_holds_every_row_once(num_rows, size, epochs, seed):
    taken = rows_of(num_rows, size, epochs, learner_rng(seed, 0))
    assert len(taken) == num_minibatches(num_rows, minibatch_size=size, num_epochs=epochs)
    assert all(len(batch) == size for batch in taken)
    stream = [row for batch in taken for row in batch]
    assert len(stream) >= num_rows * epochs > len(stream) - size
    for epoch in range(epochs):
        once = stream[epoch * num_rows : (epoch + 1) * num_rows]
        assert sorted(once) == list(range(num_rows))


def test_every_pass_has_another_order():
    first, second = rows_of(50, 50, 2, learner_rng(0, 0))
    assert first != second
    assert first != sorted(first)


def test_order_is_a_function_of_seed_and_update():
    assert rows_of(20, 6, 3, learner_rng(7, 2)) == rows_of(20, 6, 3, learner_rng(7, 2))
    assert rows_of(20, 6, 3, learner_rng(7, 2)) != rows_of(20, 6, 3, learner_rng(7, 3))
    assert rows_of(20, 6, 3, learner_rng(7, 2)) != rows_of(20, 6, 3, learner_rng(8, 2))


def test_columns_are_not_changed():
    column = np.arange(10)
    for batch in minibatches({"a": column}, minibatch_size=3, num_epochs=2, rng=learner_rng(0, 0)):
        batch["a"][:] = -1
    assert column.tolist() == list(range(10))
