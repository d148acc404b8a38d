"""Ask whether tests notice single faults of the algorithm and its data:
python -m tests.mutants [--only=TEXT] [-- COMMAND]

A mutant is a fault with which most runs would still train. For each of them whose name contains
TEXT, COMMAND, by default pytest, runs in a changed copy of this tree, which is first on PYTHONPATH;
{tree} in COMMAND is the copy's folder. In an unchanged copy it must succeed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

Edit = tuple[str, str, str]  # a file, a text that occurs once in it, and its replacement
TREE = Path(__file__).parents[1]
PYTEST = "-m pytest -x -q -p no:cacheprovider --ignore=tests/test_examples.py tests"
NOT_COPIED = shutil.ignore_patterns(".git", "runs", "__pycache__", ".*_cache", ".hypothesis")
FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$|^(.+?): FAILED", re.MULTILINE)

ATARI = "envs/atari.py"
LEARNER = "ppo/learner.py"
LOSSES = "ppo/losses.py"
MINIBATCHES = "ppo/minibatches.py"
NUMPY = "ppo/numpy_learner.py"
POLICY = "ppo/policy.py"
RUN = "ppo/run.py"
WORKER = "envs/worker.py"
CLIPPED = "gymnasium.wrappers.TransformReward(env, lambda x: max(-1, min(x, 1)))"
RECORD = f"RecordEpisode({CLIPPED} if config.clip_rewards else env)"
SEE = """\
        if self.normalize.enabled:
            numbers = self.rollout.tables[NUMBERS][:-1]
            acting = self.rollout.acting
            self.normalize.update(numbers if acting is None else numbers[acting])
