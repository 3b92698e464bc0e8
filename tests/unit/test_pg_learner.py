"""PG: its loss, and its learner."""

import math

import numpy as np
import pytest
from gymnasium import spaces

from trainer import PGConfig, PPOConfig
from trainer.algorithms.pg.pg import PGLearner, pg_loss
from trainer.connectors import ObservationEncoder
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import ConfigError, ModuleError
from trainer.learners import LearnerSettings, columns_from_episodes
from trainer.modules import PolicyModule, RLModuleSpec
from trainer.nn import Categorical, DiagGaussian
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import gradient_check


def example(distribution):
    """Inputs, actions drawn from them, and returns of both signs."""
    rng = np.random.default_rng(6)
    inputs = rng.standard_normal((7, distribution.num_inputs))
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (7, distribution.noise_width))
    return inputs, distribution.sample(inputs, noise), rng.standard_normal(7)


def test_loss_and_gradient_of_two_rows_by_hand():
    p = np.array([0.25, 0.5])  # of action 1, which was chosen first; then action 0
    logits = np.log(np.stack([1.0 - p, p], axis=1))
    loss = pg_loss(np.array([3.0, -2.0]), terms=Categorical(2).evaluate(logits, np.array([1, 0])))
    assert loss.policy_loss == pytest.approx(-(3.0 * math.log(0.25) - 2.0 * math.log(0.5)) / 2)
    # d log π(a) / d logits is the one-hot code of a minus the probabilities.
    expected = [[-3.0 * -0.75 / 2, -3.0 * 0.75 / 2], [2.0 * 0.5 / 2, 2.0 * -0.5 / 2]]
    np.testing.assert_allclose(loss.d_action_dist_inputs, expected)


def test_the_entropy_is_reported_and_not_learnt():
    loss = pg_loss(np.zeros(1), terms=Categorical(4).evaluate(np.zeros((1, 4)), np.array([2])))
    assert loss.entropy == pytest.approx(math.log(4.0))
    assert loss.policy_loss == 0.0
    assert not loss.d_action_dist_inputs.any()


@pytest.mark.parametrize("distribution", [Categorical(3), DiagGaussian((2,))])
def test_gradients_agree_with_differences(distribution):
    inputs, actions, returns = example(distribution)

    def loss_at(x):
        return pg_loss(returns, terms=distribution.evaluate(x, actions))

    gradient_check(lambda x: loss_at(x).policy_loss, loss_at(inputs).d_action_dist_inputs, inputs)


def test_float32_in_gives_float32_gradients():
    inputs, actions, returns = example(Categorical(3))
    terms = Categorical(3).evaluate(inputs.astype(np.float32), actions)
    loss = pg_loss(returns.astype(np.float32), terms=terms)
    assert loss.d_action_dist_inputs.dtype == np.float32


# ---- the learner


OBSERVATIONS = spaces.Box(-10.0, 10.0, (2,))


def learner(**settings):
    return PGLearner(
        module_spec=RLModuleSpec(
            module_class=PolicyModule,
            observation_space=OBSERVATIONS,
            action_space=spaces.Discrete(3),
            model_config={"fcnet_hiddens": [8], "vf_share_layers": False},
        ),
        settings=LearnerSettings.from_config(PGConfig().training(**{"lr": 0.05, **settings})),
        root_seed=3,
    )


def chunk(rewards, *, terminated=True, seed=0):
    """A chunk in which the actions 0, 1, 2, 0, ... were chosen by a uniform policy."""
    steps = len(rewards)
    obs = np.random.default_rng(seed).standard_normal((steps + 1, 2)).astype(np.float32)
    return SingleAgentEpisode(
        f"chunk {seed}",
        observations=list(obs),
        actions=[np.int64(step % 3) for step in range(steps)],
        rewards=rewards,
        terminated=terminated,
        extra_model_outputs={
            "action_logp": [np.float32(-np.log(3.0))] * steps,
            "action_dist_inputs": [np.zeros(3, np.float32)] * steps,
        },
        len_lookback_buffer=0,
    ).to_numpy()


