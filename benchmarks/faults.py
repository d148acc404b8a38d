"""What an environment, a run's files and signals can do: python -m benchmarks.faults [--only=NAME]
[--sample=N]

An environment misbehaves in one call, in one way, in one situation; or one file of a finished run
is replaced in one way and a command used on the run, or its newest checkpoint is changed by someone
who seals it again; or signals follow each other at one moment, or one comes while a callback, a
logger or the console blocks.
Every combination is a command of its own, in real processes. A cell of a table is what the command
did: "named" (it ended with an error that names the environment, the worker, the file or what was
done, and after a signal with its exit code), "survived" (a warning, and it did all it was asked
for), "unharmed" (the same without a word), "as Ctrl-C" (KeyboardInterrupt in the trainer's own
process cannot be told from that), "its own" (with --num_workers=0 a crash, a hang or the closing of
files is the trainer's own: not tried); or DEFECT with the reason: no end within 60 seconds, an end
without a word, a traceback, without all iterations or without a checkpoint, iterations lost without
a word, another exit code, a process left behind. Timeouts are 1.5 s for a step and 3 s for a reset.
--sample: only so many of the commands, drawn at random. Writes results/reliability/faults.json and
faults.md; with --only, other situations stay as they are there.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.parts import fault_files
from benchmarks.parts.fault_files import LIMIT, Cell

NAME = "tests.misbehaving:Misbehaving"
IMPORTED = "tests.misbehaving_import:Late"
MARK = "PPO_FAULTS"  # in the environment of all processes of a command
ITERATIONS = 4
DEATHS = ("raise", "exit", "interrupt", "segv", "hang", "hang_in_c", "stop")
UNKNOWABLE = ("segv", "hang", "hang_in_c", "stop", "close_descriptors")  # in the trainer itself
NUISANCES = ("flood", "close_descriptors", "chdir", "reset_signals", "start_process")
WRONG = ("nan", "shape", "none", "float64", "list", "reward", "reward_nan")
TRAIN = (
    "--preset=none --num_envs=2 --num_steps=16 --num_minibatches=1 --num_epochs=1 --report=False"
    f" --total_steps={ITERATIONS * 32} --eval_episodes=0"
).split()
TIMEOUTS = ["--step_timeout=1.5", "--reset_timeout=3"]
CALLS = ("constructor", "reset", "step", "close")
# By situation: the process that misbehaves, flags, and after how many calls it begins.
TRAINING = {
    "first look": ("isolated", ["--num_workers=1"], dict.fromkeys(CALLS, 0)),
    "worker": ("worker", ["--num_workers=1"], {**dict.fromkeys(CALLS, 0), "reset": 3, "step": 40}),
    "trainer": (
        "trainer",
        ["--num_workers=0"],
        {**dict.fromkeys(CALLS, 0), "reset": 3, "step": 40},
    ),
    "evaluation": (
        "isolated",
        ["--num_workers=1", "--eval_every=2", "--eval_episodes=2"],
        dict.fromkeys(CALLS, 1),
    ),
    "video": (
        "isolated",
        ["--num_workers=1", "--video_every=2"],
        {**dict.fromkeys(CALLS, 1), "render": 0},
    ),
    "ranks": ("worker", ["--num_workers=1"], {"step": 40}),
}
COMMANDS = {
    "check": dict.fromkeys(CALLS, 0),
    "evaluate": {**dict.fromkeys(CALLS, 1), "reset": 1, "step": 1},
    "film": {**dict.fromkeys(CALLS, 1), "render": 3},
}


def cells() -> list[Cell]:
    """List the combinations: situation, call and way."""
    found = []
    for situation in (*TRAINING, *COMMANDS):
        calls = TRAINING[situation][2] if situation in TRAINING else COMMANDS[situation]
        for call in calls:
            ways = [*DEATHS, *NUISANCES]
            if call in ("reset", "step"):
                ways += WRONG[:5] if call == "reset" else WRONG
            found += [(situation, call, way) for way in ways]
    found += [("import", place, way) for place in ("training", "check") for way in DEATHS]
    return found


def run(cell: Cell, good: Path, cartpole: Path) -> str:
    """Run the command of a cell; return what it did. good: a run of Misbehaving; cartpole: another
    run, whose files may be replaced."""
    situation, call, way = cell
    if situation == "trainer" and way in UNKNOWABLE:
        return "its own"
    mark = uuid.uuid4().hex
    if situation in (*fault_files.FILES, "sealed", "signals", "blocked"):
        try:
            if situation == "signals":
                verdict = fault_files.judge_signals(cell, {MARK: mark})
            elif situation == "blocked":
                verdict = fault_files.judge_blocked(cell, {MARK: mark})
            else:
                verdict = fault_files.judge_file(cell, cartpole, {MARK: mark})
        except subprocess.TimeoutExpired:
            verdict = f"DEFECT: no end within {LIMIT} s"
        left = end_all(mark)
        return f"DEFECT: {left} processes left behind" if left else verdict
    about = {"where": call, "what": way}
    environment = {**os.environ, MARK: mark}
    with tempfile.TemporaryDirectory() as folder:
        run_folder = Path(folder, "run")
        begin = [sys.executable, "main.py"]
        if situation in TRAINING:
            within, flags, after = TRAINING[situation]
            about |= {"within": within, "after": after[call]}
            if situation == "ranks":
                begin = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
                begin += ["--nproc_per_node=2", "--max-restarts=0", "main.py"]
            arguments = [*TRAIN, *TIMEOUTS, *flags, f"--env_name={NAME}"]
            arguments.append(f"--run_dir={os.path.relpath(run_folder, harness.ROOT)}")
            arguments.append(f"--env_kwargs={json.dumps(about)}")
        elif situation == "import":
            environment["MISBEHAVE_IMPORT"] = way
            arguments = [*TRAIN, *TIMEOUTS, f"--env_name={IMPORTED}", f"--run_dir={run_folder}"]
            if call == "check":
                arguments = ["check", f"--env_name={IMPORTED}", *TIMEOUTS]
        elif situation == "check":
            about |= {"within": "isolated", "after": COMMANDS[situation][call]}
            arguments = ["check", f"--env_name={NAME}", f"--env_kwargs={json.dumps(about)}"]
            arguments += TIMEOUTS
        else:
            about |= {"within": "isolated", "after": COMMANDS[situation][call]}
            environment["MISBEHAVE"] = json.dumps(about)
            arguments = ["evaluate", str(good), f"--env_name={NAME}", *TIMEOUTS, "--episodes=3"]
            output = f"--output={folder}/evaluation.json"
            arguments.append(output if situation == "evaluate" else f"--video={folder}/video.mp4")
        try:
            done = subprocess.run(
                [*begin, *arguments],
                cwd=harness.ROOT,
                env=environment,
                capture_output=True,
                errors="replace",
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            end_all(mark)
            return f"DEFECT: no end within {LIMIT} s"
        if left := end_all(mark):
            return f"DEFECT: {left} processes left behind"
        return judge(done, run_folder if "--run_dir" in " ".join(arguments) else None, way)


def judge(done: subprocess.CompletedProcess[str], folder: Path | None, way: str) -> str:
    """Say what a command did."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if done.returncode == 130 and way == "interrupt":
        return "as Ctrl-C"
    if done.returncode not in (0, 1, 2):
        return f"DEFECT: exit code {done.returncode}"
    if done.returncode:
        if not errors:
            return "DEFECT: ended without a word"
        names = ("environment", "worker", "Misbehaving", "misbehaving")
        if not any(name in errors[-1] for name in names):
            return f"DEFECT: {errors[-1][:100]}"
        began = folder and (folder / "metrics.csv").exists()
        if began and folder and not list((folder / "checkpoints").glob("0*")):
            return "DEFECT: no checkpoint"
        return "named"
    if folder:
        table = folder / "metrics.csv"
        rows = len(table.read_text().splitlines()) - 1 if table.exists() else 0
        if rows != ITERATIONS or not (folder / "summary.json").exists():
            return f"DEFECT: exit code 0 after {rows} of {ITERATIONS} iterations"
    return "survived" if "warning: " in done.stderr + done.stdout else "unharmed"


