"""Edits: someone changes a formula or a network in a copy of the tree and trains, and it counts."""

import re
import shutil
from pathlib import Path

import numpy as np

from tests.acceptance.tree import ENVIRONMENTS, Tree, tensors

# Large steps in several epochs, so that ratios and values leave the range of their clips.
TRAIN = (
    "--env_name=CartPole-v1 --preset=none --num_envs=4 --num_steps=64 --num_workers=2 --seed=5"
    " --total_steps=1024 --num_epochs=4 --learning_rate=0.01 --entropy_coef=0.1"
    " --eval_episodes=0 --logger=none --run_dir=run"
)
LOAD = "from ppo import load_policy\nload_policy('run').predict([0.0] * 4)\n"
LEAST = 0.01  # difference of weights that counts: rounding makes 3e-6, these edits 0.17 and more
NUM_PROCESSES = 4  # that compute the network: the trainer, two workers, and one that runs LOAD
NOTE_PROCESS = "import os; open(f'computed-by-{os.getpid()}', 'w').close()"

LOSSES, LEARNER = "ppo/**/losses.py", "ppo/**/learner.py"
MLP, HEADS = "models/mlp.py", "models/distributions.py"
NULL, NETWORK = "a comment", "activation"
# Files, a regular expression, and what takes its place. A row may have several, for versions that
# write a formula in different ways: the first that is found is edited.
CASES = {
    NULL: [(LOSSES, r"\Z", "# a comment\n")],
    "policy loss negated": [(LOSSES, r"return -torch\.min\(", "return torch.min(")],
    "clip removed": [(LOSSES, r"clipped = ratio\.clamp\(.*\)", "clipped = ratio")],
    "value clip removed": [(LOSSES, r"errors = torch\.max\(errors, .*\)", "pass")],
    "max for min": [(LOSSES, r"-torch\.min\(", "-torch.max(")],
    "entropy's sign": [(LEARNER, r"- (\w+\.entropy_coef \* entropy)", r"+ \1")],
    "standardize": [(LOSSES, r"(def standardize\(.*\n)", r"\1    return advantages\n")],
    NETWORK: [
        (MLP, r"( +)(.* = )self\.activate\(", rf"\1{NOTE_PROCESS}\n\1\2nn.functional.relu("),
    ],
    "temperature": [(HEADS, r"\(self\.logits \+ noise", "(10 * self.logits + noise")],
}
NUMPY = "numpy learns and acts by formulas of its own: weights differ by 0"
MARKS = {name: NUMPY for name in CASES if name != NULL}
unedited: dict[Path, dict[str, np.ndarray]] = {}  # weights by the tree's folder


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    copy = folder / "copy"
    for part in ("ppo", "envs", "models"):
        shutil.copytree(tree.folder / part, copy / part, symlinks=True)
    shutil.copy2(tree.folder / "main.py", copy)
    if not any(edit(copy, *candidate) for candidate in CASES[name]):
        return "nothing to edit was found: add where this version has it"
    if tree.folder not in unedited:
        unedited[tree.folder] = trained(tree, tree.folder, folder / "unedited")
    before, after = unedited[tree.folder], trained(tree, copy, folder)
    largest = max(float(np.abs(before[x] - after[x]).max()) for x in before)
    is_wrong = largest > 0 if name == NULL else largest < LEAST
    problems = [f"weights differ by {largest:.1e}"] if is_wrong else []
    if name == NETWORK:
        (copy / "load.py").write_text(LOAD)
        call(tree, [], folder, copy / "load.py")
        processes = len(list(folder.glob("computed-by-*")))
        if processes < NUM_PROCESSES:
            problems.append(f"{processes} of {NUM_PROCESSES} processes compute by it")
    return "; ".join(problems)


def edit(copy: Path, files: str, old: str, new: str) -> bool:
    """Edit the first place in the files of a copy that matches; return whether there is one."""
    for path in copy.glob(files):
        text, count = re.subn(old, new, path.read_text(), count=1)
        if count:
            path.write_text(text)
            return True
    return False


def trained(tree: Tree, source: Path, folder: Path) -> dict[str, np.ndarray]:
    """Train by the main.py of a folder; return the weights."""
    call(tree, tree.arguments(TRAIN), folder, source / "main.py")
    return {x: table for x, table in tensors(folder / "run").items() if x.startswith("model.")}


def call(tree: Tree, arguments: list[str], folder: Path, script: Path) -> None:
    """Run a script with the modules next to it."""
    paths = f"{ENVIRONMENTS}:{script.parent}"
    done = tree.run(arguments, folder, script=script, env={"PYTHONPATH": paths})
    assert done.code == 0, f"exit code {done.code}: {done.err}"
