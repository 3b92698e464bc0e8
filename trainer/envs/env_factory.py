"""From what a config says about its env to envs: one, or several of a runner side by side."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NoReturn

import cloudpickle
import gymnasium
import gymnasium.vector
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space

from callbacks.packing import module_not_importable
from trainer.envs.envpool_envs import EnvPoolCreator
from trainer.envs.pettingzoo_envs import as_multi_agent_env
from trainer.envs.tasks import task_layer, user_layer, why_no_tasks
from trainer.episodes.episode_state import copied_containers
from trainer.errors import EnvCreationError, EnvError, TaskError
from trainer.name_resolution import PROGRAM, Source, imported, imported_module
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import instance
from trainer_toolkit.nearest_names import did_you_mean

# ---- env context


class EnvContext(dict[str, Any]):
    """The `env_config` of one sub-env (a dict), with its place as attributes.

    Every sub-env gets its own, so an env that changes its context does not affect its siblings.

    Attributes:
        worker_index: number of the env runner, 0 in the main process, 1 … n elsewhere.
        vector_index: number of the sub-env in its runner, from 0.
        num_workers: number of env runner processes, 0 if the main process samples.
        remote: always False here; kept for code written for RLlib.
        recreated_worker: whether this runner replaces one that failed or was interrupted.
        is_evaluation: whether the env belongs to an evaluation runner: those have the same worker
            indices as the training runners.
        unique_index: a number ≥ 0 that no other sub-env of this algorithm has, in whichever process
            and whether it trains or evaluates: for ports, files and the like. Training envs have
            even numbers, evaluation envs odd ones, each from the lowest; an env that is made again
            has the same one.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        worker_index: int,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
        recreated_worker: bool = False,
        *,
        is_evaluation: bool = False,
        unique_index: int = 0,
    ) -> None:
        # The order of the arguments is RLlib's: users' code may give them by position.
        super().__init__(env_config)
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers
        self.recreated_worker = recreated_worker
        self.is_evaluation = is_evaluation
        self.unique_index = unique_index

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **place: Any
    ) -> EnvContext:
        """A new context with other settings or another place.

        Dicts, lists and arrays in the settings are copied; other objects, such as open files, are
        shared.

        Args:
            env_config: replaces the settings; None keeps them.
            place: any of worker_index, vector_index, remote, num_workers, recreated_worker,
                is_evaluation, unique_index.
        """
        arguments = self._place()
        unknown = sorted(set(place) - set(arguments))
        if unknown:
            raise TypeError(
                f"EnvContext has no {', '.join(unknown)}; it has {', '.join(arguments)}."
            )
        return EnvContext(
            copied_containers(dict(self if env_config is None else env_config)),
            **{**arguments, **place},
        )

    def _place(self) -> dict[str, Any]:
        return {
            "worker_index": self.worker_index,
            "vector_index": self.vector_index,
            "remote": self.remote,
            "num_workers": self.num_workers,
            "recreated_worker": self.recreated_worker,
            "is_evaluation": self.is_evaluation,
            "unique_index": self.unique_index,
        }

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Fills in the settings that are missing."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def __str__(self) -> str:
        place = f"worker={self.worker_index}/{self.num_workers}, vector_index={self.vector_index}"
        return (
            f"{super().__str__()}({place}, remote={self.remote}, recreated={self.recreated_worker}"
            f", is_evaluation={self.is_evaluation}, unique_index={self.unique_index})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (dict(self), self._place())


def _remade(env_config: dict[str, Any], place: dict[str, Any]) -> EnvContext:
    return EnvContext(env_config, **place)


# ---- registry

EnvCreator = Callable[[EnvContext], Any]
"""Makes one env from its context."""

# Names are global because that is what registering means; processes get them from the program
# (`packed_registrations`).
_CREATORS: Final[dict[str, EnvCreator]] = {}


@takes(name=instance(str, "a string"))
def register_env(name: str, env_creator: EnvCreator) -> None:
    """Gives an env creator a name that configs can use; a name that is taken is given anew.

    Args:
        name: what `environment(env=…)` will say.
        env_creator: a callable that takes an `EnvContext` and returns a gymnasium env.

    Raises:
        TypeError: `env_creator` is not callable.
    """
    if not callable(env_creator):
        raise TypeError(
            f"register_env({name!r}, …) got a {type(env_creator).__name__}; expected a callable "
            "that takes an EnvContext and returns an env. "
            f"Write: register_env({name!r}, lambda context: MyEnv(context))."
        )
    _CREATORS[name] = env_creator


def registered_creator(name: str) -> EnvCreator | None:
    """The creator of that name, or None."""
    return _CREATORS.get(name)


def registered_names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_CREATORS)


