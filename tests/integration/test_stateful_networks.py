"""Networks with memory in whole algorithms: acting alone, callbacks, rewriting, what is shown."""

import numpy as np
import pytest

from callbacks import CallbackError
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import ConfigError, TrainedPolicy
from trainer.episodes import nested
from trainer.errors import ModuleError
from trainer.metrics import comparable
from trainer.testing import RepeatPreviousEnv, StatelessCartPole

_INTRINSIC = {"RE3": "encoder_net_config", "Curiosity": "feature_net_config"}
MODEL = {
    "fcnet_hiddens": [8],
    "use_gru": True,
    "lstm_cell_size": 8,
    "max_seq_len": 5,
    "vf_share_layers": True,
}


def config(env=StatelessCartPole, *, model=None, **env_config):
    """61 steps on 4 slots, which cut episodes wherever they stand."""
    made = small_ppo(env=env, batch=61, minibatch_size=24, num_epochs=2, lr=3e-3, seed=7)
    made.environment(env_config=env_config)
    return made.rl_module(model_config={**MODEL, **(model or {})})


def results_of(made, num_iterations=2):
    """What some iterations show and learn."""
    with made.build_algo() as algo:
        shown = [comparable(algo.train()) for _ in range(num_iterations)]
        state = algo.get_state()
    told = [{**result, "config": None, "fault_tolerance": None} for result in shown]
    return [encode(told), encode([state["learner"], state["env_runners"]["slots"]])]


# ---- acting alone


def test_actions_by_agent_take_and_give_states(tmp_path):
    with config(RepeatPreviousEnv, length=8, delay=1).build_algo() as algo:
        initial = algo.get_module().get_initial_state()
        single, after, _ = algo.compute_single_action(2, state=initial, explore=False)
        by_agent, states, _ = algo.compute_actions({"x": 2}, {"x": initial}, explore=False)
        assert by_agent["x"] == single
        assert nested.equal(states["x"], after)
        path = algo.save_to_path(str(tmp_path / "saved"))
    with pytest.raises(ConfigError, match=r"predict_all.*has memory"):
        TrainedPolicy.from_checkpoint(path).predict_all([2])


def test_a_running_state_without_the_step_before_is_an_error(tmp_path):
    previous = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    with config(model=previous).build_algo() as algo:
        policy = TrainedPolicy.from_checkpoint(algo.save_to_path(tmp_path / "saved"))
        obs = np.zeros(2, np.float32)
        _, state = policy.predict(obs, algo.get_module().get_initial_state())
        told = "without prev_action and prev_reward, which the network reads"
        with pytest.raises(ConfigError, match=told):
            policy.predict(obs, state)
        with pytest.raises(ConfigError, match="without prev_reward"):
            algo.compute_single_action(obs, state=state, prev_action=0)
        assert policy.predict(obs, state, prev_action=0, prev_reward=1.0)


def test_a_forgotten_or_foreign_state_is_one_error():
    with config().build_algo() as algo:
        obs = np.zeros(2, np.float32)
        with pytest.raises(ConfigError, match=r"without a state.*has memory"):
            algo.compute_single_action(obs)
        wrong_ones = [{"h": np.zeros(3)}, {"x": np.zeros(8)}, [], {"h": "text"}]
        for wrong in wrong_ones:
            with pytest.raises(ModuleError, match="get_initial_state"):
                algo.compute_single_action(obs, state=wrong)
        action, state, info = algo.compute_single_action(obs, full_fetch=True)
        assert action in (0, 1)
        assert sorted(state) == ["h"]
        assert info["action_prob"] == pytest.approx(np.exp(info["action_logp"]))


def test_old_names_say_that_it_remembers():
    states = []
    made = config().callbacks(
        on_episode_step=lambda *, episode, **_: states.append(episode.rnn_state_for())
    )
    with made.build_algo() as algo:
        policy = algo.get_module()
        assert policy.is_recurrent()
        assert policy.num_state_tensors() == 1
        with pytest.raises(ModuleError, match="by an old name"):
            policy.compute_actions(np.zeros((1, 2), np.float32))
        algo.train()
    assert [len(state) for state in states] == [1] * 61
    assert states[0][0].shape == (8,)


