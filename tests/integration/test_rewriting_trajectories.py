"""`on_postprocess_trajectory` and `on_learn_on_batch`: what callbacks change is what is learnt."""

from typing import Any

import numpy as np
import pytest
from gymnasium import Wrapper, spaces

from callbacks import RLlibCallback
from checkpoints import encode
from tests.exact_runs import Rewriting
from tests.small_runs import small_ppo
from trainer import CallbackError, SampleBatch
from trainer.metrics import comparable
from trainer.runner_group import EnvRunnerGroup
from trainer.testing import MultiAgentCartPole
from trainer.testing.envs import ContinuousEnv, CorridorEnv, CountdownEnv

pytestmark = pytest.mark.process

NUM_SLOTS = 4
MODES = ["truncate_episodes", "complete_episodes"]


def config(num_env_runners=0, *, env=CountdownEnv, **more):
    made = small_ppo(num_env_runners, env=env, num_slots=NUM_SLOTS)
    made.training(
        train_batch_size=62,  # a remainder on four slots, and episodes that are cut
        minibatch_size=32,
        num_epochs=2,
        lr=0.01,
        gamma=0.9,
        lambda_=0.5,
    )
    return made.update_from_dict(more)


def learnt(algo):
    return encode(algo.get_state()["learner"])


def trained(made, *, iterations=2):
    """The learner after some iterations, and their results."""
    with made.build_algo() as algo:
        results = [algo.train() for _ in range(iterations)]
        return learnt(algo), results


def plus_one(postprocessed_batch, **_):
    postprocessed_batch["rewards"] += 1.0


def agents_of(episode):
    """The episodes of all agents; itself if there is one agent."""
    return [*getattr(episode, "agent_episodes", {"": episode}).values()]


class PlusOneEnv(Wrapper[Any, Any, Any, Any]):
    """Pays one more per step."""

    def __init__(self, env_config):
        super().__init__(CountdownEnv(env_config))

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) + 1.0, terminated, truncated, info


# ---- what is seen


def test_a_batch_holds_the_advantages_that_follow_by_hand():
    chunks = []

    def note(postprocessed_batch, policies, **_):
        batch = postprocessed_batch.copy()
        last = policies["default_policy"].compute_values({"obs": batch["new_obs"]})[-1]
        chunks.append((batch, float(last)))

    lengths = {"min_length": 2, "max_length": 3}
    made = config(env_config=lengths, callbacks_on_postprocess_trajectory=note)
    trained(made, iterations=1)
    pairs = [(batch, last) for batch, last in chunks if batch.count == 2]
    assert {bool(batch["terminateds"][-1]) for batch, _ in pairs} == {True, False}
    for batch, last in pairs:
        first_value, second_value = batch["vf_preds"].astype(float).tolist()
        after = 0.0 if batch["terminateds"][-1] else last
        second = 1.0 + 0.9 * after - second_value
        first = 1.0 + 0.9 * second_value - first_value + 0.9 * 0.5 * second
        np.testing.assert_allclose(batch["advantages"], [first, second], rtol=1e-5)
        np.testing.assert_allclose(
            batch["value_targets"], [first + first_value, second + second_value], rtol=1e-5
        )


def test_a_batch_has_all_columns_that_rllibs_has_under_its_constants():
    batches = []
    trained(
        config(callbacks_on_postprocess_trajectory=lambda post_batch: batches.append(post_batch)),
        iterations=1,
    )
    constants = [name for name in dir(SampleBatch) if name.isupper()]
    constants.remove("SEQ_LENS")  # of batches of sequences only
    names = [getattr(SampleBatch, name) for name in constants]
    assert len({*names}) == 15
    for batch in batches:
        assert {*batch} == {*names, "advantages", "value_targets"}
        assert {len(batch[name]) for name in batch} == {batch.count}


class Order(RLlibCallback):
    def __init__(self):
        self.lines = []

    def on_postprocess_trajectory(self, *, episode, **_):
        self.lines.append(f"trajectory {episode.id_} {episode.t} {episode.is_done}")

    def on_episode_end(self, *, episode, **_):
        self.lines.append(f"end {episode.id_} {episode.t}")

    def on_sample_end(self, *, samples, **_):
        self.lines += [f"chunk {chunk.id_} {chunk.t}" for chunk in samples]