# ---- env factory
#
# From what a config says about its env to something that makes one, in any process.

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnvFactory:
    """Makes the sub-envs of one run.

    Travels to workers by cloudpickle, so that they need no registry.

    Attributes:
        name: how messages call the env.
        create: the user's creator.
        env_config: settings for every env.
    """

    name: str
    create: Callable[[EnvContext], Any]
    env_config: Mapping[str, Any] = field(default_factory=dict)

    def make(
        self, *, worker_index: int, vector_index: int, **place: Any
    ) -> tuple[gymnasium.Env[Any, Any], EnvContext]:
        """Makes one env, with a context of its own.

        Args:
            worker_index: of its runner.
            vector_index: its own in the runner.
            place: the other attributes of its `EnvContext`.

        Raises:
            EnvCreationError: the creator raised, or did not return a gymnasium env.
        """
        context = EnvContext({}, worker_index, vector_index, **place)
        context = context.copy_with_overrides(self.env_config)
        where = f"env {self.name!r} of env runner {worker_index}, sub-env {vector_index}"
        env = as_multi_agent_env(self._created(self.create, context, where))
        if isinstance(env, gymnasium.vector.VectorEnv):
            raise EnvCreationError(
                f"The creator of {where} returned a {type(env).__name__}, which is a vector env. "
                'Say so: env_runners(gym_env_vectorize_mode="vector_entry_point"), or return one '
                "of its sub-envs."
            )
        if not isinstance(env, gymnasium.Env):
            raise EnvCreationError(
                f"The creator of {where} returned a {type(env).__name__}; "
                "expected a gymnasium.Env. "
                "Derive the class from gymnasium.Env, or wrap it."
            )
        return env, context

    def make_vector(
        self, num_envs: int, *, worker_index: int, **place: Any
    ) -> tuple[Any, EnvContext]:
        """Makes a vector env, with a context of its own.

        Args:
            num_envs: sub-envs that it is to have.
            worker_index: of its runner.
            place: the other attributes of its `EnvContext`.

        Raises:
            EnvCreationError: there is no vector env, the creator raised, or what it returned is no
                vector env of that many sub-envs.
        """
        context = EnvContext({}, worker_index, **place).copy_with_overrides(self.env_config)
        where = f"vector env {self.name!r} of env runner {worker_index}"
        create: Callable[..., Any] = self.create
        if isinstance(create, _GymnasiumCreator | EnvPoolCreator):
            create = create.for_vectors(num_envs, where)
        env = self._created(create, context, where)
        kinds = type(getattr(env, "unwrapped", env)).__mro__
        if any(kind.__module__.startswith("envpool.") for kind in kinds):
            raise EnvCreationError(
                f"The creator of {where} returned a pool of EnvPool's, whose seeds are fixed. Name "
                'the task instead: environment("Pong-v5", env_config={…}), with '
                'env_runners(gym_env_vectorize_mode="envpool"); env_config are the options of '
                "`envpool.make`."
            )
        if not isinstance(env, gymnasium.vector.VectorEnv):
            raise EnvCreationError(
                f"The creator of {where} returned a {type(env).__name__}; expected a "
                "gymnasium.vector.VectorEnv. Return one, or leave out "
                'gym_env_vectorize_mode="vector_entry_point".'
            )
        if env.num_envs != num_envs:
            raise EnvCreationError(
                f"The creator of {where} returned one of {env.num_envs} sub-envs, but "
                f"num_envs_per_env_runner={num_envs}. Give both the same number."
            )
        return env, context

    @staticmethod
    def _created(create: Callable[..., Any], context: EnvContext, where: str) -> Any:
        try:
            return create(context) if _takes_an_argument(create) else create()
        except Exception as error:
            raise EnvCreationError(
                f"Could not make {where}: {type(error).__name__}: {str(error).rstrip('.')}. "
                f"It was given env_config={dict(context)!r}."
            ) from error


