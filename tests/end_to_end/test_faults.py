"""Faults around a run, by main.py in real processes: environments, signals, disks, services."""

import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.kills import RUNS, check_resume
from benchmarks.parts.fault_files import reseal
from ppo.errors import CheckpointError
from ppo.run.checkpoint import load, save
from tests.running import (
    ROOT,
    Call,
    command,
    events,
    metrics,
    nothing_left,
    num_rows,
    run_main,
    saved,
    start,
    wait_until,
)

SLOW = pytest.mark.slow
ITERATION = 4 * 32
SMALL = (
    "--num_envs=4",
    "--num_workers=2",
    "--num_steps=32",
    "--num_minibatches=2",
    "--num_iterations=6",
    f"--total_steps={6 * ITERATION}",
    "--eval_episodes=0",
    "--preset=none",
    "--checkpoint_every=2",
)
FAULT = "--env_name=tests.faults:Fault"
STEP = "in the step of environment [0-3]"
RAISED = "environment [0-3] of tests.faults:Fault raised"
INVALID = f"{RAISED} InvalidEnvOutput:"
NO_NUMBER = "not one finite number"
FOUR = r"float32 \(4,\)"
CAUSES = {
    "kill": f"worker [01] was killed by SIGKILL {STEP}",
    "segv": f"worker [01] was killed by SIGSEGV {STEP}",
    "exit": f"worker [01] ended with exit code 3 {STEP}",
    "raise": f"{RAISED} RuntimeError: a wheel came off",
    "nan": rf"{INVALID} its observation {FOUR} \[nan, nan, nan, nan\] is not finite",
    "inf": rf"{INVALID} its observation {FOUR} \[inf, inf, inf, inf\] is not finite",
    "shape": rf"{INVALID} its observation is float32 \(1,\) \[0.0\], not float32 \(4,\)",
    "none": rf"{INVALID} its observation is None, not float32 \(4,\)",
    "float64": rf"{INVALID} its observation is float64 \(4,\) .*, not float32 \(4,\)",
    "reward_nan": f"{INVALID} its reward is nan, {NO_NUMBER}",
    "reward_array": rf"{INVALID} its reward is float64 \(2,\) \[0.0, 0.0\], {NO_NUMBER}",
    "four_tuple": f"{INVALID} its step returned .*, which is not five results",
    "outside": f"{INVALID} its observation .* is outside of Box",
    **dict.fromkeys(
        ("hang", "spin", "stop"), rf"worker [01] hung {STEP}: over 1 s \(--step_timeout\)"
    ),
}
SECONDS_TO_REPLACE = (
    10  # 3 on a machine of one's own; where others compute too, a new process imports for longer
)


def fault(tmp_path: Path, kinds: str, **options: Any) -> list[str]:
    """A small run in which faults happen."""
    about = {"fault": kinds, "marker": str(tmp_path / "marker"), **options}
    return [FAULT, *SMALL, f"--env_kwargs={json.dumps(about)}", f"--run_dir={tmp_path / 'run'}"]


def iterations(folder: Path) -> list[int]:
    return [int(row["iteration"]) for row in metrics(folder)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without faults."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = run_main(FAULT, *SMALL, f"--run_dir={folder}")
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """Another folder with the same in it."""
    return Path(shutil.copytree(whole, tmp_path / "run", symlinks=True))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "kinds",
    ["kill,raise,nan", "segv,inf,none,reward_array", "exit,shape,reward_nan,four_tuple"],
)
def test_a_worker_that_fails_is_replaced(tmp_path: Path, kinds: str) -> None:
    done = run_main(*fault(tmp_path, kinds, step=20))
    assert done.returncode == 0, done.stderr
    assert_replaced(tmp_path, kinds, 0)


@pytest.mark.parametrize("kinds", ["hang,spin,stop"])
def test_a_worker_that_hangs_is_replaced(tmp_path: Path, kinds: str) -> None:
    done = run_main(*fault(tmp_path, kinds), "--step_timeout=1")
    assert done.returncode == 0, done.stderr
    assert_replaced(tmp_path, kinds, 1)


