"""What a shell offers behind Tab, asked of bash itself."""

import shlex
import shutil
import subprocess
import sys

import pytest

from tests.command_line import run

BASH = shutil.which("bash")
ASK = """
source ./script
offer() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    "$(complete -p local-trainer | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
    printf '%s\\n' "${COMPREPLY[@]}"
}
"""


@pytest.fixture
def offered(tmp_path):
    """Asks bash what it offers behind these words, of which the last is being typed."""
    pytest.importorskip("shtab")
    if BASH is None:
        pytest.skip("bash is not installed")
    (tmp_path / "script").write_text(run("completion", "bash", folder=tmp_path).stdout)
    (tmp_path / "runs" / "first").mkdir(parents=True)

    def ask(*words):
        done = subprocess.run(
            [BASH, "-c", f"{ASK}offer {shlex.join(['local-trainer', *words])}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], {"train", "track"}),
        (["train", "--stop-"], {"--stop-return", "--stop-time-s"}),
        (["train", "--algo", "S"], {"SAC"}),
        (["train", "--recipe", "Cart"], {"CartPole-v1"}),
        (["train", "--recipe", "no"], {"none"}),
        (["train", "--env", "Pend"], {"Pendulum-v1"}),
        (["train", "--callbacks", "Early"], {"EarlyStopping"}),
        (["train", "--config", "scr"], {"script"}),
        (["recipes", "Half"], {"HalfCheetah-v5"}),
        (["tune", "TD"], {"TD3"}),
        (["resume", ""], {"runs", "runs/first"}),
        (["evaluate", "runs/f"], {"runs/first"}),
        (["report", "runs/first", "runs/f"], {"runs/first"}),
    ],
)
def test_the_shell_completes_a_word(words, expected, offered):
    found = offered(*words)
    assert expected <= set(found)
    assert all(word.startswith(words[-1]) for word in found)


@pytest.mark.parametrize("words", [["tune", "PPO", "--name", "Half"], ["tune-resume", "runs", "P"]])
def test_names_are_not_offered_where_another_word_of_that_name_stands(words, offered):
    assert offered(*words) == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_with_commands_and_names(shell, tmp_path):
    pytest.importorskip("shtab")
    script = run("completion", shell, folder=tmp_path).stdout
    for word in ("tune-resume", "--stop-return", "TD3", "HalfCheetah-v5"):
        assert word in script


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    told = run("completion", "bash", folder=tmp_path, code=1).stderr
    assert 'pip install "local-trainer[completion]"' in told