def _takes_an_argument(creator: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(creator).parameters)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return True


@dataclass(frozen=True)
class _GymnasiumCreator:
    """Makes an env from its gymnasium spec, which travels: workers do not know the id."""

    spec: EnvSpec

    def __call__(self, context: EnvContext) -> Any:
        # gymnasium's passive checker costs a third of CartPole's speed and warns per process;
        # `env_checks` checks once. That reset comes before step is seen to by the runner.
        spec = copy.copy(self.spec)
        spec.order_enforce = False
        return gymnasium.make(spec, disable_env_checker=True, **context)

    def for_vectors(self, num_envs: int, where: str) -> Callable[[EnvContext], Any]:
        """The vector env that is registered beside the env; an EnvCreationError if none is."""
        if self.spec.vector_entry_point is None:
            raise EnvCreationError(
                f"Could not make {where}: gymnasium knows no `vector_entry_point` for "
                f"{self.spec.id!r}. Leave out gym_env_vectorize_mode, or give a creator that "
                "returns a gymnasium.vector.VectorEnv."
            )
        return lambda context: gymnasium.make_vec(
            self.spec, num_envs, vectorization_mode="vector_entry_point", **context
        )


def _travelling(spec: EnvSpec) -> EnvSpec:
    """The spec with the env's class in place of a name that means nothing in another process.

    `gymnasium.register(…, entry_point="__main__:MyEnv")` is such a name: each worker has a
    `__main__` of its own.
    """
    module_name, _, attribute = str(spec.entry_point).partition(":")
    is_foreign = module_name == "__main__" or module_not_importable(module_name) is not None
    if not isinstance(spec.entry_point, str) or not is_foreign:
        return spec
    try:
        creator = attrgetter(attribute)(sys.modules[module_name])
    except AttributeError as error:
        raise EnvCreationError(
            f"env={spec.id!r} is registered with entry_point={spec.entry_point!r}, and there is no "
            f"{attribute!r} in {module_name!r}. Pass the class itself: environment(env=MyEnv)."
        ) from error
    spec = copy.copy(spec)
    spec.entry_point = creator
    return spec


def packed_registrations() -> bytes:
    """What is registered here, with gymnasium and `register_env`, for `take_over_registrations`.

    Each registration that is code is packed by itself, so that one that cannot be packed here, or
    unpacked there, leaves the others alone.
    """
    creators = {name: _packed_alone(name, creator) for name, creator in list(_CREATORS.items())}
    specs: list[tuple[str, EnvSpec | bytes]] = []
    for spec in list(gymnasium.registry.values()):
        with contextlib.suppress(EnvCreationError, KeyError):  # it names nothing here either
            travelling = _travelling(spec)
            packed = travelling if _is_plain(travelling) else _packed_alone(spec.id, travelling)
            if packed is not None:
                specs.append((spec.id, packed))
    return cloudpickle.dumps((specs, creators))  # type: ignore[no-any-return]


def _is_plain(spec: EnvSpec) -> bool:
    points = (spec.entry_point, spec.vector_entry_point)
    has_code = any(callable(point) for point in points) or bool(spec.additional_wrappers)
    return not has_code and all(type(value) in _PLAIN for value in spec.kwargs.values())


_PLAIN: Final = frozenset({type(None), bool, int, float, str})


def _packed_alone(name: str, registered: EnvSpec | EnvCreator) -> bytes | None:
    try:
        return cloudpickle.dumps(registered)  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - pickling runs users' code
        _LOGGER.info(
            "The registered env %r cannot be made by its name in other processes: its registration "
            "cannot travel (%s: %s).",
            name,
            type(error).__name__,
            error,
        )
        return None


def take_over_registrations(packed: bytes) -> None:
    """Registers what another process had registered, under the same names.

    So a runner and a trial know the names that the program knows, wherever that registers them.
    An env whose code cannot be loaded here is an error when it is made.
    """
    specs, creators = cloudpickle.loads(packed)
    for env_id, spec in specs:
        unpacked = _unpacked(env_id, spec) if isinstance(spec, bytes) else spec
        if isinstance(unpacked, _Unloadable):
            unpacked = EnvSpec(env_id, entry_point=unpacked)
        gymnasium.registry[env_id] = unpacked
    _CREATORS.update({name: _unpacked(name, each) for name, each in creators.items() if each})


