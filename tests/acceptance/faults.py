"""Whatever goes wrong around a run: it goes on, or ends by a sentence, and nothing is lost.

A case is "KIND: FAULT": flags of a run, and what environments/faulty.py does there. Its row has an
exit code and a pattern of what is said, in one line (after the traceback of the user's own code).
Of each case is also asked that no process, shared memory or unfinished file is left, that the rows
of metrics.csv are those of a run without the fault, and, where the run has ended early, that the
same command with --resume=auto does the rest."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

from tests.acceptance.tree import Done, Tree, rows, without_times

ITERATIONS = 8
FLAGS = {
    "env_name": "faulty:Faulty",
    "num_envs": 4,
    "num_workers": 0,
    "num_steps": 32,
    "total_steps": ITERATIONS * 4 * 32,
    "checkpoint_every": 6,  # not before most faults
    "eval_episodes": 0,
    "run_dir": "run",
}
WATCHED = {"callback": "faulty_parts:Faulty"}
KINDS: dict[str, dict[str, Any]] = {
    "no worker": {},
    "worker": {"num_workers": 1},
    "two workers": {"num_workers": 2, **WATCHED},
    "masks": {"num_workers": 1, "env_name": "faulty:Masked"},
    "vector": {"num_workers": 1, "env_name": "faulty:Vector"},
    "team": {"num_workers": 1, "env_name": "faulty:Team"},
    "evaluation": {"eval_episodes": 2},
    "evaluations": {"eval_episodes": 2, "eval_every": 5, **WATCHED},
    "video": {"video_every": 5},
    "callback": WATCHED,
    "disk": WATCHED,
    "loss": {"learner": "faulty_parts:Loss"},
    "model": {"model": "faulty_parts:Model"},
    "tensorboard": {"logger": "tensorboard", **WATCHED},
    "torchrun": {"num_workers": 1, **WATCHED},
    "finished run": {},
}
EVALUATE = "evaluate run --env_name=faulty:Faulty --episodes=2 --num_envs=2"
COMMANDS = {"evaluate": EVALUATE, "evaluate --video": f"{EVALUATE} --video=run/film.gif"}
OTHER_ROWS = ("masks", "vector", "team", "evaluations", "loss")  # than those of "no worker"
UNTOUCHED = ("callback", "evaluation", "evaluations", "video", "tensorboard")  # training
INEXACT = ("vector", "team")  # resumed with new episodes
HANGING = ("sleep", "spin", "SIGSTOP:own", "pause")
SCRIPTS = {
    "script, no guard": "train(Faulty, **FLAGS)",
    "script, lambda": "train(lambda: Faulty(), **FLAGS)",
    "script, local class": """
def main():
    class Local(Faulty):
        def reset(self, **options):
            assert self.number == 7
            return super().reset(**options)

    Local.number = 7
    train(Local, **FLAGS)

main()""",
    "script, registered id": """
gymnasium.register("Mine-v0", Faulty)
train("Mine-v0", **FLAGS)""",
    "script, pool": """
def work(name):
    return train(Faulty, **{**FLAGS, "run_dir": name}).steps

with multiprocessing.Pool(2) as pool:
    print(pool.map(work, ["run", "other"]))""",
    "script, state": """
def state():
    handlers = [signal.getsignal(number) for number in (1, 2, 10, 15)]
    return handlers, torch.get_rng_state().tolist(), torch.get_num_threads(), os.getcwd()

torch.set_num_threads(2)
torch.manual_seed(5)
before = state()
try:
    train(Faulty, **FLAGS)
except BaseException as error:
    print(type(error).__name__)
print("as before" if state() == before else state())""",
    "script, nohup": """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
