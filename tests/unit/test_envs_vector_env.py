"""Several sub-envs side by side, as callbacks see them."""

import gymnasium
import pytest

from trainer.envs import EnvContext, VectorEnv
from trainer.errors import EnvError
from trainer.testing.envs import CorridorEnv


class ClosableEnv(CorridorEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        self.num_closed = 0

    def close(self):
        self.num_closed += 1
        if self.corridor_length == 4:
            raise RuntimeError("this env does not close")


def vector_env(*lengths):
    contexts = [EnvContext({"corridor_length": n}, 1, index) for index, n in enumerate(lengths)]
    wrapped = [gymnasium.wrappers.TimeLimit(ClosableEnv(c), 10) for c in contexts]
    return VectorEnv(wrapped, contexts)


def test_foreach_env_gives_the_users_own_envs_in_order():
    env = vector_env(3, 5)

    def length(own):
        return type(own), own.corridor_length

    def lengths(own, context):
        return own.corridor_length, context["corridor_length"], context.vector_index

    assert env.foreach_env(length) == [(ClosableEnv, 3), (ClosableEnv, 5)]
    assert env.foreach_env_with_context(lengths) == [(3, 3, 0), (5, 5, 1)]


def test_closing_closes_every_sub_env_once_also_if_one_raises():
    env = vector_env(3, 4, 5)
    inner = [wrapped.unwrapped for wrapped in env.envs]
    with pytest.raises(RuntimeError, match="does not close"):
        env.close()
    env.close()
    assert [own.num_closed for own in inner] == [1, 1, 1]


def test_it_is_one_of_gymnasiums_vector_envs():
    contexts = [EnvContext({}, worker_index=0) for _ in range(3)]
    env = VectorEnv([gymnasium.make("CartPole-v1") for _ in contexts], contexts)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.unwrapped is env
    assert env.num_envs == 3
    assert env.single_observation_space == env.envs[0].observation_space
    assert env.single_action_space == env.envs[0].action_space
    assert env.observation_space.shape == (3, 4)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([2, 2, 2])
    env.set_attr("gravity", [1.0, 2.0, 3.0])
    assert env.get_attr("gravity") == (1.0, 2.0, 3.0)
    env.set_attr("gravity", 9.0)
    assert [own.unwrapped.gravity for own in env.envs] == [9.0] * 3
    assert env.call("get_wrapper_attr", "gravity") == (9.0, 9.0, 9.0)
    with pytest.raises(EnvError, match="2 values for 3 sub-envs"):
        env.set_attr("gravity", [1.0, 2.0])
    for call in (env.reset, lambda: env.step([0, 0, 0])):
        with pytest.raises(EnvError, match=r"env_runner\.sample"):
            call()
    env.close()
    assert env.closed