def _unpacked(name: str, packed: bytes) -> Any:
    try:
        return cloudpickle.loads(packed)
    except Exception as error:  # noqa: BLE001 - unpickling runs users' code; raised when it is made
        return _Unloadable(name, f"{type(error).__name__}: {error}")


class _Unloadable:
    """Stands for an env whose code this process cannot load."""

    def __init__(self, env_id: str, why: str) -> None:
        self._env_id = env_id
        self._why = why

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise EnvCreationError(
            f"The env {self._env_id!r} is registered in the program, but its code cannot be loaded "
            f"in this process: {self._why}. Put its module where every process can import it, or "
            "give the env's class: config.environment(MyEnv)."
        )


def make_env_factory(
    env: object, env_config: Mapping[str, Any], *, source: Source, is_of_envpool: bool = False
) -> EnvFactory:
    """Finds out what `environment(env=…)` means: a name, an id, a path, a class or a callable.

    Args:
        env: what was given.
        env_config: settings for every env.
        source: where `env` was written.
        is_of_envpool: it is the name of one of EnvPool's tasks.

    Raises:
        EnvCreationError: it means nothing; lists the accepted forms and the nearest names.
        CodeNotAllowedError: it names what its source may not have imported.
    """
    if is_of_envpool:
        if not isinstance(env, str) or registered_creator(env) is not None:
            raise EnvCreationError(
                f'env={env!r:.80} with gym_env_vectorize_mode="envpool": EnvPool makes its own '
                "tasks, by name; creators and what is registered are not asked. Give a name such "
                'as "CartPole-v1" or "Pong-v5".'
            )
        return EnvFactory(env, EnvPoolCreator(env), env_config)
    if isinstance(env, EnvSpec):
        return EnvFactory(env.id, _GymnasiumCreator(_travelling(env)), env_config)
    if isinstance(env, str):
        return EnvFactory(env, _creator_by_name(env, source), env_config)
    if callable(env):
        name = getattr(env, "__qualname__", type(env).__name__)
        return EnvFactory(name, env, env_config)
    raise EnvCreationError(f"env={env!r} is a {type(env).__name__}. {_ACCEPTED}")


_TESTING: Final = "trainer.testing."
_HARMLESS_IN_TESTING: Final = (
    "envs.ContinuousEnv",
    "envs.CorridorEnv",
    "envs.CountdownEnv",
    "envs.RestlessEnv",
    "envs.TargetEnv",
    "envs.TaskCountdownEnv",
    "envs.UnseededEnv",
    "multi_agent_envs.MultiAgentCartPole",
    "multi_agent_envs.MultiAgentPendulum",
    "multi_agent_envs.RepeatAfterMe",
    "multi_agent_envs.RockPaperScissors",
    "multi_agent_envs.TwoStepGame",
)
HARMLESS_TESTING_ENVS: Final = frozenset(
    _TESTING + name for path in _HARMLESS_IN_TESTING for name in (path, path.rpartition(".")[2])
)
"""Envs of `trainer.testing` that no `env_config` makes do harm; the others fail on purpose."""

_NAMING_OTHERS: Final = frozenset({"GymV21Environment-v0", "GymV26Environment-v0"})
"""Ids of gymnasium whose `env_config` says which other env is to be imported."""

_ACCEPTED = (
    "Accepted are: a gymnasium id ('CartPole-v1'), a module and an id that it registers "
    "('ale_py:ALE/Pong-v5'), a name given to register_env(), a dotted path to a class "
    "('package.module.MyEnv'), a class or callable that takes an EnvContext."
)


def is_import_path(name: str) -> bool:
    """Whether a name says where to import an env from, and is not one that was registered."""
    if registered_creator(name) is not None:
        return False
    if ":" in name:  # gymnasium imports what stands before it
        return True
    with contextlib.suppress(gymnasium.error.Error):
        gymnasium.spec(name)
        return False
    return "." in name and "/" not in name and name not in HARMLESS_TESTING_ENVS


def check_known(name: str, *, source: Source) -> None:
    """Raises if no env has this name; imports nothing, so that paths are taken as they are.

    Raises:
        EnvCreationError: it is not known; names those that are near.
        CodeNotAllowedError: its source may not have it imported.
    """
    if is_import_path(name) or name in _NAMING_OTHERS:
        source.check(name, place="`env`")
    else:
        _creator_by_name(name, source)


