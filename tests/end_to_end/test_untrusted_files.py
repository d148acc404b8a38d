"""Runs whose files come from a stranger: damaged, hostile, huge, or no files at all."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg  # noqa: F401, which videos need
import pytest

from ppo.system.files import open_regular, parse_json, read_json_lines
from tests.running import ROOT, Call, command, metrics

DEEP = "[" * 100_000 + "]" * 100_000
EVIL = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
"""

# Installed packages, modules of Python, and two that are not there, which libraries try to import.
TRAPS = """
    numpy gymnasium torch ppo random json yaml matplotlib wandb sitecustomize usercustomize cv2 rich
    safetensors socket struct copy typing contextlib pickle optuna onnxscript ale_py jax cupy
"""
CONSOLE_SCRIPT = "import sys\nfrom ppo.__main__ import main\nsys.exit(main())\n"
MINE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
import neighbour

class MyEnv(CartPoleEnv):
    def step(self, action):
        import late_neighbour
        return super().step(action)
"""
OWN = """
from ppo import Callback, Learner
import neighbour

class MyCallback(Callback):
    pass

class MyLearner(Learner):
    pass
"""
SMALL = "--preset=none --num_envs=2 --num_steps=16 --num_workers=2 --total_steps=64"
SMALL = [*SMALL.split(), "--eval_episodes=1"]


def damage(path: Path, content: str | bytes | Callable[[Path], Any]) -> None:
    """Put a stranger's file in place of one of a run. content: of the file, or makes it."""
    path.unlink(missing_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)


def with_value(**values: Any) -> Callable[[Path, str], None]:
    """Return what replaces values in a JSON file of a good run, or in the last line of a file of
    JSON lines."""

    def change(path: Path, before: str) -> None:
        content = json.loads(before.splitlines()[-1] if path.suffix == ".jsonl" else before)
        path.write_text(json.dumps({**content, **values}) + "\n")

    return change


def spoil(folder: Path, name: str, content: Any) -> Path:
    """Damage a file of a run. content: as damage takes it, or what with_value returned."""
    path = folder / name
    if getattr(content, "__name__", "") == "change":
        content(path, path.read_text())
    else:
        damage(path, content)
    return path


# In each, a good run is spoiled by one file; the command ends with this code and words.
REFUSED = {
    "report": [
        ("config.json", with_value(env_name=["x"]), 2, "env_name is not of its type"),
        ("config.json", with_value(eval_max_steps="9"), 2, "eval_max_steps is not of its type"),
        ("config.json", with_value(env_name="\x1b[2J"), 2, "the env_name '\\x1b[2J'"),
        ("config.json", DEEP, 2, "it is nested too deep"),
        ("config.json", b"\xff", 2, "config.json cannot be used"),
        ("metrics.csv", Path.mkdir, 2, "metrics.csv is not a regular file"),
        ("metrics.csv", sparse, 2, "metrics.csv has more than 1,073,741,824 bytes"),
        (
            "metrics.csv",
            lambda path: path.symlink_to("/dev/zero"),
            2,
            "metrics.csv is not a regular",
        ),
        ("report.html", Path.mkdir, 2, "report.html cannot be written to (it is a folder)"),
    ],
    "plot --output=OUTPUT.png": [
        ("config.json", '{"env_name": "E", "seed": ' + "9" * 5000 + "}", 2, "config.json"),
        ("metrics.csv", "iteration,step,seconds,episode_return_mean\n1,1,nan,1\n", 2, "line 2 of"),
        ("metrics.csv", "iteration,step,seconds,episode_return_mean\n1,-1,1,1\n", 2, "line 2 of"),
        ("metrics.csv", "iteration,step,seconds,episode_return_mean\n1,1,1e99,1\n", 2, "line 2 "),
    ],
    "evaluate": [
        ("evaluation.json", DEEP, 2, "evaluation.json cannot be added to (it is nested too deep)"),
        ("evaluation.json", "[NaN]", 2, "evaluation.json cannot be added to (it has a number"),
        ("evaluation.json", sparse, 2, "evaluation.json cannot be added to"),
        ("evaluation.json", Path.mkdir, 2, "evaluation.json cannot be written to (it is a folder)"),
    ],
    "--resume": [
        ("lock", Path.mkdir, 2, "lock is not a regular file"),
        ("lock", lambda path: path.symlink_to("/etc/hostname"), 2, "lock is not a regular file"),
        (
            "events.jsonl",
            lambda path: path.symlink_to("x"),
            2,
            "events.jsonl is not a regular file",
        ),
        ("summary.json", Path.mkdir, 2, "summary.json is a folder"),
        ("checkpoints/best.safetensors", Path.mkdir, 2, "best.safetensors is a folder"),
        ("checkpoints/last.safetensors", Path.mkdir, 2, "last.safetensors is a folder"),
        ("set-1.json", '{"env_name": "evil.py:E"}', 3, "set-1.json cannot be used (ppo set cannot"),
        ("set-21.json", '{"num_envs": 16}', 3, "set-21.json cannot be used (ppo set cannot change"),
        ("set.json", '{"nonsense": 1}', 3, "set.json cannot be used (ppo set cannot change nonsen"),
        ("set.json", '{"num_epochs": 0}', 3, "set.json cannot be used (--num_epochs=0: expected"),
        ("set.json", '{"num_epochs": true}', 3, "(--num_epochs=True: expected integer"),
        ("set.json", '{"num_epochs": [1]}', 3, "(--num_epochs=[1]: expected integer"),
        ("set.json", "[]", 3, "set.json cannot be used (it is no JSON object): move it away"),
        ("set.json", DEEP, 3, "set.json cannot be used (it is nested too deep): move it away"),
        ("set.json", Path.mkdir, 3, "set.json is not a regular file"),
    ],
}


