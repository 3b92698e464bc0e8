"""What the commands do. Each takes the parsed arguments and returns an exit code."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import faulthandler
import itertools
import pdb  # noqa: T100
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gymnasium.error import DependencyNotInstalled

from callbacks import EpisodeRecorder, RLlibCallback, VideoRecorder
from callbacks import chain as callback_chain
from callbacks.chain import CallbackGroup
from callbacks.ready_made.display import LineOutput
from callbacks.ready_made.stopping import COUNTS
from callbacks.spec import CallbackSpec, new_object
from checkpoints import latest_checkpoint, read_manifest
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.building import algorithm_class
from trainer.algorithms.checkpointing import class_of_checkpoint, restored_config
from trainer.algorithms.offline import OfflineConfig
from trainer.algorithms.time_split import PARTS
from trainer.cli.checkpoint_commands import checkpoint_at, newest_whole_at
from trainer.cli.named_code import config_of, import_from_here, imported, named_callbacks
from trainer.cli.output import (
    complain_with_traceback,
    missing_extras_explained,
    no_warnings_of,
    print_text,
)
from trainer.cli.recipes import recipe_of_run
from trainer.cli.run_directory import RUN_FILE, STOPS, RunDirectory, RunPlan, plan_of_new_run
from trainer.cli.run_trackers import tracker_service
from trainer.cli.seeds import SeedRuns
from trainer.cli.settings_file import (
    SETTINGS_FILE,
    Experiment,
    read_experiment,
    require_code,
    write_settings,
)
from trainer.cli.training_run import TrainingRun
from trainer.config import AlgorithmConfig
from trainer.config.settings import is_schedule, raise_problems
from trainer.envs.env_factory import is_import_path
from trainer.errors import ConfigError, TrainerError
from trainer.nn.optimizers import Schedule
from trainer.runner_group.crash_files import is_own_crash, read_crash
from trainer.runtime.run_lock import RunLock
from trainer.tune.journal_file import JOURNAL_FILE
from trainer.tune.trial_records import TRIALS_FOLDER
from trainer.types import State

# ---- commands

_DEFAULT_ALGORITHM: Final = "PPO"
_MAX_NAME: Final = 100
_RECORDERS: Final = (EpisodeRecorder, VideoRecorder)


def train(arguments: argparse.Namespace) -> int:
    """`local-trainer train`."""
    import_from_here()
    config = _config(arguments)
    plan = plan_of_new_run(arguments)
    _require_stops_that_come(plan, config)
    for name in plan.track:
        tracker_service(name)  # one that is not there is told before anything is made
    if arguments.seeds is not None:
        return _train_seeds(arguments, config)
    if arguments.jobs is not None:
        raise ConfigError(
            f"--jobs {arguments.jobs} says how many of --seeds train at the same time, and no "
            "--seeds were given. Give --seeds 0-4, for example, or leave --jobs out; processes "
            "that sample for one run are --num-env-runners."
        )
    with contextlib.ExitStack() as stack:
        directory = _locked_directory(arguments, config, stack)
        directory.create(plan)
        try:
            algo = config.build_algo()
        except BaseException:
            directory.remove_if_unused()
            raise
        with algo:
            file = directory.path / SETTINGS_FILE
            write_settings(file, algo, plan, names=arguments.callbacks)
            return _run(algo, directory, plan, arguments)


_WIDTH: Final = 40


def _require_stops_that_come(plan: RunPlan, config: AlgorithmConfig) -> None:
    """Raises a ConfigError for a goal that no result will ever say anything about."""
    if plan.stops.has_goal and isinstance(config, OfflineConfig):
        raise ConfigError(
            f"--stop-return {plan.stops.at_least:g} never comes true: who learns from recordings "
            "plays no episodes in training. Give --stop-env-steps (of recordings, learnt from), "
            "--stop-iterations or --stop-time-s; or, in a script, EarlyStopping("
            "'evaluation/env_runners/episode_return_mean', at_least=...)."
        )


def profile(arguments: argparse.Namespace) -> int:
    """`local-trainer profile`: trains some iterations and says where the time went."""
    import_from_here()
    config = _config(arguments)
    with config.build_algo() as algo:
        algo.train()  # memory is made, code is loaded
        results = [algo.train() for _ in range(arguments.iterations)]
    parts = {part: sum(result["timers"]["split"][part] for result in results) for part in PARTS}
    whole = sum(parts.values())
    steps = sum(int(COUNTS["env_steps"].added(result)) for result in results)
    print_text(
        f"{len(results)} iterations, {steps:,} env steps, {whole:.2f} s: {steps / whole:,.0f} /s"
    )
    for part, seconds in sorted(parts.items(), key=lambda entry: -entry[1]):
        share = seconds / whole
        bar = "#" * round(_WIDTH * share)
        print_text(f"  {part:<11}{seconds:>9.3f} s {share:>6.1%}  {bar:<{_WIDTH}} {PARTS[part]}")
    print_text("What to do about each part is in docs/performance.md.")
    return 0


def _train_seeds(arguments: argparse.Namespace, config: AlgorithmConfig) -> int:
    """A run per seed; the arguments were checked before the first begins."""
    if arguments.seed is not None or "seed" in dict(arguments.settings):
        option = "--seed" if arguments.seed is not None else "--set seed=…"
        raise ConfigError(f"{option} and --seeds were both given. Give --seeds alone.")
    own = argparse.ArgumentParser()
    own.add_argument("command")
    for name in ("--seeds", "--jobs", "--run-dir"):
        own.add_argument(name)
    words = own.parse_known_args(arguments.words)[1]
    with contextlib.ExitStack() as stack:
        folder = _locked_directory(arguments, config, stack).relative_path
        return SeedRuns(arguments.seeds, folder, words, num_jobs=arguments.jobs or 1).run()


def resume(arguments: argparse.Namespace) -> int:
    """`local-trainer resume`."""
    checkpoint = newest_whole_at(arguments.path)
    read_manifest(checkpoint)  # nothing is made where there is no checkpoint
    is_new = arguments.run_dir is not None
    directory = _run_directory(arguments.run_dir if is_new else _run_directory_of(checkpoint))
    with _experiment_lock(directory.path), RunLock(directory.path):
        plan = directory.read_plan().updated(arguments)
        if is_new:
            directory.create(plan)
        try:
            algo = Algorithm.from_checkpoint(
                checkpoint,
                allow_code=arguments.allow_code,
                **_env_given(arguments),
                **_given_settings(arguments),
            )
        except BaseException:
            if is_new:
                directory.remove_if_unused()
            raise
        with algo:
            _require_stops_that_come(plan, algo.config)
            LineOutput().write(f"Restored {checkpoint} (iteration {algo.training_iteration}).")
            _set_later_checkpoints_aside(directory, algo.training_iteration)
            if not is_new:
                directory.forget_results_after(algo.training_iteration)
            # The next resume ends where this one is to end.
            directory.write_plan(plan)
            return _run(algo, directory, plan, arguments)


def evaluate(arguments: argparse.Namespace) -> int:
    """`local-trainer evaluate`."""
    checkpoint = checkpoint_at(arguments.path)
    settings = _evaluation_settings(arguments)
    if arguments.callbacks:
        _give_callbacks(settings, named_callbacks(arguments.callbacks))
    with _player(checkpoint, settings, allow_code=arguments.allow_code) as algo:
        metrics = algo.evaluate()["env_runners"]
    print_text(
        f"{checkpoint}, iteration {algo.training_iteration}, {metrics['num_episodes']} episodes:"
    )
    for name in (
        "episode_return_mean",
        "episode_return_min",
        "episode_return_max",
        "episode_len_mean",
    ):
        print_text(f"  {name:<22}{metrics[name]:>12.2f}")
    if "module_agent_return_mean" in metrics:  # several agents: their sum says little
        for of in ("agent", "module"):
            for id_, mean in metrics[f"{of}_episode_return_mean"].items():
                print_text(f"  {f'return of {of} {id_}':<22}{mean:>12.2f}")
    return 0


def record(arguments: argparse.Namespace) -> int:
    """`local-trainer record`: an evaluation whose episodes are written, one file each."""
    checkpoint, folder = checkpoint_at(arguments.path), Path(arguments.to).expanduser()
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is there, and is not empty; recordings of two policies must not mix by "
            "mistake. Name another folder with --to FOLDER, or remove it."
        )
    settings = _evaluation_settings(arguments)
    settings["evaluation_num_env_runners"] = arguments.num_env_runners
    _give_callbacks(settings, [EpisodeRecorder(folder, evaluation=True)])
    with (
        no_warnings_of(callback_chain.__name__),  # this callback is not one of the run
        _player(checkpoint, settings, allow_code=arguments.allow_code) as algo,
    ):
        metrics = algo.evaluate()["env_runners"]
    failed = int(metrics.get("episode_recorder", {}).get("num_failed", 0))
    if failed:
        raise TrainerError(f"{failed} episodes were not written to {folder}; see the log above.")
    print_text(
        f"{metrics['num_episodes']} episodes of {checkpoint} in {folder}: return "
        f"{metrics['episode_return_mean']:.2f} ({metrics['episode_return_min']:.2f} to "
        f"{metrics['episode_return_max']:.2f}), length {metrics['episode_len_mean']:.1f}"
    )
    return 0


def play(arguments: argparse.Namespace) -> int:
    """`local-trainer play`: an evaluation that is shown or filmed, told episode by episode."""
    checkpoint = checkpoint_at(arguments.path)
    settings = _evaluation_settings(arguments)
    mode = "human" if arguments.human else "rgb_array" if arguments.video else None
    if mode is not None:
        settings["evaluation_config"]["env_config"] = {"render_mode": mode}
    with tempfile.TemporaryDirectory() as folder, missing_extras_explained():
        films: list[RLlibCallback] = []
        if arguments.video is not None:
            films = [_recorder(folder)]
        _give_callbacks(settings, [PlayedEpisodes(), *films])
        with (
            no_warnings_of(callback_chain.__name__),  # these callbacks are not those of the run
            _player(checkpoint, settings, allow_code=arguments.allow_code) as algo,
        ):
            algo.evaluate()
        if arguments.video is not None:
            _move_films(Path(folder), Path(arguments.video).expanduser())
    return 0


def _recorder(folder: str) -> RLlibCallback:
    try:
        return VideoRecorder(folder, max_frames=None)
    except ImportError as error:
        return _MissingRecorder(str(error))


class _MissingRecorder(RLlibCallback):
    """Stands for a recorder whose package is missing: tells what rendering lacks, too.

    Args:
        why: the recorder cannot be made.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def on_episode_start(self, *, env: Any, env_index: int, **_: Any) -> None:
        """Renders one frame, and raises an ImportError that says all that is missing."""
        try:
            env.envs[env_index].render()
        except (ImportError, DependencyNotInstalled) as error:
            raise ImportError(f"{self._why}\nAnd to render: {error}") from error
        raise ImportError(self._why)


