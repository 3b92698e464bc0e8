"""Files of recordings: what each kind holds, and what is refused, by file, episode and column."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from gymnasium import spaces

from callbacks.ready_made.recorders import write_episode
from trainer.connectors import ActionDecoder
from trainer.connectors.encoding import before_decoding_of
from trainer.episodes import nested
from trainer.errors import EpisodeError
from trainer.offline import Recordings, files
from trainer.offline.checking import RecordingForm

BOX = spaces.Box(-10.0, 10.0, (2,))
FORM = RecordingForm(BOX, spaces.Discrete(3), normalize_actions=True)


def arrays(num_steps=3, *, seed=0, **changed):
    """What EpisodeRecorder writes of an episode."""
    rng = np.random.default_rng(seed)
    made = {
        "id": np.array(f"training-0-{seed}"),
        "seed": np.array(7),
        "observations": rng.uniform(-1.0, 1.0, (num_steps + 1, 2)).astype(np.float32),
        "actions": np.arange(num_steps) % 3,
        "rewards": np.arange(num_steps, dtype=np.float64),
        "terminated": np.array(True),
        "truncated": np.array(False),
        "extra/action_logp": np.zeros(num_steps, np.float32),
    }
    return {name: array for name, array in {**made, **changed}.items() if array is not None}


def recorded(folder, *episodes, compressed=True):
    folder.mkdir(exist_ok=True)
    for number, episode in enumerate(episodes):
        write_episode(folder / f"training-0-{number}.npz", episode, compressed=compressed)
    return folder


# ---- our own files


def test_an_episode_of_the_recorder_is_read_as_it_was(tmp_path):
    given = arrays(4)
    (folder,) = [recorded(tmp_path / "r", given)]
    found = Recordings([folder], FORM)
    assert (len(found), found.num_steps, found.lengths) == (1, 4, [4])
    episode = found.episode(0)
    assert np.array_equal(episode.get_observations(), given["observations"])
    assert episode.get_actions().tolist() == [0, 1, 2, 0]
    assert episode.get_rewards().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert (episode.is_terminated, episode.is_truncated, episode.is_numpy) == (True, False, True)
    with pytest.raises(ValueError, match="read-only"):
        episode.get_rewards()[0] = 1.0  # the next pass would read it


def test_folders_files_and_lists_are_read_in_the_order_of_names(tmp_path):
    one = recorded(tmp_path / "one", arrays(1), arrays(2))
    two = recorded(tmp_path / "two", arrays(3), compressed=False)
    (one / "notes.txt").write_text("not a recording")
    found = Recordings([two / "training-0-0.npz", one], FORM)
    assert found.lengths == [3, 1, 2]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"actions": None}, r"'actions' is not there; the episode has observations, rewards"),
        ({"actions": np.array([0, 1, 3])}, r"'actions' holds 3 in row 2, not in Discrete\(3\)"),
        ({"actions": np.array([0.0, 0.5, 1.0])}, r"holds 0.5 in row 1, not in"),
        ({"actions": np.zeros((3, 1))}, r"'actions' has the shape \(3, 1\); expected \(3,\)"),
        ({"observations": np.zeros((3, 2))}, r"has the shape \(3, 2\); expected \(4, 2\)"),
        ({"observations": np.full((4, 2), np.inf)}, "numbers that are not finite"),
        ({"observations": np.full((4, 2), 1e39)}, "too large for float32"),
        ({"observations": np.full((4, 2), "x")}, "holds <U1; expected numbers"),
        ({"rewards": np.zeros((3, 1))}, r"'rewards' has the shape \(3, 1\); expected \[T\]"),
        ({"rewards": np.zeros(0)}, r"expected \[T\], T ≥ 1"),
        ({"terminated": np.array(2)}, "'terminated' is 2; expected one bool"),
    ],
)
def test_what_does_not_fit_is_told_with_file_and_column(tmp_path, changed, why):
    folder = recorded(tmp_path / "r", arrays(3), arrays(3, **changed))
    with pytest.raises(EpisodeError, match=why) as caught:
        Recordings([folder], FORM)
    assert "training-0-1.npz" in str(caught.value)


@pytest.mark.parametrize(
    "path", ["nowhere", "empty", "notes.txt", "empty/training.npz"], ids=lambda path: path
)
def test_what_is_no_recording_is_told(tmp_path, path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(EpisodeError, match="input_="):
        Recordings([tmp_path / path], FORM)


# ---- strangers' files


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("code in a recording was run",))


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def header(shape, dtype="<f8"):
    """A file of an array that says so, without its numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "x.npz", rewards=np.array([Bomb()], object), actions=np.zeros(1))
    with pytest.raises(EpisodeError, match=r"x\.npz cannot be read as a recording"):
        Recordings([tmp_path / "x.npz"], FORM)