def test_every_chunk_is_shown_once_before_the_event_that_ends_it():
    with config(callbacks_class=Order, evaluation_interval=1).build_algo() as algo:
        algo.train()
        groups = (algo.env_runner_group, algo.eval_env_runner_group)
        lines, others = (
            group.foreach_env_runner(lambda runner: runner.callbacks.objects[0].lines)[0]
            for group in groups
            if group is not None
        )
    shown = [line.split()[1:3] for line in lines if line.startswith("trajectory")]
    assert sorted(shown) == sorted(line.split()[1:] for line in lines if line.startswith("chunk"))
    ended = [number for number, line in enumerate(lines) if line.startswith("end")]
    assert len(ended) > 4
    for number in ended:
        _, id_, t = lines[number].split()
        assert lines[number - 1] == f"trajectory {id_} {t} True"
    cut = [line for line in lines if line.startswith("trajectory") and line.endswith("False")]
    assert len(cut) >= 2
    assert lines.index(cut[0]) > ended[-1]
    assert any(line.startswith("end") for line in others), "evaluation has played"
    assert not any(line.startswith("trajectory") for line in others)


def test_old_names_of_the_arguments_are_given_to_who_asks():
    seen = []

    def old(worker, episode, agent_id, policies, pre_batch, post_batch):
        policy, before = pre_batch
        post_batch["rewards"] += 1.0
        seen.append(
            policy is worker.module is policies[episode.policy_for(agent_id)]
            and before["rewards"].tolist() == [1.0] * post_batch.count
            and "advantages" not in before
        )
        with pytest.raises(ValueError, match="read-only"):
            before["rewards"][0] = 0.0

    def oldest(info):
        assert info["pre_batch"][1]["rewards"].sum() + info["post_batch"].count == (
            info["post_batch"]["rewards"].sum()
        )

    trained(config(callbacks_on_postprocess_trajectory=[old, oldest]), iterations=1)
    assert len(seen) > 4
    assert all(seen)


# ---- what is learnt


@pytest.mark.parametrize("batch_mode", MODES)
def test_rewritten_rewards_teach_what_an_env_that_pays_them_teaches(batch_mode):
    rewritten, results = trained(
        config(batch_mode=batch_mode, callbacks_on_postprocess_trajectory=plus_one)
    )
    paid, paid_results = trained(config(batch_mode=batch_mode, env=PlusOneEnv))
    usual, usual_results = trained(config(batch_mode=batch_mode))
    assert rewritten == paid != usual
    for result, of_env in zip(results, paid_results, strict=True):
        # What is reported is what the env pays.
        mean = result["env_runners/episode_return_mean"]
        assert mean == result["env_runners/episode_len_mean"]
        assert of_env["env_runners/episode_return_mean"] == 2 * mean
        # Beside it is what is learnt from, episode by episode.
        assert result["env_runners/rewritten_return_mean"] == 2 * mean
        rewritten_returns = result["env_runners/hist_stats/rewritten_return"]
        assert rewritten_returns == of_env["env_runners/hist_stats/episode_reward"]
    usual_stats = usual_results[0]["env_runners/hist_stats"]
    assert usual_stats == {name: results[0]["env_runners/hist_stats"][name] for name in usual_stats}
    assert "rewritten_return_mean" not in usual_results[0]["env_runners"]


def test_the_return_of_a_rewritten_episode_is_what_the_env_paid():
    sums = []

    def compare(episode, prev_episode_chunks):
        for chunk in (*prev_episode_chunks, episode):
            assert chunk.get_return() == chunk.t
        rewards = [sum(chunk.get_rewards()) for chunk in (*prev_episode_chunks, episode)]
        sums.append((sum(rewards), episode.get_return(), len(rewards)))

    made = config(train_batch_size=20, minibatch_size=20)
    made.callbacks(on_postprocess_trajectory=plus_one, on_episode_end=compare)
    trained(made, iterations=3)
    assert all(rewritten == 2 * paid for rewritten, paid, _ in sums)
    assert {len_ for _, _, len_ in sums} >= {1, 2}