def _move_films(folder: Path, target: Path) -> None:
    """Gives videos the name that was asked for; several get numbers."""
    films = sorted(folder.glob("*.mp4"), key=lambda film: int(film.stem.rpartition("-")[2]))
    if not films:
        raise TrainerError(f"No video was written to {target}; see the warning above.")
    target.parent.mkdir(parents=True, exist_ok=True)
    for number, film in enumerate(films, start=1):
        path = target if len(films) == 1 else target.with_stem(f"{target.stem}-{number}")
        shutil.move(film, path)
        print_text(str(path))


class PlayedEpisodes(RLlibCallback):
    """Prints a line per episode."""

    def __init__(self) -> None:
        self._number = 0

    def on_episode_end(self, *, episode: Any, **_: Any) -> None:
        """Prints return and length."""
        self._number += 1
        num_steps = episode.env_steps() if hasattr(episode, "env_steps") else len(episode)
        print_text(
            f"episode {self._number:>3}   return {episode.get_return():>10.2f}   {num_steps} steps"
        )


def _player(checkpoint: Path, settings: Mapping[str, Any], *, allow_code: bool) -> Algorithm:
    """The algorithm of a checkpoint, in the env that it was evaluated in."""
    algorithm = class_of_checkpoint(Algorithm, checkpoint)
    config = restored_config(
        checkpoint, algorithm, None, settings, allow_code=allow_code, merged=["evaluation_config"]
    )
    if "callbacks_class" not in settings:
        _leave_recorders_out(config)
    return Algorithm.from_checkpoint(checkpoint, config=config, allow_code=allow_code)