@pytest.mark.parametrize(
    ("line", "name", "content", "code", "words"),
    [(line, *case) for line, cases in REFUSED.items() for case in cases],
)
def test_a_strangers_file_ends_a_command_with_one_sentence_that_names_it(
    line: str,
    name: str,
    content: Any,
    code: int,
    words: str,
    cartpole_copy: Path,
    tmp_path: Path,
    call: Call,
) -> None:
    path = spoil(cartpole_copy, name, content)
    verb, *flags = line.replace("OUTPUT", str(tmp_path / "picture")).split()
    arguments = [verb, str(cartpole_copy), *flags]
    if verb == "--resume":
        arguments = [f"--resume={cartpole_copy}", "--num_iterations=21", "--total_steps=9999"]
    found, _, errors = call(*arguments)
    assert (found, errors.count("\n")) == (code, 1), errors
    assert errors.startswith("error: ")
    assert words in errors
    assert name in errors
    assert os.path.lexists(path)


RESULT = {"mean": 1.0, "returns": [1.0, 1.0], "episodes": 2}
LEFT_OUT = [
    ("summary.json", "[]"),
    ("summary.json", "1"),
    ("summary.json", DEEP),
    ("summary.json", with_value(steps="x")),
    ("summary.json", with_value(evaluation={**RESULT, "returns": "x"})),
    ("summary.json", with_value(evaluation={**RESULT, "returns": [None]})),
    ("summary.json", Path.mkdir),
    ("evaluation.json", "{}"),
    ("evaluation.json", "[1]"),
    ("evaluation.json", json.dumps([{**RESULT, "env": {"x": "y"}}])),
    ("evaluation.json", json.dumps([{**RESULT, "returns": [1e308]}])),
    ("evaluation.json", json.dumps([{**RESULT, "step": "1"}])),
    ("evaluation.json", json.dumps([{**RESULT, "unfinished": [1]}])),
]


