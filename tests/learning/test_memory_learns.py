"""Networks with memory solve what nothing without memory can."""

import pytest

from benchmarks.memory import MEMORIES, MOST_ENV_STEPS, cart_pole_config
from trainer import PPOConfig
from trainer.testing.envs import RepeatPreviousEnv

pytestmark = pytest.mark.learning

WITHOUT_MEMORY = {"fcnet_hiddens": [64, 64]}


def repeat_previous(seed, **env_config):
    """Name the symbol of some steps before; 4 symbols, 4 steps, unless the config says less."""
    model_config = {"fcnet_hiddens": [], "use_gru": True, "lstm_cell_size": 64, "max_seq_len": 16}
    return (
        PPOConfig()
        .environment(RepeatPreviousEnv, env_config=env_config)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size=1024, minibatch_size=256, num_epochs=10, lr=3e-3)
        .training(gamma=0.2, lambda_=0.5, clip_param=0.2, use_kl_loss=False, vf_clip_param=None)
        .training(grad_clip=0.5)
        .rl_module(model_config={**model_config, "vf_share_layers": True})
        .debugging(seed=seed)
    )


def best_return(config, *, wanted, most_env_steps):
    """The best mean return of the last episodes, and after how many env steps it was reached."""
    best, num_env_steps = -float("inf"), 0
    with config.build_algo() as algo:
        while best < wanted and num_env_steps < most_env_steps:
            result = algo.train()
            num_env_steps = result["num_env_steps_sampled_lifetime"]
            best = max(best, result["env_runners"].get("episode_return_mean", best))
    return best, num_env_steps


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", list(MEMORIES))
def test_memory_balances_a_pole_whose_speed_is_hidden(kind, seed):
    config = cart_pole_config(MEMORIES[kind], seed)
    best, _ = best_return(config, wanted=450, most_env_steps=MOST_ENV_STEPS)
    assert best >= 450


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_memory_the_pole_falls(seed):
    config = cart_pole_config(WITHOUT_MEMORY, seed)
    best, _ = best_return(config, wanted=450, most_env_steps=MOST_ENV_STEPS)
    assert best < 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_memory_repeats_what_was_shown_four_steps_before(seed):
    best, _ = best_return(repeat_previous(seed), wanted=54, most_env_steps=100_000)
    assert best >= 0.9 * RepeatPreviousEnv().best_return


def test_memory_repeats_what_was_shown_one_step_before():
    easy = {"delay": 1, "num_symbols": 2, "length": 16}
    config = repeat_previous(0, **easy).training(train_batch_size=256, minibatch_size=64)
    config.rl_module(model_config={"use_gru": True, "lstm_cell_size": 8, "fcnet_hiddens": []})
    config.training(lr=1e-2)
    best, _ = best_return(config, wanted=13.5, most_env_steps=8_000)
    assert best >= 0.9 * RepeatPreviousEnv(easy).best_return