@pytest.mark.parametrize("at", [-1, -2])
@pytest.mark.parametrize("env", [CountdownEnv, MultiAgentCartPole])
def test_rewards_written_at_an_env_step_count_as_paid(env, at):
    returns = []

    def write(episode):
        for one in agents_of(episode):
            if len(one) >= -at:
                one.set_rewards(new_data=7.0, at_indices=at)

    def add_up(episode):
        rewards = [list(one.get_rewards()) for one in agents_of(episode)]
        assert all(7.0 in one for one in rewards if len(one) >= -at)
        assert episode.get_return() == pytest.approx(sum(map(sum, rewards)))
        returns.append(episode.get_return())

    made = config(env=env, train_batch_size=20, minibatch_size=20, batch_mode=MODES[1])
    made.callbacks(on_episode_step=write, on_episode_end=add_up)
    _, (result,) = trained(made, iterations=1)
    assert sorted(result["env_runners/hist_stats/episode_reward"]) == sorted(returns)
    assert "rewritten_return_mean" not in result["env_runners"]


def test_who_only_listens_changes_no_byte():
    def look(**arguments):
        del arguments

    outcomes = []
    for callbacks in ({}, {"on_postprocess_trajectory": look, "on_learn_on_batch": look}):
        with config(0, lr=[[0, 0.01], [100, 0.001]]).callbacks(**callbacks).build_algo() as algo:
            results = [comparable(algo.train()) for _ in range(3)]
            state = algo.get_state()
            parts = [{k: v for k, v in part.items() if k != "config"} for part in (*results, state)]
            outcomes.append(encode(parts))
    assert outcomes[0] == outcomes[1]


def test_advantages_of_a_callback_are_what_the_loss_sees():
    batches = []

    def give(postprocessed_batch, **_):
        # -1 and 1 in turn over the whole batch of pairs: standardised already.
        postprocessed_batch["advantages"] = np.where(postprocessed_batch["t"] % 2, 1.0, -1.0)

    made = config(
        env_config={"min_length": 4, "max_length": 4},
        train_batch_size=64,
        callbacks_on_postprocess_trajectory=give,
        callbacks_on_learn_on_batch=lambda train_batch: batches.append(train_batch.copy()),
    )
    trained(made, iterations=1)
    (batch,) = batches
    assert batch["advantages"].tolist() == np.where(batch["t"] % 2, 1.0, -1.0).tolist()
    assert np.ptp(batch["value_targets"]) > 0.1, "these are the learner's own"


def test_likelihoods_of_rewritten_actions_are_computed_anew():
    played = []
    chunks = []

    def first_action(postprocessed_batch, **_):
        played.append(postprocessed_batch["actions"].copy())
        postprocessed_batch["actions"][:] = 0

    def note(samples, env_runner):
        chunks.extend((chunk, env_runner.module.action_distribution) for chunk in samples)

    made = config(callbacks_on_postprocess_trajectory=first_action, callbacks_on_sample_end=note)
    with made.build_algo() as algo:
        algo.train()
        slots = algo.get_state()["env_runners"]["slots"]
    for chunk, distribution in chunks:
        actions = chunk.get_actions()
        assert not actions.any()
        inputs = chunk.get_extra_model_outputs("action_dist_inputs")
        logp = chunk.get_extra_model_outputs("action_logp")
        assert logp.tolist() == distribution.logp(inputs, actions).tolist()
    assert any(actions.any() for actions in played), "other actions were played"
    # A replay needs the actions that were played.
    remembered = [actions.tolist() for slot in slots for actions in slot["actions"]]
    assert remembered
    assert all(actions in [some.tolist() for some in played] for actions in remembered)
    assert any(any(actions) for actions in remembered)


def test_continuous_actions_and_own_columns_travel_to_the_loss():
    batches = []
    made = config(2, env=ContinuousEnv, callbacks_class=Rewriting)
    made.callbacks(on_learn_on_batch=lambda train_batch: batches.append(train_batch.copy()))
    _, results = trained(made, iterations=1)
    (batch,) = batches
    assert batch["novelty"].shape == (62,)
    assert results[0]["env_runners/rewritten_rows"] == 62