def test_an_array_that_says_it_is_larger_than_its_file_takes_no_memory(tmp_path):
    zipped(tmp_path / "x.npz", rewards=header((10**12,)))
    with pytest.raises(EpisodeError, match=r"says float64 of shape \(1000000000000,\)"):
        Recordings([tmp_path / "x.npz"], FORM)


def test_what_would_unpack_to_more_than_the_limit_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    folder = recorded(tmp_path / "r", arrays(3, rewards=np.zeros(1000)))
    with pytest.raises(EpisodeError, match="GiB are read at once"):
        Recordings([folder], FORM)


@pytest.mark.parametrize("cut", [1, 100, -30])
def test_a_damaged_file_is_told(tmp_path, cut):
    folder = recorded(tmp_path / "r", arrays(3))
    file = folder / "training-0-0.npz"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(EpisodeError, match="cannot be read as a recording"):
        Recordings([folder], FORM)


def test_links_that_lead_out_of_the_folder_are_refused(tmp_path):
    outside = recorded(tmp_path / "outside", arrays(3))
    folder = recorded(tmp_path / "r", arrays(3))
    (folder / "more.npz").symlink_to(outside / "training-0-0.npz")
    with pytest.raises(EpisodeError, match="a link that leads out of its folder"):
        Recordings([folder], FORM)


def test_episodes_of_several_agents_are_refused(tmp_path):
    several = {f"left/{name}": array for name, array in arrays(3).items()}
    with pytest.raises(EpisodeError, match="several agents"):
        Recordings([recorded(tmp_path / "r", several)], FORM)


# ---- spaces


def test_nested_spaces_are_put_together_from_their_leaves(tmp_path):
    seen = spaces.Dict({"camera": spaces.Box(0, 255, (2, 2), np.uint8), "at": spaces.Discrete(4)})
    act = spaces.Tuple([spaces.Discrete(2, start=5), spaces.Box(0.0, 4.0, (1,))])
    given = arrays(
        2,
        observations=None,
        actions=None,
        **{
            "observations/camera": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
            "observations/at": np.array([3, 0, 1]),
            "actions/0": np.array([1, 0]),
            "actions/1": np.array([[-1.0], [0.5]], np.float32),
        },
    )
    folder = recorded(tmp_path / "r", given)
    as_recorded = Recordings([folder], RecordingForm(seen, act, normalize_actions=True)).episode(0)
    assert as_recorded.get_observations()["camera"].dtype == np.uint8
    assert as_recorded.get_observations()["at"].tolist() == [3, 0, 1]
    discrete, box = as_recorded.get_actions()
    assert (discrete.tolist(), box.tolist()) == ([1, 0], [[-1.0], [0.5]])
    given["actions/0"] += 5
    given["actions/1"] = np.array([[0.0], [3.0]], np.float32)
    folder = recorded(tmp_path / "env", given)
    form = RecordingForm(seen, act, normalize_actions=True, are_actions_normalized=False)
    assert nested.equal(Recordings([folder], form).episode(0).get_actions(), (discrete, box))


LOW, HIGH = np.array([-2.0, 0.0, 0.0]), np.array([6.0, np.inf, 1e-3])
EVERY = spaces.Dict(
    {
        "choice": spaces.Discrete(3, start=-1),
        "several": spaces.MultiDiscrete([2, 3], start=[1, 5]),
        "bits": spaces.MultiBinary(2),
        "level": spaces.Box(3, 5, (1,), np.int16),
        "arm": spaces.Box(LOW, HIGH, dtype=np.float64),
    }
)


