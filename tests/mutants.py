"""Ask whether tests notice single faults of the algorithm and its data:
python -m tests.mutants --tree=FOLDER [--only=TEXT] -- COMMAND

A mutant is a fault with which most runs would still train. For each of them whose name contains
TEXT, COMMAND runs in a changed copy of the tree, which is first on PYTHONPATH; {tree} in COMMAND is
the copy's folder. In an unchanged copy it must succeed.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.tree import Tree

Edit = tuple[str, str, str]  # a file, a text that occurs once in it, and what takes its place
NOT_COPIED = shutil.ignore_patterns(".git", "runs", "__pycache__")
FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$|^(.+?): FAILED", re.MULTILINE)


class Mutant:
    """A fault: the first fast test of 2.0.1 that notices it, or SURVIVED; and edits of a tree of
    version 2 and of version 3, which make it together."""

    def __init__(self, noticed_by: str, *v2: Edit, v3: Sequence[Edit] = ()) -> None:
        self.noticed_by = noticed_by
        self.edits = {2: v2, 3: v3}


GSDE = "ppo/extras/exploration/gsde.py"
LEARNER = "ppo/algorithm/learner.py"
MINIBATCHES = "ppo/algorithm/minibatches.py"
PARTS = "ppo/components.py"
WORKER = "envs/worker.py"
CLIPPED = "gymnasium.wrappers.TransformReward(env, lambda x: max(-1, min(x, 1)))"
RECORD = f"RecordEpisode({CLIPPED} if config.clip_rewards else env)"

MUTANTS: dict[str, Mutant] = {
    "a truncation counts as a termination": Mutant(
        "test_batch.py::test_the_last_observation_of_a_truncated_episode_is_bootstrapped_from",
        ("ppo/algorithm/gae.py", "~terminations -", "~(terminations | truncations) -"),
    ),
    "the last observation of a truncated episode is not normalised": Mutant(
        "test_recurrent.py::test_a_truncated_episodes_last_value_has_its_own_memory",
        (LEARNER, "normalize(np.stack(last))", "np.stack(last)"),
    ),
    "the last observation of a truncated episode is overwritten by the reset": Mutant(
        "SURVIVED",
        (WORKER, "np.array(observation)", "np.asarray(observation)"),
    ),
    "the last recurrent state of a truncated episode is overwritten by the reset": Mutant(
        "test_recurrent.py::test_a_truncated_episodes_last_value_has_its_own_memory",
        (WORKER, "rollout.states[t + 1, i].copy()", "rollout.states[t + 1, i]"),
    ),
    "advantages are divided by the biased standard deviation": Mutant(
        "test_batch.py::test_advantages_may_be_standardized_over_the_whole_rollout",
        ("ppo/algorithm/losses.py", "std_mean(advantages)", "std_mean(advantages, correction=0)"),
        ("ppo/extras/fast/backend.py", "/ (size - 1)", "/ size"),
    ),
    "observation statistics are updated before a rollout is learned from": Mutant(
        "test_predict.py::test_log_probs_and_values_are_those_that_the_learner_computes[mlp]",
        (PARTS, "            self.update_statistics(rollout)\n", ""),
        (PARTS, "rewards = self.scale", "self.update_statistics(rollout); rewards = self.scale"),
    ),
    "observation statistics are of the first environment only": Mutant(
        "test_components.py::test_statistics_change_after_a_rollout_and_not_within_it",
        (PARTS, "of_present(rollout.observations[:-1])", "observations[:-1, 0]"),
    ),
    "the returns of reward statistics go on over truncations": Mutant(
        "SURVIVED",
        (PARTS, "rollout.rewards, rollout.dones", "rollout.rewards, rollout.terminations"),
    ),
    "the optimizer has the learning rate of the iteration before": Mutant(
        "SURVIVED",
        (LEARNER, "self.is_adaptive = ", "before = self.learning_rate; self.is_adaptive = "),
        (LEARNER, 'group["lr"] = self.learning_rate', 'group["lr"] = before'),
    ),
    "all environments have the seeds of the first": Mutant(
        "test_worker.py::test_three_rollouts_join_without_gap_or_repeat[0]",
        (WORKER, "Stream.EPISODE, self.own_ids[i], episode", "Stream.EPISODE, 0, episode"),
    ),
    "evaluations have seeds of training": Mutant(
        "test_policy.py::test_predictions_repeat_the_evaluation[mlp]",
        ("ppo/policy/policy.py", "Stream.EVALUATION, episode", "Stream.EPISODE, 0, episode"),
    ),
    "actions are sampled by the same noise in each rollout": Mutant(
        "test_worker.py::test_environments_and_rollouts_have_randomness_of_their_own",
        ("envs/sampler.py", "Stream.ACTION, env_id, iteration", "Stream.ACTION, env_id, 0"),
    ),
    "minibatches are the same in each epoch": Mutant(
        "test_minibatches.py::test_each_epoch_has_another_order",
        (MINIBATCHES, "generator=generator", "generator=torch.Generator().manual_seed(seed)"),
    ),
    "rows that minibatches of one size leave over are not learned from": Mutant(
        "test_minibatches.py::test_each_epoch_has_every_row_once_in_minibatches_of_even_size",
        (MINIBATCHES, "(order, config", "(order[len(order) % config.num_minibatches :], config"),
    ),
    "old log-probabilities are computed again after each epoch": Mutant(
        "test_learner.py::test_the_clip_coefficients_of_schedules_reach_the_loss",
        (
            LEARNER,
            "        for indices in drawn:\n",
            "        for number, indices in enumerate(drawn):\n"
            "            if number and number * config.num_epochs % len(drawn) == 0:\n"
            '                known = {name: batch[name] for name in batch if name != "starts"}\n'
            "                found = torch.no_grad()(self.evaluate_actions)(known)[0]\n"
            '                batch = {**batch, "log_probs": self.to_device(found)}\n',
        ),
    ),
    "the loss of a value is the smaller one, clipped or not": Mutant(
        "test_losses.py::test_golden_value_loss_with_and_without_clipping",
        ("ppo/algorithm/losses.py", "torch.max(errors, ", "torch.min(errors, "),
        ("ppo/extras/fast/backend.py", "clipped_squares > squares", "clipped_squares < squares"),
        ("ppo/extras/fast/backend.py", "np.maximum(squares, ", "np.minimum(squares, "),
    ),
    "gradients are clipped after the step": Mutant(
        "SURVIVED",
        (LEARNER, "self.backend.clip_gradients()", "float(self.gradients.norm())"),
        (LEARNER, "self._step()\n", "self._step(); self.backend.clip_gradients()\n"),
    ),
    "a gradient that is not finite makes a step where the loss is finite": Mutant(
        "SURVIVED",
        (LEARNER, 'metrics["loss"] + metrics["grad_norm"]', 'metrics["loss"]'),
    ),
    "minibatches beyond the target KL are left out, those after them not": Mutant(
        "SURVIVED",
        (LEARNER, "* target_kl:\n                break", "* target_kl:\n                continue"),
    ),
    "returns of episodes are sums of clipped rewards": Mutant(
        "test_components.py::test_clipped_rewards_are_learned_from_and_the_games_own_are_reported",
        ("envs/make.py", "RecordEpisode(env)", RECORD),
        ("envs/families.py", "RecordEpisode(env)", RECORD),
    ),
    "statistics of games end with each life": Mutant(
        "test_atari.py::test_the_return_reported_is_that_of_all_lives_together",
        ("envs/families.py", "env = RecordEpisode(env)", ""),
        ("envs/families.py", "if Action.F", "env = RecordEpisode(env)\n        if Action.F"),
    ),
    "sequences are learned without a reset of the state where an episode starts": Mutant(
        "test_recurrent.py::test_an_lstm_or_a_gru_makes_use_of_earlier_observations[lstm-True]",
        (LEARNER, "zeros_like(dones[:1]), dones[:-1]]", "zeros_like(dones)]"),
    ),
    "gSDE takes its draws in turns instead of holding each": Mutant(
        "test_gsde.py::test_exploration_stays_for_as_many_steps_as_asked_for[4-changes1]",
        (GSDE, "np.repeat(draws, sample_freq, axis=0)", "np.tile(draws, (sample_freq, 1))"),
    ),
    "the entropy of squashed actions is that before tanh": Mutant(
        "test_distributions.py::test_squashed_entropy_is_the_integral_that_defines_it[-2.5--3.0]",
        ("models/distributions.py", " + slopes.sum(-1)", ""),
    ),
    "actions are learned from as they were clipped to their bounds": Mutant(
        "test_spaces.py::"
        "test_whatever_a_policy_draws_is_a_member_of_the_space_and_the_one_that_is_meant",
        ("envs/spaces.py", "rows, low), high)", "rows, low, out=rows), high, out=rows)"),
    ),
    "evaluations update observation statistics": Mutant(
        "test_evaluation.py::test_evaluation_changes_nothing_and_repeats_itself",
        (PARTS, "deepcopy(self.normalize_observation)", "self.normalize_observation"),
        (
            "ppo/policy/predictor.py",
            "columns = self.actor(",
            "self.normalize.update(observations, lambda x: [x]); columns = self.actor(",
        ),
    ),
    "weights are published before the update": Mutant(
        "test_predict.py::test_log_probs_and_values_are_those_that_the_learner_computes[lstm]",
        (PARTS, "metrics = self.learner.upd", "self.publish_weights(); metrics = self.learner.upd"),
        (PARTS, "        self.publish_weights()\n        return {**", "        return {**"),
    ),
    "ends of episodes are reported for the column before": Mutant(
        "test_batch.py::test_the_last_observation_of_a_truncated_episode_is_bootstrapped_from",
        (WORKER, "index = self.env_indices[i]", "index = self.env_indices[i - 1]"),
    ),
    "rows of absent agents are learned from": Mutant(
        "SURVIVED",
        (LEARNER, 'batch["present"] = self.to_device(present.reshape(-1))', "pass"),
    ),
    "old log-probabilities are computed without action masks": Mutant(
        "test_masks.py::test_log_probabilities_that_are_learned_from_are_among_what_was_allowed",
        (LEARNER, "actions(batch)", 'actions({x: batch[x] for x in batch if x != "action_masks"})'),
    ),
}


def first_failure(edits: Sequence[Edit], tree: Path, command: Sequence[str]) -> str:
    """Run a command in a changed copy of a tree; return what fails first in it, or ""."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as parent:
        copy = shutil.copytree(tree, Path(parent, "tree"), symlinks=True, ignore=NOT_COPIED)
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
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    version = Tree(given.tree).version
    if failure := first_failure([], given.tree, given.command):
        parser.error(f"the command fails without a mutant, too: {failure}")
    for name, mutant in MUTANTS.items():
        if mutant.edits[version] and given.only in name:
            begin = time.monotonic()
            failure = first_failure(mutant.edits[version], given.tree, given.command)
            says = f"noticed by {failure}" if failure else "SURVIVED"
            print(f"{name}: {says} [{time.monotonic() - begin:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