def test_the_running_episode_goes_on_with_what_the_env_showed():
    # An observation that was halved as the last one of a chunk would be halved again in the next.
    lefts = []
    learnt_from = []

    def halve(postprocessed_batch, **_):
        lefts.extend(postprocessed_batch["obs"][:, 0].tolist())
        postprocessed_batch["obs"] *= 0.5
        postprocessed_batch["new_obs"] *= 0.5

    def note(train_batch):
        learnt_from.extend(train_batch["obs"][:, 0].tolist())

    made = config(env_config={"min_length": 40, "max_length": 40}, train_batch_size=40)
    made.callbacks(on_postprocess_trajectory=halve, on_learn_on_batch=note)
    trained(made, iterations=3)
    shown = [(40 - step) / 40 for step in range(30)]  # four slots, three chunks of ten steps
    assert sorted(set(lefts), reverse=True) == pytest.approx(shown)
    assert sorted(set(learnt_from), reverse=True) == pytest.approx([left / 2 for left in shown])


def test_metrics_of_a_trajectory_are_reported_with_its_episode():
    counts = []

    def count(episode, postprocessed_batch, **_):
        so_far = episode.custom_metrics.get("steps", 0)
        episode.custom_metrics["steps"] = so_far + postprocessed_batch.count

    made = config(callbacks_on_postprocess_trajectory=count)
    _, results = trained(made, iterations=3)
    for result in results:
        runners = result["env_runners"]
        assert runners["custom_metrics"]["steps_mean"] == runners["episode_len_mean"]
        counts.append(runners["num_episodes"])
    assert min(counts) > 0


# ---- on_learn_on_batch


def test_learning_is_announced_once_per_update_with_room_for_metrics():
    seen = []

    class Learning(RLlibCallback):
        def on_learn_on_batch(self, *, policy, train_batch, result, **_):
            seen.append((policy, train_batch.count))
            train_batch["advantages"][:] = 0.0
            result["rows"] = train_batch.count

    made = config(callbacks_class=Learning, use_kl_loss=False)
    with made.build_algo() as algo:
        before = algo.get_weights()["default_policy"]
        results = [algo.train() for _ in range(2)]
        after = algo.get_weights()["default_policy"]
        assert seen == [(algo.get_module(), 62)] * 2
    assert [result["learners/default_policy/custom_metrics/rows"] for result in results] == [62, 62]
    is_same = {name: bool((before[name] == after[name]).all()) for name in before}
    assert all(same == name.startswith("pi/") for name, same in is_same.items())


# ---- cost and errors


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_runners_hold_and_get_values_only_if_somebody_looks(num_env_runners, monkeypatch):
    sent = []
    act_with = EnvRunnerGroup.act_with

    def note(group, newer):
        sent.extend([] if newer.weights is None else [newer.weights])
        act_with(group, newer)

    monkeypatch.setattr(EnvRunnerGroup, "act_with", note)
    for callbacks, expected in (({}, False), ({"on_postprocess_trajectory": plus_one}, True)):
        sent.clear()
        with config(num_env_runners).callbacks(**callbacks).build_algo() as algo:
            algo.train()
            (names,) = algo.env_runner_group.foreach_env_runner(
                lambda runner: list(runner.module.get_state())
            )
        assert len(sent) == 2
        for held in (names, *(weights.modules.only.state for weights in sent)):
            assert any(name.startswith("vf/") for name in held) is expected


def _raise(**_):
    raise ZeroDivisionError("on purpose")


def _spoil(postprocessed_batch=None, train_batch=None):
    batch = postprocessed_batch if train_batch is None else train_batch
    batch["advantages"] = batch["advantages"][1:]


