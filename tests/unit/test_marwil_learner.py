"""MARWIL and BC: their loss, and their learner."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from tests.unit.test_pg_learner import OBSERVATIONS, example, flat_bytes
from trainer import BCConfig, CQLConfig, MARWILConfig
from trainer.algorithms.marwil.loss import marwil_loss
from trainer.algorithms.marwil.marwil import MARWILLearner, MARWILSettings
from trainer.connectors import ObservationEncoder
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ConfigError, EpisodeError, ModuleError
from trainer.learners import TrainBatchEvent, columns_from_episodes
from trainer.modules import PolicyModule, RLModuleSpec
from trainer.nn import Categorical, DiagGaussian
from trainer.testing.checks import gradient_check

# ---- the loss

HALF = np.log(np.array([[0.5, 0.5], [0.25, 0.75]]))
ACTIONS = np.array([0, 1])


def loss(targets=(3.0, -1.0), values=(1.0, 1.0), **settings):
    given = {"beta": 1.0, "vf_coeff": 1.0, "moving_square": 4.0, "update_rate": 0.0, **settings}
    terms = Categorical(2).evaluate(HALF, ACTIONS)
    return marwil_loss(np.array(targets), terms=terms, values=np.array(values), **given)


def test_weights_and_loss_of_two_rows_by_hand():
    found = loss()  # advantages 2 and -2, c = 2
    np.testing.assert_allclose(found.weights, [math.e, 1.0 / math.e], rtol=1e-7)
    expected = -(math.e * math.log(0.5) + math.log(0.75) / math.e) / 2
    assert found.policy_loss == pytest.approx(expected)
    assert found.vf_loss == pytest.approx(2.0)  # half of the mean of 4 and 4
    assert found.total_loss == pytest.approx(expected + 2.0)
    np.testing.assert_allclose(found.d_vf_preds, [-1.0, 1.0])


def test_half_the_beta_takes_the_root_of_the_weights():
    np.testing.assert_allclose(loss(beta=0.5).weights, np.sqrt(loss().weights))


def test_the_norm_moves_before_it_is_used():
    found = loss(moving_square=0.0 + 16.0, update_rate=0.25)
    assert found.moving_square == pytest.approx(16.0 + 0.25 * (4.0 - 16.0))
    expected = math.exp(2.0 / math.sqrt(13.0))
    np.testing.assert_allclose(found.weights, [expected, 1.0 / expected], rtol=1e-7)


def test_without_beta_all_count_alike_and_no_value_is_learnt():
    found = loss(beta=0.0)
    assert found.weights.tolist() == [1.0, 1.0]
    assert found.policy_loss == pytest.approx(-(math.log(0.5) + math.log(0.75)) / 2)
    assert found.vf_loss == 0.0
    assert found.total_loss == found.policy_loss
    assert found.moving_square == 4.0
    assert not found.d_vf_preds.any()


@pytest.mark.parametrize("beta", [0.0, 0.7])
@pytest.mark.parametrize("distribution", [Categorical(3), DiagGaussian((2,))])
def test_gradients_agree_with_differences(distribution, beta):
    inputs, actions, targets = example(distribution)
    values = np.random.default_rng(1).standard_normal(7)
    settings = {"beta": beta, "vf_coeff": 0.3, "moving_square": 1.7, "update_rate": 0.0}

    def loss_at(x, v):
        terms = distribution.evaluate(x, actions)
        return marwil_loss(targets, terms=terms, values=v, **settings)

    found = loss_at(inputs, values)
    gradient_check(lambda x: loss_at(x, values).total_loss, found.d_action_dist_inputs, inputs)
    # Weights are numbers: no gradient flows through them to the values.
    if beta:
        gradient_check(lambda v: 0.3 * loss_at(inputs, v).vf_loss, found.d_vf_preds, values)


def test_float32_in_gives_float32_gradients():
    terms = Categorical(2).evaluate(HALF.astype(np.float32), ACTIONS)
    numbers = np.zeros(2, np.float32)
    found = marwil_loss(
        numbers, terms=terms, values=numbers, beta=1.0, vf_coeff=1.0, moving_square=1.0,
        update_rate=0.0,
    )  # fmt: skip
    assert found.d_action_dist_inputs.dtype == found.d_vf_preds.dtype == np.float32


# ---- the learner


def learner(config=MARWILConfig, *, memory=False, kind=MARWILLearner, **settings):
    made = config().training(**{"lr": 0.05, **settings})
    return kind(
        module_spec=RLModuleSpec(
            module_class=None if config is MARWILConfig else PolicyModule,
            observation_space=OBSERVATIONS,
            action_space=spaces.Discrete(3),
            model_config={"fcnet_hiddens": [8], "use_lstm": memory, "max_seq_len": 4}
            | ({"lstm_cell_size": 4} if memory else {}),
        ),
        settings=MARWILSettings.from_config(made),
        root_seed=3,
    )


def recording(rewards, *, terminated=False, truncated=False, seed=0):
    """An episode with the actions 0, 1, 2, 0, …; nobody knows who chose them."""
    steps = len(rewards)
    return SingleAgentEpisode(
        f"recording {seed}",
        observations=np.random.default_rng(seed).standard_normal((steps + 1, 2)).astype("f"),
        actions=np.arange(steps) % 3,
        rewards=np.array(rewards),
        terminated=terminated,
        truncated=truncated,
        len_lookback_buffer=0,
    )


def update(subject, *episodes, **arguments):
    return subject.update(list(episodes), num_env_steps_sampled_before=0, **arguments)


def columns(*episodes):
    encoder = ObservationEncoder(OBSERVATIONS)
    return columns_from_episodes(episodes, encoder=encoder, needs_policy=False)


def test_returns_end_with_nothing_after_a_final_state_and_with_a_value_elsewhere():
    subject = learner(gamma=0.5)
    ends = {"terminated": True}, {"truncated": True}, {}
    given = [recording([1.0, 0.0, 4.0], **end, seed=7) for end in ends]
    after = float(subject.module.compute_values({"obs": given[0].get_observations()[-1:]})[0])
    assert after != 0.0
    _, targets = subject.value_targets(columns(*given))
    ended = [1.0 + 0.25 * 4.0, 0.5 * 4.0, 4.0]
    open_ = [one + 0.5 ** (3 - step) * after for step, one in enumerate(ended)]
    np.testing.assert_allclose(targets, [*ended, *open_, *open_], rtol=1e-6)


def test_lambda_takes_returns_from_values():
    subject = learner(gamma=0.5, lambda_=0.0)
    given = recording([1.0, 0.0], terminated=True)
    values = subject.module.compute_values({"obs": given.get_observations()})
    _, targets = subject.value_targets(columns(given))
    np.testing.assert_allclose(targets, [1.0 + 0.5 * values[1], 0.0], rtol=1e-6)


def test_recorded_actions_become_more_probable_those_that_paid_most_of_all():
    episode = recording([10.0, -10.0, 0.0], terminated=True, seed=5)
    obs, actions = {"obs": episode.get_observations()[:-1]}, episode.get_actions()

    def logp(subject):
        inputs = subject.module.forward_inference(obs)["action_dist_inputs"]
        return subject.module.action_distribution.logp(inputs, actions)

    gains = {}
    for config in (BCConfig, MARWILConfig):
        subject = learner(config, gamma=0.0, lr=1e-2, **_norm(config))
        before = logp(subject)
        update(subject, episode)
        gains[config] = logp(subject) - before
    assert gains[BCConfig].sum() > 0.0
    assert np.argmax(gains[MARWILConfig]) == 0
    share = {config: gain[0] / np.abs(gain).sum() for config, gain in gains.items()}
    assert share[MARWILConfig] > share[BCConfig]


def _norm(config):
    return {} if config is BCConfig else {"moving_average_sqd_adv_norm_start": 25.0}


def test_cloning_does_not_look_at_rewards():
    outcomes = []
    for rewards in ([0.0, 1.0, 2.0], [5.0, -3.0, 9.0]):
        subject = learner(BCConfig)
        update(subject, recording(rewards))
        outcomes.append(flat_bytes(subject))
    assert outcomes[0] == outcomes[1]
    subject = learner()  # the negative control
    update(subject, recording([5.0, -3.0, 9.0]))
    other = learner()
    update(other, recording([0.0, 1.0, 2.0]))
    assert flat_bytes(subject) != flat_bytes(other)


def test_other_learners_still_refuse_episodes_without_a_policy():
    with pytest.raises(EpisodeError, match="has no action_logp and no action_dist_inputs"):
        columns_from_episodes([recording([1.0])], encoder=ObservationEncoder(OBSERVATIONS))


def test_a_network_with_memory_begins_each_sequence_with_its_first_state():
    subject = learner(memory=True, minibatch_size=4, shuffle_batch_per_epoch=True)
    seen = []

    def look(module, batch, result):
        seen.append({"batch": {name: batch[name].copy() for name in ("obs", "actions")}})

    before = flat_bytes(subject)
    update(subject, recording([1.0] * 9), recording([0.0] * 3, seed=1), on_batch=look)
    assert flat_bytes(subject) != before
    assert len(seen[0]["batch"]["obs"]) == 12


def test_an_update_that_fails_changes_nothing():
    subject = learner(moving_average_sqd_adv_norm_update_rate=0.5)
    before = flat_bytes(subject), subject.get_state()["learner"]
    with pytest.raises(ModuleError, match="not finite"):
        update(subject, recording([1e30, 1.0]))
    assert (flat_bytes(subject), subject.get_state()["learner"]) == before


def test_a_norm_that_is_too_small_for_the_returns_is_named():
    with pytest.raises(ModuleError, match=r"c, whose square is 4.* Give `moving_average_sqd_adv_n"):
        update(learner(moving_average_sqd_adv_norm_start=4.0), recording([1e3, 1.0]))


def test_settings_reach_the_loss_and_metrics_are_of_the_last_pass():
    subject = learner(
        beta=0.5, lr=[[0, 0.0], [100, 0.05]], moving_average_sqd_adv_norm_start=9.0,
        moving_average_sqd_adv_norm_update_rate=0.25, minibatch_size=2, num_epochs=2,
    )  # fmt: skip
    given = recording([1.0, -2.0, 3.0, 0.5], terminated=True)
    values, targets = subject.value_targets(columns(given))
    expected, norms, weights = 9.0, [], []
    steps = subject.apply_gradients

    def applied(**arguments):
        norms.append(steps(**arguments))
        return norms[-1]

    subject.apply_gradients = applied
    advantages = targets - values
    for rows in (slice(0, 2), slice(2, 4)) * 2:
        expected += 0.25 * (np.mean(advantages[rows] ** 2) - expected)
        weights.append(np.exp(0.5 * advantages[rows] / math.sqrt(expected)).max())
    metrics = update(subject, given)  # lr is 0: values stay
    assert metrics["moving_avg_sqd_adv_norm"] == pytest.approx(expected)
    assert metrics["weight_max"] == pytest.approx(max(weights[2:]), rel=1e-5)
    assert metrics["gradients_default_optimizer_global_norm"] == pytest.approx(np.mean(norms[2:]))
    explained = 1.0 - np.var(targets - values) / np.var(targets)
    assert metrics["vf_explained_var"] == pytest.approx(explained, rel=1e-4)
    later = subject.update([given], num_env_steps_sampled_before=50)
    assert later["default_optimizer_learning_rate"] == pytest.approx(0.025)


def test_columns_of_connectors_and_callbacks_reach_the_loss():
    seen = set()

    class Looking(MARWILLearner):
        def compute_loss(self, batch, outputs):
            seen.update(batch)
            return super().compute_loss(batch, outputs)

    subject = learner(kind=Looking)
    given = dataclasses.replace(columns(recording([1.0, 2.0])), extras={"own": np.zeros(2)})
    event = TrainBatchEvent(subject.module, (), None, keeps_rows=True)
    subject.learn(given, rng=np.random.default_rng(0), num_env_steps=0, event=event)
    assert {"obs", "actions", "value_targets", "own"} <= seen


def test_the_moving_norm_is_state():
    subject, other = (learner(moving_average_sqd_adv_norm_update_rate=0.5) for _ in range(2))
    metrics = update(subject, recording([1.0, 2.0]))
    assert metrics["moving_avg_sqd_adv_norm"] == subject.moving_square != 100.0
    other.set_state(subject.get_state())
    update(subject, recording([3.0, 1.0]))
    update(other, recording([3.0, 1.0]))
    assert flat_bytes(other) == flat_bytes(subject)


def test_callbacks_may_decide_on_returns():
    subject = learner()
    given = columns(recording([1.0, 2.0], terminated=True))
    rows = type("Given", (), {"put_into": staticmethod(lambda column: column * 0.0 + 7.0)})
    _, targets = subject.value_targets(dataclasses.replace(given, given={"value_targets": rows}))
    assert targets.tolist() == [7.0, 7.0]


# ---- the settings


@pytest.mark.parametrize(
    ("config", "settings", "why"),
    [
        (BCConfig, {"beta": 0.5}, "behaviour cloning imitates all recorded actions alike"),
        (MARWILConfig, {"vf_coeff": 0.0}, "which then never learns"),
        (MARWILConfig, {"beta": 1.5}, "expected a number ≥ 0 and ≤ 1"),
        (MARWILConfig, {"min_sample_timesteps_per_iteration": 10}, "no env steps are sampled"),
        (MARWILConfig, {"sample_ahead": True}, "no env steps are sampled"),
        (MARWILConfig, {"policies": ["a", "b"]}, "recordings are of a single agent"),
        (MARWILConfig, {"model": {"lstm_use_prev_action": True, "use_lstm": True}}, "not offered"),
        (MARWILConfig, {"input_": []}, "a path, 'minari:NAME', or a list of these"),
        (MARWILConfig, {"input_read_schema": {"state": "obs"}}, "a dict from some of eps_id, obs"),
        (MARWILConfig, {"bc_logstd_coeff": 0.1}, "no such term"),
    ],
)
def test_settings_that_do_not_fit_are_told(config, settings, why):
    made = config().environment("CartPole-v1").offline_data(input_="recordings")
    made.validate()
    with pytest.raises(ConfigError, match=why):
        made.update_from_dict(settings).validate()


def test_values_have_a_network_of_their_own():
    assert MARWILConfig().model_config["vf_share_layers"] is False
    assert CQLConfig().dataset_num_iters_per_learner == 100


def test_an_algorithm_is_not_built_without_recordings():
    made = MARWILConfig().environment("CartPole-v1")
    made.validate()
    with pytest.raises(ConfigError, match="there is nothing to learn from: `input_=None`"):
        made.build_algo()


def test_settings_of_rllib_are_taken_or_said_to_do_nothing():
    made = BCConfig().environment("CartPole-v1")
    made.offline_data(
        input_=["a", "b"],
        input_read_method="read_parquet",
        input_read_method_kwargs={"override_num_blocks": 2},
        dataset_num_iters_per_learner=1,
        materialize_mapped_data=False,
        map_batches_kwargs={"concurrency": 2},
    )
    made.validate()
    assert made["input_"] == [str(Path(name).absolute()) for name in "ab"]
    with pytest.raises(ConfigError, match="local-trainer record RUN"):
        made.offline_data(output="/tmp/out")
