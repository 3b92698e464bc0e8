"""PPO's learner: it learns, repeats itself bit for bit, and fails as a whole or not at all."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from trainer.algorithms.ppo.ppo import PPOConfig, PPOLearner, PPOSettings
from trainer.connectors import Normalization, ObservationEncoder, ObservationNormalizer
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import ModuleError
from trainer.learners import columns_from_episodes
from trainer.modules import RLModuleSpec
from trainer.seeding import NOISE_DRAWS

ACTIONS = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1.0, 1.0, (2,))}
OBSERVATIONS = spaces.Box(-10.0, 10.0, (2,))


def learner(actions="discrete", *, root_seed=3, **settings):
    chosen = {"lr": 0.01, "num_epochs": 3, "minibatch_size": 16, **settings}
    return PPOLearner(
        module_spec=RLModuleSpec(
            observation_space=OBSERVATIONS,
            action_space=ACTIONS[actions],
            model_config={"fcnet_hiddens": [8], "vf_share_layers": False},
        ),
        settings=PPOSettings.from_config(PPOConfig().training(**chosen)),
        root_seed=root_seed,
    )


def draw_noise(distribution, rng, rows):
    return NOISE_DRAWS[distribution.noise_kind](rng, (rows, distribution.noise_width))


def sample(module, *, seed, chunks=4, steps=10):
    """Plays an env whose reward is 1 for action 1 (or a first dimension above 0), else 0."""
    rng = np.random.default_rng(seed)
    episodes = []
    for number in range(chunks):
        obs = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        inputs = module.forward_acting(obs[:-1])
        noise = draw_noise(module.action_distribution, rng, steps)
        actions = module.action_distribution.sample(inputs, noise)
        logp = module.action_distribution.logp(inputs, actions)
        is_good = actions == 1 if actions.ndim == 1 else actions[:, 0] > 0.0
        episodes.append(
            SingleAgentEpisode(
                f"{seed}-{number}",
                observations=list(obs),
                actions=list(actions),
                rewards=is_good.astype(float).tolist(),
                terminated=number % 2 == 0,
                extra_model_outputs={"action_logp": list(logp), "action_dist_inputs": list(inputs)},
                len_lookback_buffer=0,
            ).to_numpy()
        )
    return episodes


def train(subject, updates):
    return [
        subject.update(
            sample(subject.module, seed=number), num_env_steps_sampled_before=40 * number
        )
        for number in updates
    ]


def flat_bytes(subject):
    return subject.module.parameters.flat.tobytes()


def test_another_seed_gives_other_minibatches():
    first, second = learner(), learner(root_seed=4)
    second.set_state(first.get_state())
    episodes = sample(first.module, seed=0)
    for subject in (first, second):
        subject.update(episodes, num_env_steps_sampled_before=40)
    assert flat_bytes(first) != flat_bytes(second)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_learner_goes_on_like_the_original(again):
    subject = learner()
    ones = np.ones(2)
    subject.normalize_with(Normalization(ObservationNormalizer(ones, 2.0 * ones, 9.0 * ones)))
    train(subject, range(2))
    other = again(subject)
    assert train(other, range(2, 4)) == train(subject, range(2, 4))
    assert flat_bytes(other) == flat_bytes(subject)
    train(other, range(4, 5))
    assert flat_bytes(other) != flat_bytes(subject)


@pytest.mark.parametrize("actions", ACTIONS)
def test_updates_raise_the_probability_of_good_actions(actions):
    subject = learner(actions, num_epochs=8)

    def mean_reward():
        episodes = sample(subject.module, seed=99, chunks=20)
        return float(np.mean([episode.get_rewards() for episode in episodes]))

    before = mean_reward()
    for number in range(12):
        episodes = sample(subject.module, seed=number, chunks=20)
        subject.update(episodes, num_env_steps_sampled_before=200 * number)
    assert mean_reward() > before + 0.25


@pytest.mark.parametrize(
    ("over", "sizes", "is_standard"),
    [("batch", [40], True), ("minibatch", [20, 20], True), (None, [40], False)],
)
def test_advantages_have_mean_0_and_deviation_1_over(over, sizes, is_standard, monkeypatch):
    seen, real = [], PPOLearner.compute_loss

    def spy(self, batch, *others):
        seen.append(batch["advantages"])
        return real(self, batch, *others)

    monkeypatch.setattr(PPOLearner, "compute_loss", spy)
    subject = learner(standardize_advantages=over, minibatch_size=sizes[0], num_epochs=1)
    train(subject, range(1))
    assert [len(advantages) for advantages in seen] == sizes
    for advantages in seen:
        found = advantages.mean(), advantages.std()
        assert np.allclose(found, (0.0, 1.0), atol=1e-5) is is_standard


def test_values_approach_the_returns():
    subject = learner(num_epochs=10, lambda_=1.0, gamma=0.0, lr=0.02)
    metrics = train(subject, range(10))
    assert metrics[-1]["vf_loss"] < 0.5 * metrics[0]["vf_loss"]


class Shows(gymnasium.Env):
    """Shows the highest values of its observation space."""

    action_space = ACTIONS["box"]

    def __init__(self, config):
        self.observation_space = config["space"]
        self._shown = {key: part.high for key, part in config["space"].items()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown, {}

    def step(self, action):
        return self._shown, 1.0, True, False, {}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"image": spaces.Box(0, 255, (6, 6, 3), np.uint8)}, None),
        ({"image": spaces.Box(0, 255, (6, 6, 3), np.uint8), "speed": spaces.Box(-1, 3, (1,))}, 3.0),
    ],
)
def test_only_quantities_have_a_size(parts, expected):
    config = (
        PPOConfig()
        .environment(Shows, env_config={"space": spaces.Dict(parts)}, normalize_actions=False)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=20, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"conv_filters": [[2, 3, 1]], "fcnet_hiddens": [2]})
    )
    with config.build_algo() as algo:
        metrics = algo.train()["learners"]["default_policy"]
    assert metrics.get("obs_magnitude") == expected
    assert 0.0 < metrics["actions_at_bounds"] < 1.0


def test_metrics_are_complete_and_say_what_was_used():
    subject = learner(entropy_coeff=[[0, 0.1], [80, 0.0]], kl_target=1e6)
    metrics = train(subject, range(1))[0]
    assert set(metrics) == {
        "policy_loss",
        "vf_loss",
        "vf_loss_unclipped",
        "vf_explained_var",
        "entropy",
        "mean_kl_loss",
        "clip_fraction",
        "vf_clip_fraction",
        "obs_magnitude",
        "curr_kl_coeff",
        "curr_entropy_coeff",
        "total_loss",
        "gradients_default_optimizer_global_norm",
        "default_optimizer_learning_rate",
        "num_module_steps_trained",
        "num_trainable_parameters",
    }
    assert metrics["curr_entropy_coeff"] == 0.1
    assert metrics["default_optimizer_learning_rate"] == 0.01
    assert metrics["curr_kl_coeff"] == pytest.approx(0.1)
    assert metrics["num_module_steps_trained"] == 8 * 16  # 3 epochs of 40 rows: 7.5 minibatches
    assert metrics["num_trainable_parameters"] == (2 * 8 + 8) * 2 + (8 * 3 + 3) + (8 + 1)
    assert 0.0 < metrics["entropy"] <= np.log(3.0) + 1e-6


@pytest.mark.parametrize(("target", "factor"), [(1e6, 0.5), (1e-9, 1.5)])
def test_kl_coefficient_follows_its_target(target, factor):
    subject = learner(kl_target=target)
    train(subject, range(1))
    assert subject.kl_coeff == pytest.approx(0.2 * factor)


def test_kl_coefficient_stays_within_a_band_around_the_target():
    probe = train(learner(kl_coeff=0.5), range(1))[0]["mean_kl_loss"]
    subject = learner(kl_coeff=0.5, kl_target=probe)
    train(subject, range(1))
    assert subject.kl_coeff == 0.5


def test_without_kl_loss_there_is_no_coefficient():
    subject = learner(use_kl_loss=False)
    metrics = train(subject, range(1))[0]
    assert metrics["curr_kl_coeff"] == subject.kl_coeff == 0.0
    assert metrics["mean_kl_loss"] > 0.0


def test_without_critic_the_value_network_is_left_alone():
    subject = learner(use_critic=False, use_gae=False)
    before = subject.module.get_state()
    train(subject, range(2))
    after = subject.module.get_state()
    assert before["vf/0/kernel"].tobytes() == after["vf/0/kernel"].tobytes()
    assert before["pi/0/kernel"].tobytes() != after["pi/0/kernel"].tobytes()


def test_advantages_are_standardized_over_real_steps_only():
    subject = learner()
    encoder = ObservationEncoder(OBSERVATIONS)
    columns = columns_from_episodes(sample(subject.module, seed=0), encoder=encoder)
    _, estimate = subject.estimate_advantages(columns)
    rows = subject.training_rows(columns, estimate)
    assert len(rows["advantages"]) == 40
    assert rows["advantages"].mean() == pytest.approx(0.0, abs=1e-6)
    assert rows["advantages"].std() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("column", "place"), [("rewards", "'advantages'"), ("action_logp", "'action_logp'")]
)
def test_update_with_nan_names_it_and_changes_nothing(column, place):
    subject = learner()
    train(subject, range(1))
    before = copy.deepcopy(subject.get_state())
    episodes = sample(subject.module, seed=1)
    bad = np.full(10, np.nan)
    if column == "rewards":
        episodes[1].set_rewards(new_data=bad)
    else:
        episodes[1].set_extra_model_outputs(key=column, new_data=bad.astype(np.float32))
    with pytest.raises(ModuleError, match=place):
        subject.update(episodes, num_env_steps_sampled_before=80)
    after = subject.get_state()
    assert after["learner"] == before["learner"]
    assert after["optimizer"]["num_steps"] == before["optimizer"]["num_steps"]
    for name, tensor in before["rl_module"].items():
        assert after["rl_module"][name].tobytes() == tensor.tobytes()
    train(subject, range(1, 2))


def test_an_update_that_is_interrupted_half_way_never_happened(monkeypatch):
    subject, other = learner(), learner()
    train(subject, range(1))
    before, apply = encode(subject.get_state()), subject.apply_gradients
    made = []

    def interrupt(**arguments):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(apply(**arguments))
        return 0.0

    monkeypatch.setattr(subject, "apply_gradients", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(subject, range(1, 2))
    monkeypatch.undo()
    assert encode(subject.get_state()) == before
    assert train(subject, range(1, 2)) == train(other, range(2))[1:]
    assert subject.num_updates == 2


def test_mismatching_states_are_named_and_change_nothing():
    subject = learner()
    before = flat_bytes(subject)
    state = learner(root_seed=8).get_state()
    with pytest.raises(ModuleError, match="components rl_module, optimizer, learner"):
        subject.set_state({"module": state["rl_module"]})
    with pytest.raises(ModuleError, match="kl_coeff"):
        subject.set_state({**state, "learner": {"num_updates": 1}})
    bad = {name: value for name, value in state["rl_module"].items() if name != "pi/0/bias"}
    with pytest.raises(ModuleError, match="'pi/0/bias' is missing"):
        subject.set_state({**state, "rl_module": bad})
    with pytest.raises(ModuleError, match="state of Adam"):
        subject.set_state({**state, "optimizer": {}})
    assert flat_bytes(subject) == before


def test_value_clipping_can_be_switched_off_in_two_ways():
    episodes = sample(learner().module, seed=0)
    results = []
    for limit in (None, float("inf"), 1e-3):
        subject = learner(vf_clip_param=limit)
        subject.update(episodes, num_env_steps_sampled_before=40)
        results.append(flat_bytes(subject))
    assert results[0] == results[1] != results[2]