def assert_replaced(tmp_path: Path, kinds: str, timeout: float) -> None:
    """Assert that each fault was noticed within a second and named, and that the run continued."""
    folder = tmp_path / "run"
    assert iterations(folder) == [1, 2, 3, 4, 5, 6]
    lost, replaced = events(folder, "worker_lost"), events(folder, "worker_replaced")
    for number, kind in enumerate(kinds.split(",")):
        matching = [event for event in lost if re.match(CAUSES[kind], event["cause"])]
        assert matching, lost
        event = matching[number if timeout else 0]  # to hang looks alike, however it is done
        happened = float((tmp_path / f"marker.{kind}").read_text())
        assert (
            0 <= datetime.fromisoformat(event["time"]).timestamp() - happened + 0.001 < timeout + 1
        ), kind
    assert len(lost) == len(replaced) == len(kinds.split(","))
    assert max(event["seconds"] for event in replaced) < SECONDS_TO_REPLACE
    assert metrics(folder)[-1]["faults/worker_lost"] == str(len(lost))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("kind", "always"), [("init_raise", True), ("reset_raise", False)])
def test_what_cannot_start_is_not_tried_again(tmp_path: Path, kind: str, always: bool) -> None:
    done = run_main(*fault(tmp_path, kind, always=always))
    assert done.returncode == 1
    assert 'raise RuntimeError("a wheel came off")' in done.stderr
    assert re.match(
        r"error: environment .*raised RuntimeError: a wheel came off", done.stderr.splitlines()[-1]
    )
    assert not (tmp_path / "run").exists()  # the first look has shown it


@pytest.mark.slow
def test_a_worker_that_fails_too_often_ends_the_run(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "kill", always=True))
    assert done.returncode == 1
    said = (
        f"error: worker [01] was lost 4 times within 60 s, most recently because {CAUSES['kill']}"
    )
    said += "; if memory is short, use fewer environments"
    assert re.fullmatch(said, done.stderr.splitlines()[-1])
    assert load(tmp_path / "run" / "checkpoints" / "last.safetensors")["iteration"] == num_rows(
        tmp_path / "run"
    )


@pytest.mark.slow
def test_observations_outside_of_the_space_are_warned_of_once(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "outside", always=True))
    assert done.returncode == 0, done.stderr
    warnings = done.stderr.splitlines()
    assert sorted(
        re.findall(r"warning: environment (\d) has shown an observation outside", done.stderr)
    ) == [*"0123"]
    assert len(warnings) == 4
    outside = 4 * (6 * 32 - 39)
    assert int(metrics(tmp_path / "run")[-1]["faults/observation_outside"]) == outside


@pytest.mark.slow
def test_strict_spaces_make_it_a_fault(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "outside"), "--strict_spaces")
    assert done.returncode == 0, done.stderr
    assert_replaced(tmp_path, "outside", 0)


@pytest.mark.slow
def test_gradient_steps_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, ""), "--model=tests.faulty_models:NanTwice", "--num_epochs=4")
    assert done.returncode == 0, done.stderr
    said = "2 gradient steps of iteration 2 were skipped: their loss or gradient was not finite"
    assert done.stderr == f"warning: {said}\n"
    rows = metrics(tmp_path / "run")
    assert [int(row["skipped_steps"]) for row in rows] == [0, 2, 0, 0, 0, 0]
    assert [int(row["gradient_steps"]) for row in rows] == [8, 6, 8, 8, 8, 8]
    assert [int(row["faults/step_skipped"]) for row in rows] == [0, 2, 2, 2, 2, 2]
    assert [event["message"] for event in events(tmp_path / "run", "step_skipped")] == [said]


@pytest.mark.slow
def test_three_gradient_steps_in_a_row_that_are_not_finite_end_the_run_before_them(
    tmp_path: Path,
) -> None:
    done = run_main(
        *fault(tmp_path, ""), "--model=tests.faulty_models:NanForever", "--num_epochs=4"
    )
    assert done.returncode == 1
    said = "in iteration 2 weights, or 3 gradients in a row, were not finite"
    assert done.stderr.startswith(f"error: {said}"), done.stderr
    assert load(saved(tmp_path / "run")[-1])["iteration"] == 1
    assert iterations(tmp_path / "run") == [1]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_and_is_never_saved(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, ""), "--learning_rate=1e30", "--checkpoint_every=1")
    assert done.returncode == 1
    assert "not finite" in done.stderr.splitlines()[-1]
    assert saved(tmp_path / "run")
    for path in saved(tmp_path / "run"):
        state = load(path)
        tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
        assert len(tensors) > 8
        assert all(tensor.isfinite().all() for tensor in tensors)