@pytest.mark.parametrize(("name", "content"), LEFT_OUT)
def test_what_a_report_can_do_without_is_left_out_with_a_warning(
    name: str, content: Any, cartpole_copy: Path, call: Call
) -> None:
    path = spoil(cartpole_copy, name, content)
    for line in (["report", str(cartpole_copy)], ["runs", f"--folder={cartpole_copy.parent}"]):
        code, out, errors = call(*line)
        assert code == 0
        assert set(errors.splitlines()) == {errors.splitlines()[0]}
        assert errors.startswith(f"warning: {path} cannot be used (")
        assert errors.splitlines()[0].endswith("; it is left out")
    assert cartpole_copy.name in out


NUMBERS = [
    ("seconds", "0"),
    ("seconds", "1e10"),
    ("episode_return_mean", "1e308"),
    ("episode_return_mean", "-1e299"),
    ("episode_return_mean", "0"),
    ("episode_return_mean", "nan"),
    ("approx_kl", "inf"),
    ("steps_per_second", "1e400"),
    ("step", str(2**53 - 1)),
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("column", "value"), NUMBERS)
def test_any_number_that_a_metric_may_have_is_shown(
    column: str, value: str, cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    path = cartpole_copy / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    column_number = head.split(",").index(column)
    for number, row in enumerate(rows):
        cells = row.split(",")
        cells[column_number] = value
        rows[number] = ",".join(cells)
    path.write_text("\n".join([head, *rows]) + "\n")
    other = shutil.copytree(cartpole_copy, tmp_path / "other", symlinks=True)
    for line in (
        ["report", str(cartpole_copy)],
        ["report", str(cartpole_copy), str(other), f"--output={tmp_path / 'page.html'}"],
        ["runs", f"--folder={tmp_path}"],
    ):
        code, out, errors = call(*line)
        assert (code, errors) == (0, ""), line
    assert "run " in out
    if column != "steps_per_second":
        picture = f"--output={tmp_path / 'picture.png'}"
        assert call("plot", str(cartpole_copy), str(other), picture)[::2] == (0, "")


def test_runs_lists_the_good_ones_and_names_the_damaged_ones(
    cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    for odd in ("[/red] \x1b[2J", os.fsdecode(b"\xff")):
        shutil.copytree(cartpole_copy, tmp_path / odd, symlinks=True)
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "metrics.csv").symlink_to("nothing")
    for name, file, content in [
        ("list", "config.json", "[]"),
        ("folder", "metrics.csv", Path.mkdir),
    ]:
        spoil(shutil.copytree(cartpole_copy, tmp_path / name, symlinks=True), file, content)
    other = tmp_path / "no-run"
    other.mkdir()
    (other / "metrics.csv").write_text("mine\n")
    code, out, errors = call("runs", f"--folder={tmp_path}")
    assert code == 0
    assert out.count("CartPole-v1") == 3
    assert "[/red] \\x1b[2J" in out
    assert re.findall(r"cannot read the run in (\S+) ", "\n".join(sorted(errors.splitlines()))) == [
        f"{tmp_path / name}" for name in ("folder", "list")
    ]


def test_a_name_is_drawn_as_it_is(cartpole_copy: Path, tmp_path: Path, call: Call) -> None:
    names = ["$x^$", "_hidden", "\N{CJK UNIFIED IDEOGRAPH-65E5}"]
    runs = [shutil.copytree(cartpole_copy, tmp_path / "runs" / name) for name in names]
    for number, run in enumerate(runs):  # settings that differ make a curve for each
        spoil(run, "config.json", with_value(gamma=0.9 + number / 100))
    picture = tmp_path / "picture.svg"
    code, _, errors = call("plot", *(str(run) for run in runs), f"--output={picture}")
    assert (code, errors) == (0, "")
    drawn = picture.read_text()
    for name in ["$x^$", " _hidden", names[2]]:
        assert f"<!-- {name}" in drawn or f"/{name} -->" in drawn, name
    page = tmp_path / "page.html"
    assert call("report", *(str(run) for run in runs), f"--output={page}")[::2] == (0, "")
    assert "$x^$" in page.read_text()


def test_metrics_that_are_no_file_are_set_aside(cartpole_copy: Path, call: Call) -> None:
    spoil(cartpole_copy, "metrics.csv", Path.mkdir)
    (cartpole_copy / "metrics.csv" / "mine").touch()
    code, _, errors = call(f"--resume={cartpole_copy}", "--total_steps=5376")
    assert code == 0
    assert "metrics.csv cannot be read" in errors
    assert [row["iteration"] for row in metrics(cartpole_copy)] == ["21"]
    assert len(list(cartpole_copy.glob("metrics.csv.damaged-*/mine"))) == 1


def test_what_a_link_in_the_folder_leads_to_is_not_written_to(
    cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("lock", "events.jsonl"):
        run = shutil.copytree(cartpole_copy, tmp_path / name, symlinks=True)
        damage(run / name, lambda path: path.symlink_to(mine))
        assert call(f"--resume={run}", "--total_steps=5376")[0] == 2
        assert mine.read_text() == "mine"


def test_settings_that_cannot_be_read_are_left_out_with_a_warning(
    cartpole_copy: Path, call: Call
) -> None:
    for content in ("[]", '{"verbose": "x"}'):
        spoil(cartpole_copy, "config.json", content)
        code, _, errors = call(f"--resume={cartpole_copy}", "--report=False")
        assert code == 0
        assert errors.count("config.json") == 1
        assert "left out" in errors


WAITING = {  # commands that would wait for a pipe, by the file that is one
    "config.json": ["report RUN", "--resume=RUN --total_steps=5120"],
    "metrics.csv": ["plot RUN", "--resume=RUN --total_steps=5376"],
    "summary.json": ["report RUN"],
    "evaluation.json": ["evaluate RUN --episodes=1"],
    "events.jsonl": ["report RUN"],
    "lock": ["set RUN num_epochs=2", "runs --folder=RUN", "--resume=RUN --total_steps=5376"],
    "set.json": ["--resume=RUN --total_steps=5376"],
    "videos/1280.mp4": ["report RUN"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAITING)
def test_no_command_waits_for_a_pipe(name: str, cartpole_run: Path, tmp_path: Path) -> None:
    processes = []
    for number, line in enumerate(WAITING[name]):
        run = shutil.copytree(cartpole_run, tmp_path / str(number), symlinks=True)
        (run / "videos").mkdir(exist_ok=True)
        damage(run / name, os.mkfifo)
        processes.append(
            subprocess.Popen(
                command(*line.replace("RUN", str(run)).split()),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode in (0, 2, 3), errors
            if process.returncode:
                assert errors.startswith("error: ")
                assert errors.count("\n") == 1
                assert name in errors or "is not running" in errors
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize(
    "text", [DEEP, "[" * 60 + "]" * 60, "NaN", "1e999", "9" * 400, '"\\ud800"', "{", "\ufeff", ""]
)
def test_json_that_could_do_harm_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    with pytest.raises(ValueError, match=r"."):
        parse_json(f'{{"a": [{text}, 1]}}')


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n' + DEEP.encode() + b'\n\xff\n[]\n{"a": NaN}\n{"a": 2}\n{"a"')
    assert [*read_json_lines(path)] == [{"a": 1}, {"a": 2}]
    assert [*read_json_lines(tmp_path)] == []
    with pytest.raises(OSError, match="has more than 3 bytes"):
        open_regular(path, 3)


def set_traps(folder: Path) -> None:
    """Write modules that say, when they are imported, that they were, and an extension."""
    for name in (*TRAPS.split(), "extension"):
        (folder / f"{name}.py").write_text(EVIL)
    about = folder / "extension-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: extension\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ppo.extras]\nx = extension:EXTENSION\n")


@pytest.fixture
def ppo(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run the console script, or another program, in a folder."""
    script = tmp_path / "bin" / "ppo"
    script.parent.mkdir()
    script.write_text(CONSOLE_SCRIPT)

    def run(
        folder: Path, *arguments: str, program: tuple[str, ...] = (str(script),)
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
        )

    return run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder full of traps, with modules of one's own."""
    folder = tmp_path / "place"
    folder.mkdir()
    set_traps(folder)
    (folder / "my_env.py").write_text(MINE)
    (folder / "my_own.py").write_text(OWN)
    (folder / "neighbour.py").write_text("")
    (folder / "late_neighbour.py").write_text("")
    return folder


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "lines",
    [
        [["CartPole-v1", *SMALL, "--run_dir=RUN"], ["runs", "--folder=."]],
        [["check", "CartPole-v1"]],
        [
            ["CartPole-v1", *SMALL, "--run_dir=RUN"],
            ["--resume=RUN", "--total_steps=96"],
            ["evaluate", "RUN", "--episodes=1"],
            ["plot", "RUN", "--output=p.png"],
            ["export", "RUN", "p.onnx"],
            ["evaluate", "RUN", "--episodes=1", "--video=p.mp4"],
        ],
        [["CartPole-v1", *SMALL, "--seeds=2", "--run_dir=RUN"]],
        [["tune", "CartPole-v1", *SMALL, "--trials=1", "--run_dir=RUN"]],
    ],
)
def test_nothing_is_imported_from_the_working_folder(
    lines: list[list[str]], place: Path, ppo: Callable[..., subprocess.CompletedProcess]
) -> None:
    for line in lines:
        done = ppo(place, *line)
        assert (done.returncode, done.stderr) == (0, ""), line
        assert not (place / "imported").exists(), line


@pytest.mark.slow
@pytest.mark.parametrize("program", [(str(ROOT / "main.py"),), ("-m", "ppo")])
def test_other_ways_to_start_import_nothing_from_it_either(
    program: tuple[str, ...], place: Path, ppo: Callable[..., subprocess.CompletedProcess]
) -> None:
    for name in ("ppo", "typing", "contextlib"):  # python -m itself imports these
        if program[0] == "-m":
            (place / f"{name}.py").unlink()
    done = ppo(place, "CartPole-v1", *SMALL, "--run_dir=run", program=program)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (place / "imported").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["my_env:MyEnv", "my_env.py:MyEnv"])
def test_what_a_flag_names_is_imported_from_a_folder_of_traps_with_its_neighbours(
    name: str, place: Path, ppo: Callable[..., subprocess.CompletedProcess]
) -> None:
    (place / "jax.py").unlink()  # are imported if they are nowhere else: the folder is trusted now
    (place / "cupy.py").unlink()
    own = ["--callback=my_own:MyCallback", "--learner=my_own:MyLearner"]
    for line in (
        [name, *SMALL, *own, "--run_dir=run"],
        ["evaluate", "run", f"--env_name={name}", "--episodes=1"],
    ):
        done = ppo(place, *line)
        assert (done.returncode, done.stderr) == (0, ""), line
        assert not (place / "imported").exists(), line


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--env_name=random:MyEnv", "--learner=random:MyLearner"])
def test_an_installed_module_hides_one_of_the_working_folder_and_is_named(
    flag: str, place: Path, ppo: Callable[..., subprocess.CompletedProcess]
) -> None:
    done = ppo(place, *SMALL, flag)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"hides {place}/random.py, so rename that" in done.stderr
    assert not (place / "imported").exists()


@pytest.mark.slow
def test_nothing_is_imported_from_a_runs_folder_even_if_a_flag_names_it(
    cartpole_copy: Path, ppo: Callable[..., subprocess.CompletedProcess]
) -> None:
    set_traps(cartpole_copy)
    (cartpole_copy / "my_env.py").write_text(EVIL)
    for line in (
        ["report", "."],
        ["evaluate", ".", "--episodes=1"],
    ):
        done = ppo(cartpole_copy, *line)
        assert (done.returncode, done.stderr) == (0, ""), line
    for folder in (cartpole_copy, cartpole_copy / "checkpoints"):
        (folder / "my_env.py").write_text(EVIL)
        for name in ("my_env:MyEnv", "my_env.py:MyEnv"):
            done = ppo(folder, "evaluate", str(cartpole_copy), f"--env_name={name}")
            assert done.returncode == 2
            assert f"nothing is imported from {cartpole_copy}, which is a run's" in done.stderr
        assert not (folder / "imported").exists()