def _creator_in_module(module_name: str, name: str, source: Source) -> Callable[[EnvContext], Any]:
    """What `module:name` means: an id that the module registers, or a class or callable in it."""
    source.check(f"{module_name}:{name}", place="`env`")
    try:
        module = imported_module(module_name, source=PROGRAM, place="`env`")
    except ImportError as error:
        raise EnvCreationError(
            f"env='{module_name}:{name}': {module_name!r} could not be imported: {error}. "
            f"{_ACCEPTED}"
        ) from error
    with contextlib.suppress(gymnasium.error.Error):
        return _GymnasiumCreator(_travelling(gymnasium.spec(name)))
    with contextlib.suppress(ImportError):
        found = imported(f"{module_name}:{name}", source=PROGRAM, place="`env`")
        if callable(found):
            return found  # type: ignore[no-any-return]
    hint = did_you_mean(name, [*gymnasium.registry, *vars(module)], most=3)
    raise EnvCreationError(
        f"env='{module_name}:{name}': {module_name!r} neither registers {name!r} nor holds it."
        f"{hint} {_ACCEPTED}"
    )


def _creator_by_name(name: str, source: Source) -> Callable[[EnvContext], Any]:
    creator = registered_creator(name)
    if creator is not None:
        return creator
    if name in _NAMING_OTHERS:
        source.check(name, place="`env`")
    module_name, colon, id_or_class = name.partition(":")
    if colon:
        return _creator_in_module(module_name, id_or_class, source)
    try:
        return _GymnasiumCreator(_travelling(gymnasium.spec(name)))
    except (gymnasium.error.Error, ImportError) as error:
        gym_error = error
    if "." in name and "/" not in name:
        trusted = PROGRAM if name in HARMLESS_TESTING_ENVS else source
        try:
            found = imported(name, source=trusted, place="`env`")
        except ImportError as error:
            raise EnvCreationError(
                f"env={name!r} could not be imported: {error}. {_ACCEPTED}"
            ) from error
        return found  # type: ignore[no-any-return]
    known = [*registered_names(), *gymnasium.registry]
    hint = did_you_mean(name, known, most=3)
    raise EnvCreationError(f"env={name!r} is not known.{hint} {_ACCEPTED}") from gym_error


# ---- vector env
#
# Several sub-envs of one runner side by side, each with its own context and its own episodes. It
# is one of gymnasium's vector envs, so that code which is given `env` finds what it knows. But it
# does not step or reset for itself: the runner steps each sub-env and resets it when its episode
# ends, so that no step goes uncounted and each episode can have its own seed.


class VectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """The sub-envs of one env runner.

    Attributes:
        envs: the sub-envs, as their creator returned them.
        contexts: their contexts, in the same order.
        num_envs: how many sub-envs there are.
        single_observation_space: the observation space of one sub-env.
        single_action_space: the action space of one sub-env.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], contexts: Sequence[EnvContext]
    ) -> None:
        self.envs = list(envs)
        self.contexts = list(contexts)
        self.num_envs = len(self.envs)
        self._be_like(self.envs[0])

    def _be_like(self, env: gymnasium.Env[Any, Any]) -> None:
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self.spec = env.spec

    @functools.cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The space of the observations of all sub-envs together."""
        return batch_space(self.single_observation_space, self.num_envs)

    @functools.cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The space of the actions of all sub-envs together."""
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def unwrapped(self) -> VectorEnv:
        """Itself: written for gymnasium's vector envs, `env.unwrapped.envs[i]` works here, too."""
        return self

    @property
    def env(self) -> VectorEnv:
        """Itself: where RLlib has a wrapper around its vector env, there is none here."""
        return self

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every sub-env, or reads an attribute; finds it in any layer.

        Raises:
            AttributeError: a sub-env has nothing of that name in any layer.
        """
        members = [self._member(env, name) for env in self.envs]
        return tuple(member(*args, **kwargs) if callable(member) else member for member in members)

    @staticmethod
    def _member(env: gymnasium.Env[Any, Any], name: str) -> Any:
        try:
            return env.get_wrapper_attr(name)
        except AttributeError as cause:
            raise AttributeError(
                f"The env {type(env.unwrapped).__name__} has no {name!r}, nor has a wrapper around "
                "it; expected the name of an attribute or a method. Look at what it has: "
                "dir(env.envs[0].unwrapped)."
            ) from cause

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every sub-env, in any layer; raises as `call` does."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every sub-env, in the layer that has it.

        Nothing remembers it but the env: a runner that is replaced has its env as it was made. What
        has to last is a task (`TaskSettableEnv`).

        Args:
            name: of the attribute.
            values: a list or tuple with a value for each sub-env, or one value for all.

        Raises:
            EnvError: there are more or fewer values than sub-envs.
        """
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise EnvError(
                f"set_attr({name!r}) was given {len(values)} values for {self.num_envs} sub-envs. "
                "Give one for each, or a single value that is no list."
            )
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...]:
        """A frame of every sub-env; an EnvError if the env cannot be shown."""
        try:
            return tuple(env.render() for env in self.envs)
        except NotImplementedError as cause:
            raise EnvError(
                f"render() was called, but {type(self.envs[0].unwrapped).__name__} has no method "
                "of that name; expected an env that draws frames. Write `render` in the env, and "
                'make it with `render_mode="rgb_array"`.'
            ) from cause

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Raises an EnvError: the runner resets each sub-env with its own seed."""
        del seed, options
        raise _of_the_runner("reset")

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Raises an EnvError: the runner steps each sub-env."""
        del actions
        raise _of_the_runner("step")

    def foreach_env(self, function: Callable[[Any], Any]) -> list[Any]:
        """Calls the function with each sub-env, the user's own object.

        That is the outermost layer that is not one of gymnasium's own wrappers.

        Returns:
            the results in the order of the sub-envs.

        Raises:
            TaskError: the function asked the env for `set_task` or `get_task`, which it lacks.
        """
        return [self._called(function, env) for env in self.envs]

    def foreach_env_with_context(self, function: Callable[[Any, EnvContext], Any]) -> list[Any]:
        """Like `foreach_env`, with the sub-env's context as second argument."""
        pairs = zip(self.envs, self.contexts, strict=True)
        return [self._called(function, env, context) for env, context in pairs]

    def replace(self, index: int, env: gymnasium.Env[Any, Any], context: EnvContext) -> None:
        """Puts another sub-env in the place of one that failed and was closed."""
        self.envs[index] = env
        self.contexts[index] = context

    @staticmethod
    def _called(function: Callable[..., Any], env: gymnasium.Env[Any, Any], *more: Any) -> Any:
        layer = user_layer(env)
        try:
            return function(layer, *more)
        except AttributeError as error:
            if error.obj is layer and error.name in ("set_task", "get_task"):
                raise TaskError(_no_such_method(env, layer, error.name)) from error
            raise

    def __del__(self) -> None:
        """Closes nothing: the runner does, and a process that ends does not need it."""

    def close(self, **kwargs: Any) -> None:
        """Closes every sub-env, also if one of them raises. Idempotent."""
        del kwargs  # those of gymnasium's, for the extras of other vector envs
        if self.closed:
            return
        self.closed = True
        with contextlib.ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)


class MultiAgentVectorEnv(VectorEnv):
    """The sub-envs of a runner that several agents play in.

    Their spaces are by agent, and the same in all of them; see `EnvAgents`.
    """

    def _be_like(self, env: gymnasium.Env[Any, Any]) -> None:
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self.spec = getattr(env, "spec", None)


def _of_the_runner(method: str) -> EnvError:
    return EnvError(
        f"env.{method}() was called on the sub-envs of an env runner, which steps and resets each "
        "of them by itself, with a seed of its own. Play episodes with `env_runner.sample()`, or "
        "make an env of your own."
    )


def _no_such_method(env: gymnasium.Env[Any, Any], layer: Any, method: str) -> str:
    name = type(layer).__name__
    inside = task_layer(env)
    if inside is None:
        return (
            f"{name} was asked for {method}, which it does not have: {why_no_tasks(env)}. An env "
            "that is to be given tasks needs set_task(task) and get_task(); "
            "`trainer.TaskSettableEnv` shows how."
        )
    return (
        f"{name} was asked for {method}, which it does not have; {type(inside).__name__}, which it "
        f"wraps, does. Write `env.get_wrapper_attr({method!r})(…)`, or give {name} the method, or "
        "let `env_runner_group.set_task(task)` find it."
    )