@pytest.mark.parametrize("normalize_actions", [True, False])
def test_what_the_env_was_given_is_turned_back_into_what_was_chosen(normalize_actions):
    decoder = ActionDecoder(EVERY, normalize_actions=normalize_actions)
    EVERY.seed(3)
    samples = [EVERY.sample() for _ in range(20)]
    given = {key: np.stack([sample[key] for sample in samples]) for key in EVERY}
    chosen = before_decoding_of(given, EVERY, normalize_actions=normalize_actions)
    again = decoder.to_env(chosen)
    for key in EVERY:
        np.testing.assert_allclose(again[key], given[key], rtol=1e-5, atol=1e-6)
    assert chosen["choice"].min() == 0
    bounded = chosen["arm"][:, [0, 2]]
    assert (np.abs(bounded).max() <= 1.0 + 1e-6) == normalize_actions


def test_what_a_policy_chose_beyond_the_bounds_is_moved_onto_them_on_request(tmp_path):
    box = spaces.Box(-2.0, 2.0, (1,))
    folder = recorded(tmp_path / "r", arrays(2, actions=np.array([[-3.0], [0.5]], np.float32)))
    for clips, expected in ((False, [[-3.0], [0.5]]), (True, [[-1.0], [0.5]])):
        form = RecordingForm(BOX, box, normalize_actions=True, clips_actions=clips)
        assert Recordings([folder], form).episode(0).get_actions().tolist() == expected


# ---- Parquet and Minari


def parquet_file(path, **columns):
    arrow = pytest.importorskip("pyarrow")
    lists = {name: column.tolist() for name, column in columns.items()}
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(lists), path)
    return path


def rows(*episodes):
    """The rows of episodes under RLlib's names."""
    return {
        "eps_id": np.concatenate([[str(e["id"])] * len(e["rewards"]) for e in episodes]),
        "obs": np.concatenate([e["observations"][:-1] for e in episodes]),
        "new_obs": np.concatenate([e["observations"][1:] for e in episodes]),
        "actions": np.concatenate([e["actions"] for e in episodes]),
        "rewards": np.concatenate([e["rewards"] for e in episodes]),
        "terminateds": np.concatenate(
            [np.arange(len(e["rewards"])) == len(e["rewards"]) - 1 for e in episodes]
        )
        & True,
    }


def test_parquet_holds_the_same_as_our_files(tmp_path):
    episodes = [arrays(3, seed=1), arrays(2, seed=2)]
    path = parquet_file(tmp_path / "x.parquet", **rows(*episodes))
    ours = Recordings([recorded(tmp_path / "r", *episodes)], FORM)
    theirs = Recordings([path], FORM)
    assert theirs.lengths == ours.lengths
    assert theirs.fingerprint == ours.fingerprint


def test_columns_of_parquet_may_be_called_otherwise(tmp_path):
    columns = rows(arrays(3))
    columns["state"] = columns.pop("obs")
    path = parquet_file(tmp_path / "x.parquet", **columns)
    with pytest.raises(EpisodeError, match="'observations' is not there"):
        Recordings([path], FORM)
    assert Recordings([path], FORM, schema={"obs": "state"}).num_steps == 3
    columns["episode"] = columns.pop("eps_id")
    path = parquet_file(tmp_path / "y.parquet", **columns)
    with pytest.raises(EpisodeError, match=r"has no column 'eps_id'; .*input_read_schema"):
        Recordings([path], FORM, schema={"obs": "state"})