@pytest.mark.slow
def test_workers_leave_signals_to_the_trainer(tmp_path: Path) -> None:
    process = start("--env_name=CartPole-v1", "--num_workers=2", f"--run_dir={tmp_path / 'run'}")
    wait_until(lambda: num_rows(tmp_path / "run") > 2, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [
        int(child)
        for child in children
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
    ]
    assert len(workers) == 3  # and the process of evaluations
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGUSR1,
        signal.SIGHUP,
    ) * 5:  # as a scheduler may send them to all processes
        for worker in workers:
            os.kill(worker, number)
        time.sleep(0.02)
    rows = num_rows(tmp_path / "run")
    wait_until(lambda: num_rows(tmp_path / "run") > rows + 2, process)
    assert not events(tmp_path / "run", "worker_lost")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(20) == 143
    assert not events(tmp_path / "run", "worker_lost")


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        ["SIGTERM"],
        ["SIGINT", "SIGINT"],
        pytest.param(["SIGUSR1"], marks=SLOW),
        pytest.param(["SIGHUP"], marks=SLOW),
    ],
)
def test_a_signal_ends_a_run_whose_environment_hangs(tmp_path: Path, numbers: list[str]) -> None:
    process = hanging(tmp_path, "hang")
    sent = time.monotonic()
    for name in numbers:
        process.send_signal(signal.Signals[name])
        time.sleep(0.2)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 5
    codes = {"SIGHUP": 129, "SIGINT": 130}
    assert process.returncode == codes.get(numbers[0], 143), errors
    assert errors.count("\n") == 1
    assert nothing_left(process.pid)
    states = [load(path) for path in saved(tmp_path / "run")]
    assert states
    if len(numbers) == 1:
        assert [states[-1]["iteration"]] == iterations(tmp_path / "run")[-1:] == [3]


def hanging(tmp_path: Path, kind: str) -> subprocess.Popen:
    """A run in whose fourth iteration an environment hangs."""
    process = start(*fault(tmp_path, kind, step=100))
    wait_until((tmp_path / f"marker.{kind}").exists, process)
    time.sleep(0.3)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_nothing_outlives_a_killed_run_whose_environment_hangs(
    tmp_path: Path, kill: Callable
) -> None:
    before = set(os.listdir("/dev/shm"))
    process = hanging(tmp_path, "hang" if kill is os.kill else "stop")
    kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert nothing_left(process.pid)
    assert set(os.listdir("/dev/shm")) <= before
    assert all(load(path) for path in saved(tmp_path / "run"))


@pytest.mark.slow
def test_a_full_disk_is_warned_of_while_training_continues(tmp_path: Path) -> None:
    limit = (
        300_000  # enough for a checkpoint of the beginning, but not for Adam's moments beside it
    )
    done = run_main(
        *fault(tmp_path, ""), "--hidden_size=128",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    folder = tmp_path / "run"
    assert done.returncode == 1
    *warnings, last = done.stderr.splitlines()
    assert len(warnings) >= 2
    for warning in warnings:
        assert re.match(
            r"warning: the checkpoint of step \d+ cannot be written to .*File too large", warning
        )
    assert re.match(
        r"error: the last checkpoint cannot be written to .*File too large.*the newest is .*0+\.s",
        last,
    )
    assert iterations(folder) == [1, 2, 3, 4, 5, 6]
    assert [load(path)["step"] for path in saved(folder)] == [0]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        saved(folder)[0].name,
        "last.safetensors",
    ]
    assert int(metrics(folder)[-1]["faults/checkpoint_failed"]) >= 1