@pytest.mark.parametrize(
    ("event", "num_env_runners", "place"),
    [
        ("on_postprocess_trajectory", 0, "env runner 0, episode training-"),
        ("on_postprocess_trajectory", 1, "env runner 1, episode training-"),
        ("on_learn_on_batch", 0, "the main process"),
    ],
)
@pytest.mark.parametrize(("callback", "cause"), [(_raise, "on purpose"), (_spoil, "rows")])
def test_errors_name_callback_event_and_place_and_nothing_has_happened(
    event, num_env_runners, place, callback, cause
):
    with config(num_env_runners).callbacks(**{event: callback}).build_algo() as algo:
        before = learnt(algo)
        with pytest.raises(CallbackError) as caught:
            algo.train()
        assert algo.training_iteration == 0
        assert learnt(algo) == before
        assert algo.env_runner_group.num_remote_worker_restarts() == 0
    error = caught.value
    assert error.event == event
    assert f"{event}[0] {callback.__name__}" in error.callback
    assert place in error.where
    assert cause in str(error.__cause__)


class Dice(CorridorEnv):
    """A corridor with numbers from 3 on, or with a MultiDiscrete view of the place."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.is_multi = env_config.get("multi", False)
        self.observation_space = (
            spaces.MultiDiscrete(np.array([[6, 2]]), start=np.array([[0, 1]]))
            if self.is_multi
            else spaces.Discrete(6, start=3)
        )

    def shown(self, place):
        return np.array([[place, place % 2 + 1]]) if self.is_multi else place + 3

    def reset(self, **options):
        place, info = super().reset(**options)
        return self.shown(place), info

    def step(self, action):
        place, *rest = super().step(action)
        return (self.shown(place), *rest)


class Argmax(RLlibCallback):
    """What is written for RLlib: pays for the number that is shown, and keeps it."""

    seen = []

    def on_postprocess_trajectory(self, *, postprocessed_batch, original_batches, episode, **_):
        ((_, _, original),) = original_batches.values()
        batch = postprocessed_batch
        shapes = {batch["obs"].shape, batch["new_obs"].shape, original["obs"].shape}
        self.seen.append(
            (batch["obs"].copy(), np.array(episode.get_observations())[:-1], batch["obs"].dtype)
        )
        assert len(shapes) == 1
        batch["rewards"] += np.argmax(batch["obs"], -1)


@pytest.mark.parametrize(("env_config", "width"), [({}, 6), ({"multi": True}, 8)])
def test_discrete_observations_are_one_hot_as_in_rllib(env_config, width):
    Argmax.seen = []
    made = config(env=Dice, env_config=env_config).callbacks(Argmax)
    with made.build_algo() as algo:
        algo.train()
        rows = algo.env_runner.sample(num_timesteps=20)
        assert rows[0].get_observations().dtype.kind == "i", "the episode keeps its numbers"
    for codes, numbers, dtype in Argmax.seen:
        assert (codes.shape, dtype) == ((len(numbers), width), np.float32)
        if width == 6:
            assert (codes.argmax(-1) + 3 == numbers).all()
        else:
            assert (codes[:, :6].argmax(-1) == numbers[:, 0, 0]).all()
            assert (codes[:, 6:].argmax(-1) + 1 == numbers[:, 0, 1]).all()
            assert (codes.sum(axis=1) == 2).all()


@pytest.mark.parametrize("env_config", [{}, {"multi": True}])
def test_who_only_listens_to_one_hot_codes_changes_no_byte(env_config):
    made = config(env=Dice, env_config=env_config)
    listening = config(env=Dice, env_config=env_config)
    listening.callbacks(on_postprocess_trajectory=lambda **_: None)
    assert trained(made)[0] == trained(listening)[0]


def test_rewritten_codes_become_numbers_and_what_is_no_code_is_refused():
    def last_place(*, postprocessed_batch, **_):
        postprocessed_batch["obs"][0] = np.eye(6)[5]

    def half(*, postprocessed_batch, **_):
        postprocessed_batch["obs"][0] = 0.5

    made = config(env=Dice, env_config={}).callbacks(on_postprocess_trajectory=last_place)
    with made.build_algo() as algo:
        chunks = algo.env_runner.sample(num_timesteps=20)
        assert [chunk.get_observations(0) for chunk in chunks] == [8] * len(chunks)
        algo.train()
    made = config(env=Dice, env_config={}).callbacks(on_postprocess_trajectory=half)
    with made.build_algo() as algo, pytest.raises(CallbackError, match="no one-hot code"):
        algo.train()