"""
GIVEN = "        if last is not None:\n"
LEARN = "        metrics = self.learner.update(batch, self.iteration, self.signals.urgent)\n"
BEYOND = "* target_kl:\n                    "
PUBLISH = "        self.publish()\n"

MUTANTS: dict[str, tuple[Edit, ...]] = {
    "a truncation counts as a termination": (
        ("ppo/gae.py", "~terminations -", "~(terminations | truncations) -"),
    ),
    "the last observation of a truncated episode is not normalized": (
        (LEARNER, "normalize.tables(rows)", "rows"),
    ),
    "the last observation of a truncated episode is overwritten by the reset": (
        (WORKER, "x.copy() for name, x in {**last,", "x for name, x in {**last,"),
        (WORKER, '"states": states}', '"states": states.copy()}'),
    ),
    "the last recurrent state of a truncated episode is overwritten by the reset": (
        (WORKER, "x.copy() for name, x in {**last,", "x for name, x in {**last,"),
        (WORKER, GIVEN, f"{GIVEN}            last = {{x: last[x].copy() for x in last}}\n"),
    ),
    "advantages are divided by the biased standard deviation": (
        (LOSSES, "std_mean(advantages)", "std_mean(advantages, correction=0)"),
        (NUMPY, "/ (size - 1)", "/ size"),
    ),
    "observation statistics are updated before a rollout is learned from": (
        (RUN, SEE, ""),
        (RUN, "rewards = rollout.rewards\n", f"rewards = rollout.rewards\n{SEE}{PUBLISH}"),
    ),
    "observation statistics are of the first environment only": (
        (RUN, "tables[NUMBERS][:-1]", "tables[NUMBERS][:-1, 0]"),
    ),
    "the returns of reward statistics go on over truncations": (
        (RUN, "(rewards, rollout.dones,", "(rewards, rollout.terminations,"),
    ),
    "the optimizer has the learning rate of the iteration before": (
        (LEARNER, "self._is_adaptive = ", "before = self.learning_rate; self._is_adaptive = "),
        (LEARNER, 'group["lr"] = self.learning_rate', 'group["lr"] = before'),
    ),
    "all environments have the seeds of the first": (
        (WORKER, "Stream.EPISODE, self.env_ids[column], number", "Stream.EPISODE, 0, number"),
        (WORKER, "Stream.EPISODE, index, number", "Stream.EPISODE, 0, number"),
    ),
    "evaluations have seeds of training": (
        (POLICY, "Stream.EVALUATION, x", "Stream.EPISODE, 0, x"),
    ),
    "actions are sampled by the same noise in each rollout": (
        ("envs/sampler.py", "Stream.ACTION, env_id, iteration", "Stream.ACTION, env_id, 0"),
    ),
    "steps that only begin an episode are learned from": (
        (MINIBATCHES, "order = order[np.any(present[rows], axis=0)[order]]", "pass"),
    ),
    "minibatches are the same in each epoch": (
        (MINIBATCHES, "generator=generator", "generator=torch.Generator().manual_seed(seed)"),
    ),
    "rows that minibatches of one size leave over are not learned from": (
        (MINIBATCHES, "(order, count", "(order[len(order) % count :], count"),
    ),
    "old log-probabilities are computed again after each epoch": (
        (
            LEARNER,
            "        for rows in drawn:\n",
            "        drawn = [*drawn]\n"
            "        for number, rows in enumerate(drawn):\n"
            "            if number and number * config.num_epochs % len(drawn) == 0:\n"
            '                known = {name: batch[name] for name in batch if name != "starts"}\n'
            "                found = torch.no_grad()(self.evaluate)(known)[0]\n"
            '                batch = {**batch, "log_probs": found}\n',
        ),
    ),
    "the loss of a value is the smaller one, clipped or not": (
        (LOSSES, "torch.max(errors, ", "torch.min(errors, "),
        (NUMPY, "clipped_squares > squares", "clipped_squares < squares"),
        (NUMPY, "np.maximum(squares, ", "np.minimum(squares, "),
    ),
    "gradients are clipped after the step": (
        (LEARNER, "= self.clip_gradient()", "= float(self.gradients.norm())"),
        (LEARNER, "self.optimizer.step()\n", "self.optimizer.step(); self.clip_gradient()\n"),
    ),
    "a gradient that is not finite makes a step where the loss is finite": (
        (LEARNER, 'metrics["loss"] + metrics["grad_norm"]', 'metrics["loss"]'),
    ),
    "minibatches beyond the target KL are left out, those after them not": (
        (LEARNER, f"{BEYOND}break", f"{BEYOND}continue"),
    ),
    "returns of episodes are sums of clipped rewards": (
        ("envs/make.py", "RecordEpisode(env)", RECORD),
        (ATARI, "env: Env = RecordEpisode(wrap(game))", f"env = wrap(game); env = {RECORD}"),
    ),
    "statistics of games end with each life": (
        (ATARI, "RecordEpisode(wrap(game))", "wrap(game)"),
        (ATARI, "if Action.FIRE in", "env = RecordEpisode(env)\n    if Action.FIRE in"),
    ),
    "sequences are learned without a reset of the state where an episode starts": (
        (LEARNER, "zeros_like(ended[:1]), ended[:-1]]", "zeros_like(ended)]"),
    ),
    "gSDE takes its draws in turns instead of holding each": (
        ("models/numpy_mlp.py", "np.repeat(draws, hold, 0)", "np.tile(draws, (hold, 1))"),
    ),
    "actions are learned from as they were clipped to their bounds": (
        ("envs/spaces.py", "rows, low), high)", "rows, low, out=rows), high, out=rows)"),
    ),
    "evaluations update observation statistics": (
        (POLICY, "step(0)", 'step(0); getattr(self.policy, "see", len)(rows["observations"])'),
        (
            RUN,
            "result = self.policy().evaluate(",
            "policy: Any = self.policy()\n"
            "            policy.see = self.normalize.update if self.normalize.enabled else len\n"
            "            result = policy.evaluate(",
        ),
    ),
    "weights are published before the update": ((RUN, LEARN + PUBLISH, PUBLISH + LEARN),),
    "ends of episodes are reported for the column before": (
        (WORKER, "index = self.env_ids[column]", "index = self.env_ids[column - 1]"),
        (POLICY, "[episode.environment]", "[(episode.environment + 1) % len(playing)]"),
    ),
    "old log-probabilities are computed without action masks": (
        (LEARNER, "(chunk))", '({x: chunk[x] for x in chunk if x != "action_masks"}))'),
    ),
}


def first_failure(edits: Sequence[Edit], command: Sequence[str]) -> str:
    """Run a command in a changed copy of this tree; return what fails first in it, or ""."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as parent:
        copy = shutil.copytree(TREE, Path(parent, "tree"), symlinks=True, ignore=NOT_COPIED)
        for file, old, new in edits:
            text = (copy / file).read_text()
            assert text.count(old) == 1, f"{old!r} must occur once in {file}"
            (copy / file).write_text(text.replace(old, new))
            compile(text.replace(old, new), file, "exec")  # else any test would notice it
        done = subprocess.run(
            [word.replace("{tree}", str(copy)) for word in command],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
        )
    if done.returncode == 0:
        return ""
    found = FAILURE.search(done.stdout)
    return found[1] or found[2] if found else f"exit code {done.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("command", nargs="*", default=[sys.executable, *PYTEST.split()])
    given = parser.parse_args()
    if failure := first_failure([], given.command):
        parser.error(f"the command fails without a mutant, too: {failure}")
    for name in [name for name in MUTANTS if given.only in name]:
        begin = time.monotonic()
        failure = first_failure(MUTANTS[name], given.command)
        says = f"noticed by {failure}" if failure else "SURVIVED"
        print(f"{name}: {says} [{time.monotonic() - begin:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