# ---- what callbacks see and change


def test_callbacks_see_states_and_values_that_follow_from_them():
    trajectories = []
    batches = []

    def on_postprocess_trajectory(*, postprocessed_batch, **_):
        trajectories.append(postprocessed_batch.copy())

    def on_learn_on_batch(*, train_batch, **_):
        batches.append({name: train_batch[name] for name in train_batch})

    made = config().callbacks(
        on_postprocess_trajectory=on_postprocess_trajectory, on_learn_on_batch=on_learn_on_batch
    )
    with made.build_algo() as algo:
        algo.train()
    assert sum(batch.count for batch in trajectories) == 61
    assert batches[0]["state_in"]["h"].shape == (61, 8)
    # The learner's values and those that the runner showed are of the same states.
    by_place = {}
    for batch in trajectories:
        for row in range(batch.count):
            by_place[batch["eps_id"][row], batch["t"][row]] = batch["vf_preds"][row]
    for row in range(61):
        place = batches[0]["eps_id"][row], batches[0]["t"][row]
        assert batches[0]["vf_preds"][row] == pytest.approx(by_place[place], abs=1e-5)
    starts = batches[0]["t"] == 0
    assert (batches[0]["state_in"]["h"][starts] == 0).all()
    assert (batches[0]["state_in"]["h"][~starts] != 0).any(axis=1).all()


def test_who_only_listens_changes_no_byte():
    listened = config().callbacks(
        on_postprocess_trajectory=lambda **_: None,
        on_learn_on_batch=lambda **_: None,
        on_episode_step=lambda **_: None,
    )
    assert results_of(listened)[1] == results_of(config())[1]


def test_rewritten_rewards_are_learnt_from_and_memory_goes_on():
    def on_postprocess_trajectory(*, postprocessed_batch, **_):
        postprocessed_batch["rewards"] *= 2.0

    doubled = config().callbacks(on_postprocess_trajectory=on_postprocess_trajectory)
    assert results_of(doubled)[1] != results_of(config())[1]


def test_rows_of_sequences_stay():
    def on_learn_on_batch(*, train_batch, **_):
        for name in list(train_batch):
            train_batch[name] = nested.take(train_batch[name], slice(0, 10))

    made = config().callbacks(on_learn_on_batch=on_learn_on_batch)
    with made.build_algo() as algo, pytest.raises(CallbackError) as caught:
        algo.train()
    assert "sequence that the network runs through" in str(caught.value)


# ---- with everything else


@pytest.mark.parametrize(
    "exploration",
    ["EpsilonGreedy", "Random", *(pytest.param(n, marks=pytest.mark.slow) for n in _INTRINSIC)],
)
def test_strategies_choose_from_what_a_network_with_memory_gives(exploration):
    made = config()
    given = {"type": exploration}
    if exploration in _INTRINSIC:
        given[_INTRINSIC[exploration]] = {"fcnet_hiddens": [6]}
    if exploration == "Curiosity":
        given["sub_exploration"] = {"type": "StochasticSampling"}
    made.env_runners(exploration_config=given)
    assert results_of(made) == results_of(made)


def test_observations_are_normalised_before_they_are_remembered():
    made = config().update_from_dict(
        {"observation_filter": "MeanStdFilter", "normalize_rewards": True}
    )
    made.rl_module(
        model_config={**MODEL, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    )
    assert results_of(made)[1] != results_of(config())[1]


def test_longer_sequences_and_larger_minibatches_learn_the_same_gradient():
    """One step over the whole batch: cuts change how far gradients flow, and how much is padding.

    Neither is in any mean or statistic.
    """
    losses = []
    for longest in (4, 500):
        made = config(model={"max_seq_len": longest})
        made.training(minibatch_size=None, num_epochs=1, use_kl_loss=False)
        with made.build_algo() as algo:
            result = algo.train()["learners"]["default_policy"]
        names = ("policy_loss", "vf_loss", "entropy", "vf_explained_var")
        losses.append([result[name] for name in names])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-6)


def test_env_steps_are_counted_once_per_epoch():
    with config().build_algo() as algo:
        result = algo.train()["learners"]["default_policy"]
    assert result["num_module_steps_trained"] == 2 * 61