@pytest.mark.slow
def test_a_folder_in_use_is_not_entered(tmp_path: Path) -> None:
    process = hanging(tmp_path, "hang")
    config = (tmp_path / "run" / "config.json").read_bytes()
    for flag in ("run_dir", "resume"):
        done = run_main(FAULT, *SMALL, f"--{flag}={tmp_path / 'run'}")
        assert done.returncode == 4, done.stderr
        assert f"is in use by process {process.pid} on {socket.gethostname()}" in done.stderr
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "run" / "config.json").read_bytes() == config
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("damage", [truncate, flip, empty])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    copy: Path, whole: Path, damage: Callable
) -> None:
    newest = saved(copy)[-1]
    damage(newest)
    done = run_main(FAULT, f"--resume={copy}")
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["warning"]
    assert str(newest) in done.stderr
    assert f"resumes after step {4 * ITERATION}" in done.stdout
    assert [event["message"] in done.stderr for event in events(copy, "checkpoint_damaged")] == [
        True
    ]
    assert metrics(copy) == metrics(whole)
    assert saved(copy)[-1].read_bytes() == saved(whole)[-1].read_bytes()


@pytest.mark.slow
def test_without_a_whole_checkpoint_nothing_is_trained(copy: Path, whole: Path) -> None:
    for path, damage in zip(saved(copy), (truncate, flip, empty), strict=True):
        damage(path)
    done = run_main(FAULT, f"--resume={copy}")
    assert (done.returncode, done.stdout) == (3, "")
    assert re.match(r"error: no checkpoint in .* can be read", done.stderr.splitlines()[-1])
    assert metrics(copy) == metrics(whole)


def renamed_pickle(touched: Path) -> bytes:
    class Touch:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(touched),)

    return pickle.dumps(Touch())


def long_header(touched: Path) -> bytes:
    return struct.pack("<Q", 2**60) + b"{}"


def zip_bomb(touched: Path) -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("data.pkl", "w") as member,
    ):
        for _ in range(256):
            member.write(bytes(2**20))
    return file.getvalue()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("make", [renamed_pickle, long_header, zip_bomb])
def test_a_hostile_file_is_refused(tmp_path: Path, make: Callable[[Path], bytes]) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / f"{ITERATION:012d}.safetensors").write_bytes(
        make(tmp_path / "touched")
    )
    done = run_main(f"--resume={tmp_path / 'run'}")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "touched").exists()
    assert not (tmp_path / "run" / "metrics.csv").exists()


COMMANDS = ["train", *(pytest.param(x, marks=SLOW) for x in ("evaluate", "export"))]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_size": 2**16, "num_layers": 3}, r"model.policy_head.logits.weight is .*65536\)"),
        ({"num_envs": 10**7, "total_steps": 10**10}, r"next.observations .*\(10000000, 4\)"),
    ],
    ids=["weights", "environments"],
)
def test_a_checkpoint_that_asks_for_too_much_memory_is_refused(
    copy: Path, command: str, changed: dict[str, int], said: str
) -> None:
    state = load(saved(copy)[-1])
    state["config"].update(changed)
    save(saved(copy)[-1], state)
    code, errors, most_memory = run_limited(*using(copy, command))
    assert code == 3, errors
    assert re.fullmatch(f"error: .*{said}.*: give another\n", errors)
    assert most_memory < 0.9 * 2**30, "0.4 of which are imports"


def using(run: Path, command: str) -> list[str]:
    """Return the arguments by which a command uses the newest checkpoint of a run."""
    if command == "train":
        return [FAULT, f"--resume={run}"]
    output = [f"{run / 'policy.onnx'}"] if command == "export" else []
    return [command, str(run), *output, FAULT]


MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def run_limited(*arguments: str) -> tuple[int, str, int]:
    """Run main.py; return its exit code, its errors, and the bytes of memory it needed at most."""
    # From a small process: what is started has at least the memory of what starts it.
    measure = [sys.executable, "-c", MEASURE, *command(*arguments)]
    done = subprocess.run(measure, cwd=ROOT, capture_output=True, text=True)
    code, most_memory = map(int, done.stdout.split())
    return code, done.stderr, most_memory * 1024


@pytest.mark.slow
def test_a_checkpoint_of_very_many_tensors_is_refused(copy: Path, call: Call) -> None:
    tensors = {f"x{number}": torch.zeros(0) for number in range(20_000)}
    save_file(tensors, saved(copy)[-1], {"state": "{}"})
    code, _, errors = call("evaluate", str(saved(copy)[-1]), FAULT)
    assert code == 3
    assert re.fullmatch(r"error: cannot read .*: it has 20000 tensors; give another\n", errors)
    done = run_main(FAULT, f"--resume={copy}")
    assert done.returncode == 0
    assert re.fullmatch(r"warning: .*it has 20000 tensors.*the one before it.*\n", done.stderr)