train(Faulty, **FLAGS)""",
}
IMPORTS = """import gymnasium, multiprocessing, os, signal, torch
from faulty import Faulty
from ppo import train
"""


@dataclass(frozen=True)
class Row:
    """What is asked of a fault.

    code: the exit code; word: a pattern of what is said, "" for nothing; rows: how many metrics.csv
    has then, None: all, or any number; lines: how many different ones are said, None: any number;
    lost: how many rows the same command with --resume=auto does again, None: it does not work;
    is_printed: whether it is said on standard output, which has all flags of a run, too."""

    code: int = 0
    word: str = ""
    rows: int | None = None
    lines: int | None = 1
    lost: int | None = 1
    is_printed: bool = False


WHEEL = "a wheel came off"
SAID = {  # of faults in an environment: a pattern, and their names
    "a wheel": "raise odd unpicklable",
    "KeyboardInterrupt|SystemExit|RecursionError": "interrupt exit recurse",
    "code 3": "quit orphan_quit",
    "worker": "close",
    "SIGKILL": "SIGKILL:own kill_all",
    "SIGSEGV": "SIGSEGV:own",
    "step_timeout": "SIGSTOP:own sleep spin",
    r"\(\)|\(1,\)|\(3,\)|\(4, 3\)|\(3, 4\)": "scalar one three rows",
    "observation": "none",
    "environment.*finite": "nan huge",
    "reward": "reward_nan reward_none reward_two reward_rows",
    "five|5": "four",
    "None": "nothing",
    "mask": "mask_three mask_empty",
}
RAISING = ("raise", "odd", "unpicklable", "interrupt", "exit", "recurse")
CODES = {"SIGTERM": 143, "SIGUSR1": 143, "SIGHUP": 129, "SIGINT": 130}


def faults(kinds: str, places: str, rows: int, names: str, code: int = 0) -> dict[str, Row]:
    """Return a row for each fault in each place; those that are not in SAID do no harm."""
    said = {name: word for word, known in SAID.items() for name in known.split()}
    found = {}
    for kind, place, name in product(kinds.split(", "), places.split(), names.split()):
        lost = None if rows < 0 else 1
        found[f"{kind}: {place} {name} {rows}"] = Row(code, said.get(name, ""), lost=lost)
    return found


def signals(kind: str, places: str, rows: int, names: str) -> dict[str, Row]:
    """Return a row for each signal. Only Ctrl-C lets an iteration be finished."""
    found = {}
    for place, name in product(places.split(), names.split()):
        is_within = place in ("step", "loss") and rows < ITERATIONS
        after = rows + (name == "SIGINT") if is_within else None
        code = CODES[re.split("[:,]", name)[0]]
        found[f"{kind}: {place} {name} {rows}"] = Row(code, "saved", after)
    return found


CASES: dict[str, Row] = {
    # An environment in training: it costs the worker, or nothing.
    **faults("worker", "step", 4, "raise odd unpicklable interrupt quit SIGKILL:own SIGSEGV:own"),
    **faults("worker", "step", 4, "close three nan start orphan orphan_quit sleep spin pause"),
    **faults("worker", "reset last", 4, "nan"),
    **faults("masks", "step", 4, "mask_three mask_empty"),
    **faults("two workers", "step", 4, "raise SIGKILL:own SIGSTOP:own"),
    **faults("two workers", "on_iteration", 4, "kill_all"),
    **faults("no worker", "step", 4, "raise odd exit recurse chdir flood four nothing"),
    **faults("no worker", "step", 4, "scalar one three nan huge reward_nan reward_none"),
    **faults("no worker", "reset", 4, "three none"),
    **faults("vector, team", "step", 4, "raise SIGKILL:own nan"),
    **faults("vector", "batch", 4, "sleep rows three reward_rows"),
    **{f"{kind}: close raise 8": Row() for kind in ("worker", "no worker", "evaluation")},
    "worker: step SIGKILL:own 4 always": Row(1, "SIGKILL", rows=4, lines=2),
    # At the first look.
    **faults("no worker", "init step", -1, "raise odd exit", code=1),
    **faults("no worker", "step", -1, "scalar one three nan reward_nan reward_two four", code=2),
    **faults("no worker", "reset", -1, "three none nan", code=2),
    **faults("masks", "reset", -1, "mask_three", code=2),
    **faults("vector, team", "step", -1, "raise", code=1),
    **faults("vector, team", "step", -1, "nan", code=2),
    "model: model raise -1": Row(2, "Model", lost=None),
    "model: nothing": Row(2, "Model", lines=None, lost=None),  # the traceback of forward
    # In an evaluation or a film.
    **faults("evaluation", "step", 8, "raise exit three nan"),
    **faults("video", "render", 4, "raise"),
    **faults("evaluate", "step", 8, "raise nan", code=1),
    **faults("evaluate --video", "render", 8, "raise", code=1),
    "evaluate: step SIGTERM 8": Row(143, "."),
    # Signals.
    **signals("worker", "step", 4, "SIGTERM SIGINT SIGINT,SIGINT SIGTERM:all"),
    **signals("no worker", "step", 4, "SIGUSR1 SIGHUP"),
    **signals("vector", "step", 4, "SIGTERM"),
    **signals("loss", "loss", 4, "SIGTERM SIGINT"),
    **signals("callback", "on_iteration on_checkpoint", 4, "SIGTERM"),
    **signals("disk", "sync", 4, "SIGTERM SIGINT"),
    **signals("evaluations", "on_evaluation", 4, "SIGTERM"),
    **signals("evaluation", "step", 8, "SIGTERM SIGHUP SIGINT"),
    "no worker: step SIGTERM -1": Row(143, "saved", rows=0),
    "worker: step hang 4": Row(143, "saved", rows=4),
    "worker: step SIGKILL 7": Row(-9),
    "disk: sync SIGKILL 7": Row(-9, lost=2),
    # A callback, a loss, a logger, a disk, a folder.
    **faults("callback", "on_batch on_episode on_checkpoint", 4, "raise", code=1),
    **faults("callback", "on_iteration", 4, "odd exit", code=1),
    **faults("two workers", "on_iteration", 4, "raise", code=1),
    **faults("evaluations", "on_evaluation on_end", 4, "raise", code=1),
    "callback: on_start raise -1": Row(1, WHEEL),
    "callback: on_iteration enough 4": Row(0, "it is enough", rows=5, is_printed=True),
    "loss: loss raise 4": Row(1, WHEEL, rows=4),
    "loss: loss exit 4": Row(1, "SystemExit", rows=4),
    "loss: loss nan 4": Row(0, "finite"),
    "loss: loss nan 4 always": Row(1, "finite", rows=4),
    "tensorboard: writer raise 4": Row(0, WHEEL),
    "callback: on_iteration unread 4": Row(0, "console"),
    "disk: sync full 4": Row(0, "No space left"),
    "disk: sync full 7 always": Row(1, "No space left", rows=8, lines=2, lost=2),
    "disk: on_iteration remove 4": Row(1, "metrics.csv|checkpoint of", lines=3, lost=None),
    "callback: on_iteration again 4": Row(0, "exit code 4", is_printed=True),
    "finished run: nothing": Row(2, "run"),
    # From Python.
    **{f"script, {x}: nothing": Row() for x in ("lambda", "local class", "registered id", "pool")},
    "script, no guard: step start 4": Row(),
    "script, state: nothing": Row(0, "as before", is_printed=True),
    "script, state: step SIGTERM 4": Row(0, "Interrupted\nas before", rows=4, is_printed=True),
    "script, nohup: step SIGHUP 4": Row(),
    # Ranks.
    "torchrun: step SIGKILL 4": Row(1, "SIGKILL", lines=None, lost=None),
    "torchrun: on_iteration kill_parent 4": Row(1, "saved", lines=None, lost=None),
}
ORPHANS = "what an environment has started outlives its worker, unless that has to be killed"
MARKS = {
    "worker: step orphan 4": ORPHANS,
    "worker: step orphan_quit 4": ORPHANS,
    "masks: reset mask_three -1": "the first look does not read masks",
    "callback: on_batch raise 4": "callbacks have no on_batch",
    "loss: loss raise 4": "the traceback of a loss is shown with --debug only",
}
END_OF_TRACEBACK = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")
MORE = re.compile(r"events\.jsonl|notes\.txt|evaluations?\.json|videos|report|curve")
WHOLE: dict[tuple[Path, str], Path] = {}
LOCK = Lock()


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    kind, _, fault = name.partition(": ")
    whole = whole_run(tree, folder.parent, kind if kind in OTHER_ROWS else "no worker")
    if kind in COMMANDS or kind == "finished run":
        shutil.copytree(whole, folder / "run")
    shared = {*os.listdir("/dev/shm")}
    done = command(tree, folder, kind, fault if " " in fault else "")
    row = CASES[name]
    problems = [*of_the_end(done, row, fault), *of_the_run(tree, folder, kind, row, whole)]
    problems += [f"left in memory: {x}" for x in {*os.listdir("/dev/shm")} - shared]
    return "; ".join(problems)


def command(tree: Tree, folder: Path, kind: str, fault: str, *more: str) -> Done:
    """Run the command, or the script, of a kind to its end."""
    env = {"FAULT": fault}
    if kind in COMMANDS:
        return tree.run(COMMANDS[kind], folder, env=env)
    if kind in SCRIPTS:
        flags = {name: x for name, x in FLAGS.items() if name != "env_name"}
        script = folder / "script.py"
        script.write_text(f"{IMPORTS}\nFLAGS = {flags | {'num_workers': 1}}\n{SCRIPTS[kind]}\n")
        return tree.run([], folder, env=env, script=script)
    words = [f"--{name}={x}" for name, x in (FLAGS | KINDS[kind]).items()]
    if {*HANGING} & {*fault.split()}:
        words.append("--step_timeout=1.5")
    if kind == "torchrun":
        torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node=2"
        program = [*torchrun.split(), str(tree.folder / "main.py")]
        return tree.start(words, folder, program=program, env=env).wait()
    return tree.run([*words, *more], folder, env=env)


def whole_run(tree: Tree, parent: Path, kind: str) -> Path:
    """Return the folder of a run without a fault."""
    with LOCK:
        if (tree.folder, kind) not in WHOLE:
            folder = parent / f"whole run, {kind}"
            done = command(tree, folder, kind, "")
            assert done.code == 0, done.err
            WHOLE[tree.folder, kind] = folder / "run"
        return WHOLE[tree.folder, kind]


def of_the_end(done: Done, row: Row, fault: str) -> Iterator[str]:
    """Yield what is wrong with how a command has ended, and with what it has said."""
    if done.code != row.code:
        yield f"exit code {done.code}, not {row.code}"
    if done.left:
        yield f"left {done.left}"
    num_tracebacks = done.err.count("Traceback (most recent call last)")
    said = done.last if row.code and row.lines and not num_tracebacks else done.err
    said = done.out if row.is_printed else said
    if not re.search(row.word, said):
        yield f"{row.word!r} is not in {said[-500:]!r}"
    if row.lines is None:
        return
    is_own = any(word in RAISING for word in fault.split())
    if num_tracebacks > is_own or (is_own and row.code == 1 and not num_tracebacks):
        yield f"{num_tracebacks} tracebacks: {done.err[-500:]!r}"
    if num_tracebacks and END_OF_TRACEBACK.match(done.last):
        yield f"no line after the traceback: {done.last!r}"
    lines = {re.sub(r"\d+", "N", line) for line in done.err.splitlines()}
    if not num_tracebacks and len(lines) > (row.lines if row.word else 0):
        yield f"{len(lines)} lines: {done.err[-500:]!r}"


def of_the_run(tree: Tree, folder: Path, kind: str, row: Row, whole: Path) -> Iterator[str]:
    """Yield what is wrong with a run's files, and with how the same command goes on."""
    run = folder / "run"
    before = rows(run)
    if row.rows is not None and len(before) != row.rows:
        yield f"{len(before)} rows, not {row.rows}"
    is_resumed = bool(row.code) and row.lost is not None and kind not in COMMANDS
    is_whole = is_resumed or (row.code == 0 and row.rows is None)
    if is_resumed:
        done = command(tree, folder, kind, "", "--resume=auto")
        if done.code != 0 or (done.err and kind not in INEXACT):
            yield f"resumed with exit code {done.code}: {done.err[-500:]}"
        same = [one == other for one, other in zip(before, rows(run), strict=False)]
        if not all(same[: max(0, len(before) - (row.lost or 0))]):
            yield f"of {len(before)} rows, {same.count(True)} were saved"
    found, wanted = without_times(run), without_times(whole)
    numbers = [int(x["iteration"]) for x in found]
    if numbers != [*range(1, 1 + (ITERATIONS if is_whole else len(found)))]:
        yield f"rows {numbers} in the end"
    is_exact = kind not in INEXACT if row.code else kind in UNTOUCHED or not row.word
    count = len(found) if is_exact and row.lines else 4  # as it happens
    if kind != "torchrun" and found[:count] != wanted[: min(count, len(found))]:
        yield "rows differ from those of a run without the fault"
    if new := files(run) - files(whole):
        yield f"left in the folder: {new}"
    if is_whole and not (run / "summary.json").exists():
        yield "no summary"


def files(run: Path) -> set[str]:
    """Return the names of a run's files without numbers, but for some that not all runs have."""
    names = {re.sub(r"\d+", "N", str(path.relative_to(run))) for path in run.rglob("*")}
    return {name for name in names if not MORE.match(name)}