def columns(*chunks):
    return columns_from_episodes(chunks, encoder=ObservationEncoder(OBSERVATIONS))


def update(subject, *chunks, **arguments):
    return subject.update(chunks, num_env_steps_sampled_before=100, **arguments)


def flat_bytes(subject):
    return subject.module.parameters.flat.tobytes()


def test_returns_are_discounted_to_the_end_of_each_chunk():
    given = columns(chunk([1.0, 0.0, 2.0]), chunk([4.0, -1.0], terminated=False))
    # 1 + ½·0 + ¼·2, 0 + ½·2, 2; a chunk that was cut is worth nothing afterwards, too
    assert learner(gamma=0.5).returns(given).tolist() == [1.5, 1.0, 2.0, 3.5, -1.0]


def test_advantages_of_callbacks_take_the_place_of_returns():
    first, second = chunk([1.0, 0.0]), chunk([4.0])
    first.set_extra_model_outputs(key="advantages", new_data=np.array([7.0, -7.0]))
    assert learner(gamma=1.0).returns(columns(first, second)).tolist() == [7.0, -7.0, 4.0]


def test_one_step_makes_what_paid_more_probable():
    subject = learner()
    given = chunk([0.0, 5.0, -5.0], seed=4)
    obs = {"obs": given.get_observations()[:-1]}

    def logp():
        inputs = subject.module.forward_inference(obs)["action_dist_inputs"]
        return subject.module.action_distribution.logp(inputs, given.get_actions())

    before = logp()
    update(subject, given)
    after = logp()
    assert after[2] < before[2]
    subject = learner(gamma=0.0)
    update(subject, given)
    assert logp()[1] > before[1]


def test_metrics_are_those_of_the_loss_before_the_step():
    subject = learner(gamma=1.0, lr=[[0, 0.1], [200, 0.0]])
    subject.module.parameters.flat[:] = 0.0  # the uniform policy
    metrics = update(subject, chunk([1.0, 1.0]))
    assert metrics["policy_loss"] == metrics["total_loss"]
    assert metrics["policy_loss"] == pytest.approx(np.log(3.0) * (2.0 + 1.0) / 2)
    assert metrics["entropy"] == pytest.approx(np.log(3.0))
    assert metrics["return_to_go_mean"] == 1.5
    assert metrics["num_module_steps_trained"] == 2
    assert metrics["default_optimizer_learning_rate"] == pytest.approx(0.05)


def test_gradients_are_clipped():
    free, clipped = learner(), learner(grad_clip=1e-9)
    norm = update(free, chunk([1.0, 2.0]))["gradients_default_optimizer_global_norm"]
    assert update(clipped, chunk([1.0, 2.0]))["gradients_default_optimizer_global_norm"] == norm
    assert flat_bytes(free) != flat_bytes(clipped)


def test_there_are_no_values():
    with pytest.raises(ModuleError, match="predicts no values"):
        learner().module.compute_values({"obs": np.zeros((1, 2), np.float32)})


def test_defaults_are_those_of_rllib_but_whole_episodes():
    config = PGConfig()
    assert (config.lr, config.train_batch_size, config.gamma) == (4e-4, 200, 0.99)
    assert config.batch_mode == "complete_episodes"
    config.validate()


@pytest.mark.parametrize(("setting", "value"), [("num_epochs", 2), ("minibatch_size", 64)])
def test_settings_that_would_learn_twice_are_refused(setting, value):
    with pytest.raises(ConfigError, match=f"{setting}={value}.*\n?.*one gradient step"):
        PGConfig().update_from_dict({setting: value}).validate()


def test_policies_of_ppo_and_pg_have_the_same_tensors():
    models = {"fcnet_hiddens": [8]}
    made = []
    for config in (PGConfig(), PPOConfig().env_runners(num_env_runners=0)):
        with config.environment("CartPole-v1").rl_module(model_config=models).build_algo() as algo:
            made.append(algo.get_policy().get_weights(inference_only=True).keys())
    assert made[0] == made[1]