def test_parquet_without_last_observations_leaves_out_what_would_need_them(tmp_path):
    columns = rows(arrays(3))
    del columns["new_obs"]
    ended = Recordings([parquet_file(tmp_path / "x.parquet", **columns)], FORM)
    assert (ended.num_steps, ended.episode(0).is_terminated) == (3, True)
    columns["terminateds"] = np.zeros(3, bool)
    cut = Recordings([parquet_file(tmp_path / "y.parquet", **columns)], FORM)
    assert (cut.num_steps, cut.episode(0).is_done) == (2, False)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"obs": np.array([[1.0], [1.0, 2.0], [0.0]], object)}, "'obs' has lists of"),
        ({"rewards": np.array([1.0, None, 2.0], object)}, "'rewards' has 1 empty rows"),
        ({"eps_id": np.array(["a", None, "b"], object)}, "'eps_id' has 1 empty rows"),
        ({"eps_id": np.array([1, 2, 1])}, "rows of one episode stand apart"),
        ({"eps_id": np.array(["a", "b", "a"])}, "rows of one episode stand apart"),
        ({"terminateds": np.array([True, False, True])}, "rows 0 to 2: 'terminateds' is true befo"),
        ({"truncateds": np.array([False, True, False])}, "'truncateds' is true before its last"),
        ({"actions": np.array(["0", "1", "2"])}, "column 'actions' holds BYTE_ARRAY"),
        ({"obs": np.array([[["a"]]] * 3)}, r"column 'obs.*' holds BYTE_ARRAY; expected numbers"),
    ],
)
def test_rows_of_parquet_that_are_no_episodes_are_told(tmp_path, changed, why):
    path = parquet_file(tmp_path / "x.parquet", **{**rows(arrays(3)), **changed})
    with pytest.raises(EpisodeError, match=why):
        Recordings([path], FORM)


def test_which_steps_ended_an_episode_has_to_be_said(tmp_path):
    columns = rows(arrays(3))
    del columns["terminateds"]
    path = parquet_file(tmp_path / "x.parquet", **columns)
    with pytest.raises(EpisodeError, match="has no column 'terminateds'"):
        Recordings([path], FORM)


def test_a_long_text_that_all_rows_say_is_held_once(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, count = tmp_path / "x.parquet", 2**10
    ids = arrow.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * 2**20])
    zeros = dict.fromkeys(("obs", "actions", "rewards", "terminateds"), np.zeros(count))
    table, limit = arrow.table({"eps_id": ids, **zeros}), 2**22
    parquet.write_table(table, path, dictionary_pagesize_limit=limit, store_schema=False)
    tracemalloc.start()
    before = arrow.total_allocated_bytes()
    (episode,) = files.find_episodes([path], schema={})
    most = arrow.default_memory_pool().max_memory() - before + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**26, "it would be 1 GiB"
    assert len(episode.name) < 1000


def test_damaged_parquet_is_told(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(EpisodeError, match="cannot be read as a recording"):
        Recordings([tmp_path / "x.parquet"], FORM)


@pytest.mark.filterwarnings("ignore::UserWarning")  # it recommends to say more of data sets
def test_a_data_set_of_minari_is_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = [arrays(3, seed=1), arrays(2, seed=2)]
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            observations=e["observations"],
            actions=e["actions"],
            rewards=e["rewards"],
            terminations=np.arange(len(e["rewards"])) == len(e["rewards"]) - 1,
            truncations=np.zeros(len(e["rewards"]), bool),
        )
        for number, e in enumerate(episodes)
    ]
    minari.create_dataset_from_buffers(
        "test/two-v0", buffers, observation_space=BOX, action_space=spaces.Discrete(3)
    )
    found = Recordings(["minari:test/two-v0"], FORM)
    assert found.fingerprint == Recordings([recorded(tmp_path / "r", *episodes)], FORM).fingerprint
    with pytest.raises(EpisodeError, match="data set 'test/none-v0' cannot be read"):
        Recordings(["minari:test/none-v0"], FORM)


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ImportError, match=r"local-trainer\[minari\]"):
        Recordings(["minari:D4RL/x-v0"], FORM)


def test_a_small_parquet_file_that_would_take_gigabytes_is_refused_unread(tmp_path):
    """Equal values next to each other are written once."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, count = tmp_path / "x.parquet", 2**20
    zeros = arrow.array(np.zeros(count))
    table = arrow.table(dict.fromkeys(("eps_id", "obs", "actions", "rewards"), zeros))
    writer = parquet.ParquetWriter(path, table.schema)
    for _ in range(70):
        writer.write_table(table)
    writer.close()
    assert path.stat().st_size < 2**21
    with pytest.raises(EpisodeError, match=r"would take 2\.2 GiB of memory"):
        Recordings([path], FORM)