def end_all(mark: str) -> int:
    """Kill all processes of a command that are still there; return how many there were."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
            if is_ours and "Z" not in (process / "stat").read_text().rpartition(")")[2].split()[0]:
                os.kill(int(process.name), 9)
                count += 1
        except OSError:
            continue
    return count


def main() -> None:
    arguments = harness.make_parser(__doc__ or "", only="", sample=0).parse_args()
    only = arguments.only
    about = harness.describe()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the commands would ignore what nohup ignores
    everything = [*cells(), *fault_files.file_cells(), *fault_files.signal_cells()]
    everything += fault_files.blocked_cells()
    chosen = [cell for cell in everything if only in ("", cell[0])]
    if arguments.sample:
        chosen = random.Random(0).sample(chosen, arguments.sample)
    with tempfile.TemporaryDirectory() as folder:
        good, cartpole = Path(folder, "good"), Path(folder, "cartpole")
        for path, env_name in ((good, NAME), (cartpole, "CartPole-v1")):
            command = [*harness.MAIN, *TRAIN, f"--env_name={env_name}", f"--run_dir={path}"]
            subprocess.run(command, cwd=harness.ROOT, check=True, capture_output=True)
        verdicts: dict[Any, str] = {}
        with ThreadPoolExecutor(harness.num_cores()) as pool:
            for cell, verdict in zip(
                chosen, pool.map(partial(run, good=good, cartpole=cartpole), chosen), strict=True
            ):
                print(*cell, verdict, sep=", ", flush=True)
                verdicts[cell] = verdict
    if only:  # the others keep what was found before
        before = json.loads(harness.result_path("reliability/faults.json").read_text())["cells"]
        verdicts = {tuple(cell.split(", ")): verdict for cell, verdict in before.items()} | verdicts
    write(about, verdicts)


def write(about: harness.Result, verdicts: dict[Any, str]) -> None:
    """Write the results: a row for each situation and call, a column for each way."""
    defects = sum(verdict.startswith("DEFECT") for verdict in verdicts.values())
    parts = [f"{len(verdicts)} commands, {defects} defects."]
    files, sealed = fault_files.FILES, ("sealed",)
    signals, blocked = ("signals",), ("blocked",)
    others = {cell[0] for cell in verdicts}.difference(files, sealed, signals, blocked)
    for head, names in (
        ("situation | call", others),
        ("file | command", files),
        ("checkpoint | command", sealed),
        ("situation | moment", signals),
        ("situation | by what", blocked),
    ):
        own = {cell: verdict for cell, verdict in verdicts.items() if cell[0] in names}
        ways = [*dict.fromkeys(cell[2] for cell in own)]
        rows = []
        for situation, call in dict.fromkeys(cell[:2] for cell in own):
            found = [own.get((situation, call, way), "") for way in ways]
            rows.append([situation, call, *found])
        parts.append(harness.table(" | ".join([head, *ways]), map(" | ".join, rows)))
    content = {", ".join(cell): verdict for cell, verdict in verdicts.items()}
    result = {**about, "cells": content}
    harness.write_json("reliability/faults.json", result)
    harness.write_page("reliability/faults.md", __doc__ or "", *parts, result=result)


if __name__ == "__main__":
    main()