MALFORMED = [
    ({"env_name": None}, "--env_name=None"),
    ({"hidden_size": "large"}, "--hidden_size=large"),
    ({"num_layers": [2]}, r"--num_layers=\[2\]"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        *((settings, {}, said) for settings, said in MALFORMED),
        ({}, {"iteration": -7}, "iteration has a number that is negative"),
        ({}, {"step": [1]}, "step is of another type"),
        ({}, {"config": None}, "has no config"),
    ],
    ids=str,
)
def test_malformed_settings_of_a_checkpoint_are_named(
    copy: Path,
    call: Call,
    command: str,
    settings: dict[str, Any],
    values: dict[str, Any],
    said: str,
) -> None:
    reseal(copy, lambda state: {"config": state["config"] | settings, **values})
    code, printed, errors = call(*using(copy, command))
    assert (code, printed) == (3, "")
    assert re.fullmatch(rf"error: .*{saved(copy)[-1]}.*{said}.*[:;] give another\n", errors)


@pytest.mark.slow
def test_a_checkpoint_with_fewer_settings_is_of_an_earlier_version(copy: Path, call: Call) -> None:
    state = load(saved(copy)[-1])
    for name in ("squash_actions", "scale_actions", "learner"):
        del state["config"][name]
    save(saved(copy)[-1], state)
    code, printed, _ = call("evaluate", str(copy), FAULT, "--episodes=1")
    assert (code, printed[: len(str(copy))]) == (0, str(copy))
    done = run_main(FAULT, f"--resume={copy}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_what_is_no_file_is_no_checkpoint(copy: Path, whole: Path) -> None:
    newest = saved(copy)[-1]
    newest.unlink()
    os.mkfifo(newest)
    later = newest.with_name(f"{7 * ITERATION:012d}.safetensors")
    later.mkdir()
    done = run_main("evaluate", str(copy), FAULT, "--episodes=1")
    assert done.returncode == 0, done.stderr
    assert [line.partition(": it is no")[0] for line in done.stderr.splitlines()] == [
        f"warning: cannot read checkpoint {path}" for path in (later, newest)
    ]
    for path in (newest, Path("/dev/zero")):
        done = run_main("evaluate", str(path), FAULT, "--episodes=1")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {path}: there is no such run or checkpoint")
    with pytest.raises(CheckpointError, match=f"cannot read checkpoint {newest}: .*not a file"):
        load(newest)
    later.rmdir()
    done = run_main(FAULT, f"--resume={copy}")
    assert done.returncode == 0, done.stderr
    assert str(newest) in done.stderr
    assert saved(copy)[-1].read_bytes() == saved(whole)[-1].read_bytes()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("damage", ["doubled", "foreign", "text"])
def test_a_damaged_table_of_metrics_is_set_aside(
    copy: Path, whole: Path, call: Call, damage: str
) -> None:
    path = copy / "metrics.csv"
    header, *rows = path.read_text().splitlines(keepends=True)
    kept = {"doubled": [1, 2, 3, 4, 5, 6], "foreign": [], "text": [1, 2, 3, 5, 6]}[damage]
    if damage == "doubled":
        rows.insert(2, header)
    elif damage == "foreign":
        header = "a,b,c\n"
    else:
        rows[3] = rows[3].replace(",", ",none", 1)
    path.write_text(header + "".join(rows))
    damaged = path.read_bytes()
    for reader in ("plot", "report"):
        code, printed, errors = call(reader, str(copy), f"--output={copy / 'new'}.png")
        assert (code, printed) == (2, "")
        assert re.fullmatch(rf"error: .*{path}.*: give a run's folder\n", errors)
    more = ("--num_iterations=7", f"--total_steps={7 * ITERATION}")
    done = run_main(FAULT, f"--resume={copy}", *more)
    assert done.returncode == 0, done.stderr
    (event,) = events(copy, "metrics_damaged")
    assert done.stderr == f"warning: {event['message']}\n"
    (aside,) = copy.glob("metrics.csv.damaged-*")
    assert aside.read_bytes() == damaged
    assert str(aside) in event["message"]
    assert iterations(copy) == [*kept, 7]
    known = {row["iteration"]: row for row in metrics(whole)}
    assert metrics(copy)[:-1] == [known[str(iteration)] for iteration in kept]


@pytest.mark.slow
def test_a_folder_that_does_not_exist_cannot_be_resumed(tmp_path: Path) -> None:
    done = run_main(f"--resume={tmp_path / 'nowhere'}")
    assert done.returncode == 2
    assert (
        done.stderr
        == f"error: --resume={tmp_path / 'nowhere'}: there is no such folder; give that of a run\n"
    )
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            [],
            f"would import tests.faults:Fault: if you trust it, repeat {FAULT}",
        ),
        (["--env_name=CartPole-v1"], "would import tests.faults:Fault"),
        ([FAULT, "--hidden_size=32"], "hidden_size=64, not 32"),
        ([FAULT, "--num_envs=2"], "num_envs=4, not 2"),
    ],
)
def test_a_run_is_not_resumed_as_another(whole: Path, flags: list[str], said: str) -> None:
    before = {
        path: path.read_bytes()
        for path in whole.rglob("*")
        if path.is_file() and path.name != "lock"
    }
    done = run_main(f"--resume={whole}", *flags)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert before == {
        path: path.read_bytes()
        for path in whole.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize(
    ("run", "other"),
    [
        (
            "--env_name=CartPole-v1 --num_workers=2 --total_steps=20480 --checkpoint_every=3",
            ["--env_name=Acrobot-v1", "env_name=CartPole-v1, not Acrobot-v1"],
        ),
        pytest.param(
            "--env_name=PongNoFrameskip-v4 --num_envs=2 --num_steps=16 --num_minibatches=1 "
            "--total_steps=256 --checkpoint_every=2 --num_workers=2 --model=cnn_small "
            "--hidden_size=64",
            [
                "--env_name=BreakoutNoFrameskip-v4",
                "env_name=PongNoFrameskip-v4, not BreakoutNoFrameskip-v4",
            ],
            marks=SLOW,
        ),
    ],
)
def test_a_killed_run_resumes_as_if_it_never_stopped(
    tmp_path: Path, run: str, other: list[str]
) -> None:
    arguments = [*run.split(), "--preset=none", "--eval_episodes=0"]
    done = run_main(*arguments, f"--run_dir={tmp_path / 'whole'}")
    assert done.returncode == 0, done.stderr
    cut = tmp_path / "cut"
    process = start(*arguments, f"--run_dir={cut}")
    wait_until(lambda: num_rows(cut) >= 4, process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert nothing_left(process.pid)
    refused = run_main(f"--resume={cut}", other[0])
    assert refused.returncode == 3
    assert other[1] in refused.stderr
    done = run_main(f"--resume={cut}")
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 < events(cut, "resumed")[0]["step"] < int(metrics(cut)[-1]["step"])
    assert metrics(cut) == metrics(tmp_path / "whole")
    assert [path.name for path in saved(cut)] == [path.name for path in saved(tmp_path / "whole")]
    assert saved(cut)[-1].read_bytes() == saved(tmp_path / "whole")[-1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("env_name", RUNS)
def test_runs_killed_at_any_moment_resume_as_if_they_never_stopped(env_name: str) -> None:
    assert check_resume(env_name, runs=6, side_by_side=2, minutes=60)["as_wanted"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("key", ["5ec2e7" * 6 + "abcd", ""])
def test_training_does_not_need_weights_and_biases(tmp_path: Path, key: str) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    secret = {"WANDB_API_KEY": key} if key else {}
    about = {"WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path), **secret}
    done = run_main(*fault(tmp_path, ""), "--logger=wandb", env={**outside, **about})
    assert done.returncode == 0, done.stderr
    assert "warning: --logger=wandb: " in done.stderr
    assert iterations(tmp_path / "run") == [1, 2, 3, 4, 5, 6]
    if key:
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        assert not [path for path in files if key.encode() in path.read_bytes()]
        assert key not in done.stdout + done.stderr
