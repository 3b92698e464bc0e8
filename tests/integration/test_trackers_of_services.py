"""Trackers in real runs: a server that stops answering; services that are installed, read back."""

import http.server
import json
import logging
import struct
import threading
import urllib.request
from pathlib import Path

import pytest

from callbacks.ready_made import tracker_services as services
from callbacks.ready_made.tracker_services import ArtifactService
from tests.command_line import run, train
from tests.small_runs import small_ppo
from trainer import (
    PPO,
    AimLogger,
    MLflowLogger,
    TrackerLogger,
    TrackioLogger,
    WandbLogger,
    tune,
)
from trainer.metrics import comparable
from trainer.testing.processes import wait_until

NAME = "env_runners/episode_return_mean"
_WANDB_BLOCK = 32_768


def config(*callbacks):
    return small_ppo(env="CartPole-v1", num_slots=1, batch=40, callbacks=list(callbacks))


# ---- a server that stops answering


class Server(http.server.ThreadingHTTPServer):
    """Takes rows, until it is told to leave requests without an answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.rows = []
        self.answers = threading.Event()
        self.answers.set()
        self.is_asked = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        assert isinstance(server, Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.is_asked.set()
        server.answers.wait(60)
        server.rows.append(json.loads(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        """Nothing is printed."""


class HTTPService:
    """Posts each row."""

    def __init__(self, port):
        self.port = port

    def open_run(self, run_id, facts):
        return f"http://127.0.0.1:{self.port}/{run_id}"

    def log_row(self, run, row, step):
        request = urllib.request.Request(run, data=json.dumps(row).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60):
            pass

    def close_run(self, run, *, failed):
        """Nothing is to be ended."""


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.answers.set()
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_that_stops_answering_changes_nothing_and_gets_all_rows_later(
    server, tmp_path, caplog
):
    with config().build_algo() as algo:
        expected = [comparable(algo.train()) for _ in range(8)]
    tracker = TrackerLogger(HTTPService(server.server_port), tmp_path / "t")
    with caplog.at_level(logging.WARNING), config(tracker).build_algo() as algo:
        (logger,) = algo.callbacks.objects
        found = [algo.train() for _ in range(2)]
        assert logger.flush(30)
        server.answers.clear()
        server.is_asked.clear()
        found += [algo.train() for _ in range(6)]
        assert server.is_asked.wait(30)
        assert not logger.flush(0.0), "the server still owes an answer"
        kept = (tmp_path / "t" / "rows.jsonl").read_text().splitlines()
        assert [json.loads(line)["training_iteration"] for line in kept] == list(range(1, 9))
        server.answers.set()
        assert logger.flush(30)
    assert [comparable(result) for result in found] == expected
    assert [row["training_iteration"] for row in server.rows] == list(range(1, 9))
    assert not caplog.messages


# ---- services that are installed


def train_and_resume(make, folder):
    """Three iterations, a checkpoint after the second, and in another object the third to fifth."""
    with config(make()).build_algo() as algo:
        for _ in range(2):
            algo.train()
        algo.save_to_path(folder / "checkpoint")
        algo.train()
        assert algo.callbacks.objects[0].flush(60)
    with PPO.from_checkpoint(folder / "checkpoint", callbacks=[make()]) as algo:
        for _ in range(3):
            algo.train()
    assert algo.callbacks.objects[0].flush(60)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the services
def test_mlflow_has_one_run_with_config_and_all_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs all of mlflow
    mlflow = pytest.importorskip("mlflow")
    uri = str(tmp_path / "mlruns")
    train_and_resume(lambda: MLflowLogger(uri, folder=tmp_path / "t"), tmp_path)
    client = mlflow.MlflowClient(uri)
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["train_batch_size"] == "40"
    history = client.get_metric_history(found.info.run_id, "training_iteration")
    assert [(point.step, point.value) for point in history] == [(40 * n, n) for n in range(1, 6)]


@pytest.fixture
def wandb_offline(monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()  # its threads


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("wandb_offline")
def test_wandb_offline_has_all_rows_under_one_id(tmp_path):
    train_and_resume(lambda: WandbLogger("tests", folder=tmp_path / "t"), tmp_path)
    folders = sorted((tmp_path / "t" / "wandb").glob("offline-run-*"))
    found = [wandb_record(folder, "training_iteration") for folder in folders]
    run_id = json.loads((tmp_path / "t" / "run.json").read_text())["run"]
    assert {name for name, _ in found} == {run_id}
    assert [value for _, values in found for value in values] == [1, 2, 3, 4, 5]


def wandb_record(folder, name):
    """The id of a run of W&B and what it has logged under a name, from its own file."""
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    pytest.importorskip("wandb").teardown()  # its process writes until it ends
    run_id, values = "", []
    for data in wandb_data(next(folder.glob("*.wandb")).read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        run_id = record.run.run_id or run_id
        for item in record.history.item:
            if name in (item.key, *item.nested_key):
                values.append(json.loads(item.value_json))
    return run_id, values


def wandb_data(log):
    """The records of such a file: a log of LevelDB after a header of seven bytes.

    Blocks of 32 KiB hold pieces, each after its checksum (4 bytes), its length (2) and whether it
    is a whole record (1), the first (2), a middle (3) or the last piece of one (4).
    """
    assert log[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(log):
        if _WANDB_BLOCK - at % _WANDB_BLOCK < 7:  # no piece begins so late in a block
            at += _WANDB_BLOCK - at % _WANDB_BLOCK
            continue
        length, kind = struct.unpack_from("<HB", log, at + 4)
        whole += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


@pytest.fixture(scope="module")
def trackio_store(tmp_path_factory):
    """Where trackio keeps everything: it reads the variable once, when it is imported."""
    folder = tmp_path_factory.mktemp("trackio")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(folder))
        pytest.importorskip("trackio")
        yield folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_one_run_with_all_rows(trackio_store, tmp_path):
    train_and_resume(lambda: TrackioLogger("rows", folder=tmp_path / "t"), tmp_path)
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    (name,) = storage.get_runs("rows")
    assert name == json.loads((tmp_path / "t" / "run.json").read_text())["run"]
    logs = storage.get_logs("rows", name)
    assert [entry["training_iteration"] for entry in logs] == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_aim_has_one_run_with_config_and_all_rows(tmp_path):
    aim = pytest.importorskip("aim")
    train_and_resume(lambda: AimLogger(str(tmp_path / "store"), folder=tmp_path / "t"), tmp_path)
    _, name = (tmp_path / "t" / "aim-run").read_text().split()
    assert aim.Repo.from_path(str(tmp_path / "store")).list_all_runs() == [name]
    found = aim.Run(
        name,
        repo=str(tmp_path / "store"),
        force_resume=True,  # with `read_only` it looks only into an index that others make
        system_tracking_interval=None,  # else it starts a thread
        log_system_params=False,
    )
    assert found["params"]["train_batch_size"] == "40"
    context = pytest.importorskip("aim.storage.context").Context({})
    metric = found.get_metric("training_iteration", context)
    steps, (values, *_) = metric.data.items_list()
    assert [int(step) for step in steps] == [40 * n for n in range(1, 6)]
    assert list(values) == [1, 2, 3, 4, 5]
    found.close()


def make_service(name, folder, monkeypatch):
    """A tracker of a service that is installed, with both kinds of artefacts."""
    pytest.importorskip(name)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    settings = {"folder": folder / "t", "artifacts": ["checkpoints", "videos"]}
    made = {
        "wandb": lambda: WandbLogger("tests", **settings),
        "mlflow": lambda: MLflowLogger(str(folder / "store"), **settings),
        "trackio": lambda: TrackioLogger("files", **settings),
        "aim": lambda: AimLogger(str(folder / "store"), **settings),
    }
    return made[name]()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mlflow", "wandb", "trackio", "aim"])
def test_a_service_has_checkpoints_and_videos_as_they_are(name, tmp_path, monkeypatch, request):
    roots = [tmp_path]
    if name == "trackio":
        roots.append(request.getfixturevalue("trackio_store"))
    tracker = make_service(name, tmp_path, monkeypatch)
    (tmp_path / "videos").mkdir()
    film = b"\0\0\0\x18ftypmp42" + bytes(range(256))
    with config(tracker).build_algo() as algo:
        (logger,) = algo.callbacks.objects
        algo.train()
        (tmp_path / "videos" / "evaluation-0-0.mp4").write_bytes(film)
        logger.sink.video_folders = [tmp_path / "videos"]
        path = Path(algo.save_to_path(tmp_path / "saved" / "000001"))
        algo.train()
    assert logger.flush(60)
    assert logger.num_rows_lost == 0
    if name == "wandb":
        pytest.importorskip("wandb").teardown()
    wanted = {film, (path / "manifest.json").read_bytes()}
    # What the trainer itself wrote does not count.
    own = [tmp_path / "saved", tmp_path / "videos"]
    kept = {
        file.read_bytes()
        for root in roots
        for file in root.rglob("*")
        if file.is_file() and not any(file.is_relative_to(folder) for folder in own)
    }
    if name == "wandb":  # checkpoints are only named in its file, and read where it stages them
        wanted.discard((path / "manifest.json").read_bytes())
        run_folder = next((tmp_path / "t" / "wandb").glob("offline-run-*"))
        assert b"checkpoint-PPO" in next(run_folder.glob("*.wandb")).read_bytes()
    assert wanted <= kept


def test_all_services_take_artefacts():
    for service in (services.WandbService, services.MLflowService, services.TrackioService,
                    services.AimService):  # fmt: skip
        assert issubclass(service, ArtifactService)


# ---- trials of an experiment


def tune_and_extend(folder, logger):
    """Two trials of three rows, and a third one after a restore."""

    def train(config):
        for step in range(3):
            tune.report(loss=config["x"] + step)

    def run_config():
        return tune.RunConfig(storage_path=folder, name="x", verbose=0, callbacks=[logger()])

    space = {"x": tune.grid_search([10.0, 20.0])}
    tuning = {"in_process": True, "seed": 0}
    tune.Tuner(
        train, param_space=space, tune_config=tune.TuneConfig(**tuning), run_config=run_config()
    ).fit()
    tune.Tuner.restore(
        folder / "x",
        train,
        tune_config=tune.TuneConfig(num_samples=2, **tuning),
        run_config=run_config(),
    ).fit()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_a_run_per_trial_with_all_its_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    uri = str(tmp_path / "mlruns")
    tune_and_extend(tmp_path, lambda: tune.logger.MLflowLoggerCallback(uri))
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("x").experiment_id])
    by_name = {each.info.run_name: each for each in found}
    assert sorted(by_name) == ["00000", "00001", "00002", "00003"]
    for number, (name, each) in enumerate(sorted(by_name.items())):
        x = [10.0, 20.0][number % 2]
        assert (each.info.status, each.data.params["x"]) == ("FINISHED", str(x)), name
        history = client.get_metric_history(each.info.run_id, "loss")
        assert [(point.step, point.value) for point in history] == [(1, x), (2, x + 1), (3, x + 2)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("wandb_offline")
def test_wandb_offline_has_a_run_per_trial_with_all_its_rows(tmp_path):
    tune_and_extend(tmp_path, lambda: tune.logger.WandbLoggerCallback("tests"))
    folders = sorted((tmp_path / "x" / "trials").glob("*/wandb/offline-run-*"))
    found = dict(wandb_record(folder, "loss") for folder in folders)
    assert found == {
        f"x-{number:05d}": [x, x + 1, x + 2] for number, x in enumerate([10.0, 20.0, 10.0, 20.0])
    }


# ---- the command line


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_of_the_command_line_is_tracked_and_goes_on_being(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    uri = str(tmp_path / "mlruns")
    tracked = ["--track", f"mlflow:{uri}", "--track-artifacts", "checkpoints"]
    train(tmp_path, "--stop-iterations", 2, *tracked, env="CartPole-v1")
    run("resume", "run", "--stop-iterations", 4, folder=tmp_path)
    client = mlflow.MlflowClient(uri)
    file, store = tmp_path / "run" / "trackers" / "mlflow" / "run.json", tmp_path / "mlruns"
    saved = tmp_path / "run" / "checkpoints" / "000004" / "manifest.json"

    def has_all():  # the service is sent to on a thread, and nothing waits for it here
        sent = [path.read_bytes() for path in store.rglob("manifest.json")]
        return json.loads(file.read_text())["sent"] == 4 and saved.read_bytes() in sent

    assert wait_until(has_all, within_s=60)
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "run"


def test_a_tracker_that_is_not_there_is_told_before_anything_is_made(tmp_path):
    words = ["train", "--env", "CartPole-v1", "--run-dir", "run", "--track", "clearml"]
    assert "There is no tracker 'clearml'" in run(*words, folder=tmp_path, code=1).stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_new_database_of_mlflow_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    file = tmp_path / "runs.db"
    made = []
    client = mlflow.MlflowClient

    def noting(uri):
        made.append(file.exists())
        return client(uri)

    monkeypatch.setattr(mlflow, "MlflowClient", noting)
    facts = {"name": "n", "experiment": "e", "folder": str(tmp_path), "params": {}}
    service = services.MLflowService(f"sqlite:///{file}")
    run_id = service.open_run("a", facts)
    service.log_row(run_id, {"x": 1.0}, 1)
    service.close_run(run_id, failed=False)
    assert made == [False, True], "its tables were made elsewhere"
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".log"] == ["runs.db"]
    history = client(f"sqlite:///{file}").get_metric_history(run_id, "x")
    assert [(point.step, point.value) for point in history] == [(1, 1.0)]
