"""What commands do with a run of which a file is missing, damaged or a stranger's."""

import json
import shutil
import threading
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from safetensors.numpy import load, save

from tests.acceptance.tree import Tree, tensors, without_times

TRAIN = (
    "--env_name=CartPole-v1 --preset=none --num_envs=2 --num_steps=16 --num_workers=0 "
    "--eval_episodes=1 --eval_every=2 --checkpoint_every=1 --logger=none --run_dir="
)
COMMANDS = {  # FILE: the damaged one
    "resume": "--resume=run --total_steps=128",
    "auto": f"{TRAIN}run --total_steps=128 --resume=auto",
    "evaluate": "evaluate run --episodes=1",
    "evaluate FILE": "evaluate FILE --episodes=1",
    "export FILE": "export FILE policy.onnx",
    "load": "load.py run",
    "load FILE": "load.py FILE",
    "runs": "runs --folder=.",
    "report": "report run",
    "plot": "plot run --output=curve.svg",
}
SCRIPTS = {
    "load.py": """
import sys
from ppo import load_policy
try:
    load_policy(sys.argv[1])
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(3 if type(error).__module__.startswith("ppo.") else 1)
""",
    "without_rights.py": """
import ctypes, runpy, sys  # root may read any file, by a capability
ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
""",
}
PICKLE = b"cos\nmkdir\n(Vunpickled\ntR."  # os.mkdir("unpickled")


def edit(path: Path, content: bytes, prefix: str, keep: bool) -> None:
    """Write a checkpoint in which the tensors of a part are a row shorter, or are not there."""
    arrays = load(content)
    for name in [x for x in arrays if x.startswith(prefix)]:
        array = arrays.pop(name)
        if keep and array.ndim:
            arrays[name] = array[:-1].copy()
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    path.write_bytes(save(arrays, json.loads(header).get("__metadata__")))


DAMAGES: dict[str, Any] = {  # functions of a path where nothing is, and of what was there
    "missing": lambda path, content: None,
    "empty": lambda path, content: path.touch(),
    "cut": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "last line cut": lambda path, content: path.write_bytes(content[:-9]),
    "{}": lambda path, content: path.write_text("{}"),
    "garbage": lambda path, content: path.write_bytes(bytes(range(255, 0, -1)) * 9),
    "folder": lambda path, content: path.mkdir(),
    "no rights": lambda path, content: (path.write_bytes(content), path.chmod(0)),
    "pickle": lambda path, content: path.write_bytes(PICKLE),
    "no model": partial(edit, prefix="model.", keep=False),
    "short model": partial(edit, prefix="model.", keep=True),
    "no optimizer": partial(edit, prefix="optimizer.", keep=False),
    "short optimizer": partial(edit, prefix="optimizer.", keep=True),
}
NEWEST = "0*.safetensors"
EACH = "*.safetensors"
KINDS = "missing, empty, cut, {}, garbage, no rights"
# Files, damages, commands, exit codes; "named" where a command that goes on must name the file.
TABLE = """
0*.safetensors | any | resume, auto, evaluate, load | 0 2 3 | named
last.safetensors, best.safetensors | missing, garbage | resume, evaluate | 0 2 3 |
last.safetensors, best.safetensors | missing, garbage | auto, load | 0 3 |
last.safetensors | any | evaluate FILE, export FILE | 2 3 |
policy.pt | pickle | evaluate FILE, load FILE | 2 3 |
*.safetensors | missing, garbage | resume, auto, evaluate, load | 2 3 |
*.safetensors | pickle, no model, short model | resume, evaluate | 3 |
*.safetensors | no optimizer, short optimizer | resume | 3 |
*.safetensors | garbage | runs, report | 0 |
config.json | any | resume, report, plot | 0 2 3 |
config.json | missing, garbage | evaluate, load | 0 |
config.json | empty, cut, {}, garbage, folder, no rights | runs | 0 | named
metrics.csv | last line cut | resume, auto, runs, report, plot | 0 |
evaluations.jsonl, notes.txt | garbage | resume, report | 0 2 |
evaluations.jsonl, notes.txt | garbage | evaluate, load, runs | 0 2 |
summary.json | any | resume | 0 2 |
summary.json | garbage | evaluate, load, plot | 0 |
summary.json | empty, cut, garbage, no rights | runs, report | 0 2 | named
"""
ROWS = [row.replace("any", KINDS).split(" |") for row in TABLE.strip().splitlines()]
CASES = {
    ", ".join(case).replace("0*", "newest"): (*case, {*map(int, codes.split())}, bool(named))
    for *lists, codes, named in ROWS
    for case in product(*(cells.strip().split(", ") for cells in lists))
}
MARKS = {x: "it warns twice" for x in CASES if x.startswith("summary") and x.endswith("report")}
REWRITTEN = {"last.safetensors", "best.safetensors", "config.json", "summary.json", "metrics.csv"}
MAKING = threading.Lock()