def _give_callbacks(settings: dict[str, Any], classes: list[Any]) -> None:
    """Lets these be the callbacks, also where evaluation had some of its own."""
    settings["callbacks_class"] = settings["evaluation_config"]["callbacks_class"] = classes


def _evaluation_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Of an algorithm that only plays, in this process."""
    env = _env_given(arguments)
    return {
        "evaluation_duration": arguments.episodes,
        "evaluation_duration_unit": "episodes",
        "evaluation_seed": arguments.seed,
        # Merged into what was saved, and only this is the user's.
        "evaluation_config": {"explore": arguments.explore, **env},
        "custom_evaluation_function": None,  # episodes are asked for
        "num_env_runners": 0,
        "num_envs_per_env_runner": 1,
        **env,
    }


def _leave_recorders_out(config: AlgorithmConfig) -> None:
    """Leaves out the callbacks that would write, and remove, recordings of the run."""
    found = False
    for settings in (config, config.evaluation_config or {}):
        classes = CallbackSpec(settings.get("callbacks_class")).classes
        kept = [entry for entry in classes if not _records(entry)]
        if len(kept) < len(classes):
            settings["callbacks_class"], found = kept, True
    if found:
        LineOutput().write("Nothing is recorded: an evaluation leaves the files of the run alone.")


def _records(entry: Any) -> bool:
    """Whether a callback, as it was configured, is a recorder or a group with one."""
    made = new_object(entry, "local-trainer evaluate")
    members = made.chain.objects if isinstance(made, CallbackGroup) else (made,)
    return any(
        _records(member) if isinstance(member, CallbackGroup) else isinstance(member, _RECORDERS)
        for member in members
    )


def _env_given(arguments: argparse.Namespace) -> dict[str, Any]:
    import_from_here()
    return {} if arguments.env is None else {"env": arguments.env}


def _given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings on the command line, by name.

    Raises:
        ConfigError: an option and `--set` say different things of one.
    """
    given = {
        "num_env_runners": arguments.num_env_runners,
        "num_envs_per_env_runner": arguments.num_envs_per_env_runner,
        "seed": arguments.seed,
        "callbacks_class": named_callbacks(arguments.callbacks) or None,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    for name, value in arguments.settings:
        own = {"env": arguments.env, **settings}.get(name)
        if own is not None and own != value:
            raise ConfigError(
                f"--{name.replace('_', '-')} {own} and --set {name}={value} say different things "
                "of one setting. Give one of them."
            )
    return {**settings, **dict(arguments.settings)}


def _config(arguments: argparse.Namespace) -> AlgorithmConfig:
    """The config that the arguments describe.

    Raises:
        ConfigError: lists everything that is wrong, unknown names and wrong values alike.
    """
    config, *tables = _described(arguments)
    # One after the other: they may have two names of one setting.
    errors = [error for settings in tables if (error := _taken(config, settings)) is not None]
    reported = "\n".join(map(str, errors))
    further = [each for each in config.find_problems() if str(each) not in reported]
    try:
        raise_problems(type(config).__name__, further)
    except ConfigError as others:
        errors.append(others)
    if len(errors) > 1:
        raise ConfigError("\n".join(map(str, errors))) from errors[0]
    if errors:
        raise errors[0]
    return config


def _taken(config: AlgorithmConfig, settings: dict[str, Any]) -> ConfigError | None:
    """What is wrong with the names of settings; those that are known are taken, to be judged."""
    try:
        config.update_from_dict(settings)
    except ConfigError as error:
        for name, value in settings.items():
            with contextlib.suppress(ConfigError):
                config.update_from_dict({name: value})
        return error
    return None


def _described(
    arguments: argparse.Namespace,
) -> tuple[AlgorithmConfig, dict[str, Any], dict[str, Any]]:
    """The config to begin with, and the settings of `--config` and of the command line.

    What is on the command line wins; stop criteria there replace those of the file.
    """
    experiment = Experiment()
    if arguments.config is not None:
        experiment = read_experiment(arguments.config, allow_code=arguments.allow_code)
    if all(getattr(arguments, name) is None for name in STOPS):
        vars(arguments).update(experiment.stops)
    elif experiment.stops:
        dropped = ", ".join(f"{name}={value}" for name, value in experiment.stops.items())
        print_text(f"--stop-… on the command line replaces {dropped} of {arguments.config}.")
    for name, value in experiment.saving.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    settings = _given_settings(arguments)
    words = [name for name in ("env", "algo") if getattr(arguments, name) is not None]
    require_code(experiment, [*words, *settings], arguments.config)
    source = experiment.source.handing_in(settings, arguments.env)
    given = experiment.config
    if given is not None:
        _require_same_algorithm(given, arguments)
        config = given.copy(copy_frozen=False)
    else:
        recipe = recipe_of_run(arguments)
        of_recipe = None if recipe is None else recipe.algorithm
        name = arguments.algo or experiment.algo or of_recipe or _DEFAULT_ALGORITHM
        config = algorithm_class(name).get_default_config().update_from_dict({}, source=source)
        if recipe is not None:
            config.update_from_dict(recipe.settings)
    env = arguments.env or experiment.env
    if env is not None:
        config.environment(env)
    if config.env is None:
        raise ConfigError(
            "There is no env to train in. Give one: --env CartPole-v1, or name it in the file of "
            "--config."
        )
    # A dict that is typed replaces that of the file.
    of_file = {name: value for name, value in experiment.settings.items() if name not in settings}
    return config, of_file, settings


def _require_same_algorithm(given: AlgorithmConfig, arguments: argparse.Namespace) -> None:
    """Raises if `--algo` names another algorithm than that of the config object of `--config`."""
    if arguments.algo is not None and algorithm_class(arguments.algo) is not given.algo_class:
        raise ConfigError(
            f"--config {arguments.config} holds a {type(given).__name__}, and --algo says "
            f"{arguments.algo}; a config object is of one algorithm. Leave one out."
        )


def _run(
    algo: Algorithm, directory: RunDirectory, plan: RunPlan, arguments: argparse.Namespace
) -> int:
    run = TrainingRun(algo, directory, plan, is_live=not arguments.lines)
    reason = run.run()
    path = shlex.quote(str(directory.relative_path))
    again = f"{path}{_words_to_open(algo, directory, arguments)}"
    further = "" if run.was_interrupted else f" --stop-iterations {algo.training_iteration + 10}"
    # The schedules of a recipe come to their end with it: nothing would be learnt any more.
    is_over = not run.was_interrupted and _is_zero_now(algo.config.get("lr"), algo)
    lines = [
        f"\n{reason} Results: {directory.results_file}",
        "What to type next:",
        f"  local-trainer evaluate {again} --episodes 20",
        *([] if is_over else [f"  local-trainer resume {again}{further}"]),
        f"  local-trainer inspect {path}",
    ]
    LineOutput().write("\n".join(lines))
    return 130 if run.was_interrupted else 0


def _is_zero_now(lr: Any, algo: Algorithm) -> bool:
    if not is_schedule(lr):
        return False
    return Schedule.from_setting(lr, name="lr").value_at(algo.counters.num_env_steps_sampled) == 0.0


def _run_directory(path: str | Path) -> RunDirectory:
    try:
        return RunDirectory(path)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no home, a null byte
        raise ConfigError(
            f"{str(path)!r} is no path for the directory of a run: {error}. Give another --run-dir."
        ) from error


def _experiment_lock(path: Path) -> contextlib.AbstractContextManager[object]:
    """Keeps the tuner away from the folder of a trial; of no effect for any other run."""
    experiment = path.parent.parent
    if path.parent.name != TRIALS_FOLDER or not (experiment / JOURNAL_FILE).is_file():
        return contextlib.nullcontext()
    return RunLock(experiment, elsewhere=f"a copy of {path}")


def _set_later_checkpoints_aside(directory: RunDirectory, iteration: int) -> None:
    """Keeps what came after the restored checkpoint out of the way of what will come instead."""
    moved = directory.checkpoints.set_later_aside(iteration)
    if moved is not None:
        LineOutput().write(
            f"Later checkpoints are now in {moved}; remove them if they are not wanted."
        )


def _algorithm_name(config: AlgorithmConfig) -> str:
    return str(getattr(config.algo_class, "__name__", type(config).__name__))


def _locked_directory(
    arguments: argparse.Namespace, config: AlgorithmConfig, stack: contextlib.ExitStack
) -> RunDirectory:
    """The directory of a new run, locked until the stack is left: as given, or one of its own.

    Runs that are started in the same second get names with a number.
    """
    if arguments.run_dir is not None:
        directory = _run_directory(arguments.run_dir)
        stack.enter_context(RunLock(directory.path))
        return directory
    now = dt.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    env = re.sub(r"[^A-Za-z0-9._-]+", "_", str(config.env))[:_MAX_NAME]
    name = f"{_algorithm_name(config)}-{env}-{now}"
    for number in itertools.count(1):
        directory = _run_directory(Path("runs") / (name if number == 1 else f"{name}-{number}"))
        try:
            stack.enter_context(RunLock(directory.path, must_be_new=True))
        except FileExistsError:
            continue  # of a run that was started in the same second
        break
    return directory


def _run_directory_of(checkpoint: Path) -> Path:
    """The run that a checkpoint belongs to; of a copied one, the folder beside it.

    Raises:
        ConfigError: it was saved by a script, under a name that no run gives.
    """
    place = checkpoint.expanduser().resolve()
    parent = place.parent
    if parent.name == "checkpoints":
        return parent.parent
    if not place.name.isdecimal() and not (parent / RUN_FILE).exists():
        raise ConfigError(
            f"{str(checkpoint)!r} is a checkpoint and belongs to no run that could go on. Say "
            "where the results and checkpoints of one that begins with it shall go: --run-dir NEW, "
            "and when it ends: --stop-iterations N, for example."
        )
    return parent


def _words_to_open(algo: Algorithm, directory: RunDirectory, arguments: argparse.Namespace) -> str:
    """What to type to open the run's checkpoints: nothing where they are signed as this user's."""
    newest = latest_checkpoint(directory.path / "checkpoints")
    if newest is not None and read_manifest(newest).is_own:
        return ""
    env, config = algo.config.env, algo.config
    is_named = isinstance(env, str) and is_import_path(env)
    words = f" --env {shlex.quote(str(env))}" if is_named else ""
    code = [name for name in config.names_of_code() if name != "callbacks_class"]
    callbacks = "".join(f" --callbacks {shlex.quote(name)}" for name in arguments.callbacks)
    if code or config.names_code(str(env)) or (config.names_of_code() and not callbacks):
        return f"{words} --allow-code"
    return words + callbacks


# ---- replaying
#
# `local-trainer replay-episode`: plays a request that failed again, for a debugger to look at.

_IN_THIS_PROCESS: Final = {
    "num_env_runners": 0,
    "evaluation_interval": None,
    "evaluation_num_env_runners": 0,
    "evaluation_parallel_to_training": False,
    "enable_async_evaluation": False,
    "crash_dir": None,
}


def replay_episode(arguments: argparse.Namespace) -> int:
    """Plays it again; the exit code is 1 if something was raised."""
    record = read_crash(arguments.path)
    print_text(f"{arguments.path}: {_headline(record)}\n")
    config = _config_of_episode(arguments, record).update_from_dict(_IN_THIS_PROCESS)
    config.validate()
    faulthandler.enable()  # shows the Python lines above a crash in compiled code
    with config.build_algo() as algo:
        try:
            episodes = algo.replay_episode(arguments.path)
        except Exception as error:  # noqa: BLE001 - shown; it is what was looked for
            complain_with_traceback(error)
            if arguments.pdb:
                pdb.post_mortem(error.__traceback__)
            return 1
    if arguments.moves:
        for episode in episodes:
            print_text(episode.table() if hasattr(episode, "table") else repr(episode))
    num_steps = sum(len(episode) for episode in episodes)
    print_text(
        f"Played {num_steps} env steps of {len(episodes)} episodes and chunks; nothing was raised "
        "this time. So the failure does not follow from seeds and actions alone: look for clocks, "
        "files, other processes, memory."
    )
    return 0


def _headline(record: State) -> str:
    what = str(record["why"]).strip().splitlines()[-1 if record["why"].startswith("Trace") else 0]
    return (
        f"env runner {record['place']['worker_index']} of {record['role'].lower()} in env "
        f"{record['env']!r} {what}"
    )


def _config_of_episode(arguments: argparse.Namespace, record: State) -> AlgorithmConfig:
    """The config of the run that failed: as the user gives it, or as the file has it."""
    if arguments.config is not None:
        found = imported(arguments.config, option="--config")
        return config_of(found, name=arguments.config).copy(copy_frozen=False)
    state = record["config"]
    code: dict[str, Any] = {} if arguments.env is None else {"env": arguments.env}
    missing = sorted(set(state["code"]) - code.keys())
    if missing:
        raise ConfigError(
            f"The config of that run holds code, which is not in the file: {', '.join(missing)}. "
            "Say where the config is made: --config package.module:name (a config, or a function "
            "that returns one)"
            + (", or name the env: --env package.module.MyEnv." if missing == ["env"] else ".")
        )
    config: AlgorithmConfig = algorithm_class(record["algorithm"]).config_class.from_state(
        state, code=code, allow_code=is_own_crash(record)
    )
    return config