def finished(tree: Tree, folder: Path) -> Path:
    """Return a folder with a run of three iterations and another of four, which are made once."""
    with MAKING:
        if not folder.exists():
            for steps, name in ((96, "run"), (128, "other")):
                done = tree.run(f"{TRAIN}{name} --total_steps={steps}", folder)
                assert done.code == 0, done.err
            for name, text in SCRIPTS.items():
                (folder / name).write_text(text)
    return folder


def contents(run: Path) -> dict[str, bytes]:
    """Return the contents of a run's files, by name."""
    return {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def outcome(run: Path, damage: str) -> tuple[dict[str, bytes], list[dict[str, str]]]:
    """Return the tensors with which a run has ended, and its rows but the one that was cut."""
    cut = "3" if damage == "last line cut" else ""
    arrays = {name: array.tobytes() for name, array in tensors(run).items()}
    return arrays, [row for row in without_times(run) if row["iteration"] != cut]


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    file, damage, command, codes, is_named = CASES[name]
    good = finished(tree, folder.parent / "finished")
    shutil.copytree(good, folder, symlinks=True, dirs_exist_ok=True)
    run = folder / "run"
    targets = sorted(run.rglob(file))[-1 if file == NEWEST else 0 :]
    was = {x: x.read_bytes() for x in targets} or {run / file: b"{}\n" * 9}
    real = {path.resolve() for path in was}
    names = {path.name for path in [*was, *run.rglob("*")] if path.resolve() in real}
    for path, content in was.items():
        path.unlink(missing_ok=True)
        DAMAGES[damage](path, content)
    before = {x: content for x, content in contents(run).items() if x not in {*names, "lock"}}

    words = COMMANDS[command].replace("FILE", str(min(was).relative_to(folder))).split()
    if words[0] != "load.py":
        words = [f"{tree.folder}/main.py", *tree.arguments(words)]
    if damage == "no rights":
        words.insert(0, "without_rights.py")
    done = tree.run(words[1:], folder, script=words[0])

    problems = [f"left: {x}" for x in done.left]
    lines = done.err.splitlines()
    if done.code not in codes or "Traceback" in done.err + done.out:
        problems.append(f"exit code {done.code}, not in {codes}: {done.err}")
    most = 0 if damage == "last line cut" else len(was) + (file == EACH)
    if len(lines) > most or (done.code and not lines):
        problems.append(f"{len(lines)} lines: {done.err}")
    known = names | {"run"} if file == EACH else names
    problems += [f"about what? {x}" for x in lines if not any(word in x for word in known)]
    is_lost = damage != "missing" and not {*was.values()} & {*before.values()}
    if is_named and is_lost and not any(word in done.err for word in names):
        problems.append("the file is not named")
    if command == "runs" and "other" not in done.out:
        problems.append("the other run is not listed")
    problems += [f"it has made {path.name}" for path in folder.glob("unpickled")]
    after = contents(run)
    changed = {x for x in before if not after.get(x, b"").startswith(before[x])}
    if done.code == 0 and command in ("resume", "auto"):
        changed -= {*REWRITTEN, *(before.keys() - after)}
        if outcome(run, damage) != outcome(folder / "other", damage):
            problems.append("the resumed run has other tensors or rows")
    return "; ".join(problems + [f"{x} is changed" for x in changed])
