"""Warn of problems of a run while it trains.

The limits are chosen so that no run in results/learning was warned of."""

from collections import Counter, deque
from collections.abc import Iterator

import numpy as np

from ppo.algorithm.rollout import Metrics
from ppo.callbacks.base import Callback

LARGE_KL = 0.5  # of an iteration, three times in a row
VERY_LARGE_KL = 1.0  # once
LONG = 30  # iterations
EARLY = 0.3  # of the run: a policy that has not begun to learn by then may never do so
FEW_EPISODES = 50
RISE = 0.3  # relative to the first return's size; a smaller rise may be chance
LARGE = 1_000.0  # for observations, and for the standard deviation of returns
LARGE_BONUS = 0.05
Problems = Iterator[tuple[str, str]]  # a short name and a sentence


class Doctor(Callback):
    """Examine every iteration, and report each problem once, or once more after a resume.

    num_actions: the dimension of continuous actions, 0 for discrete ones."""

    best_return = -float("inf")

    def __init__(self, num_actions: int) -> None:
        self.num_actions = num_actions
        self.reported: set[str] = set()
        self.streaks = Counter[str]()  # iterations in a row with each symptom
        self.endings: deque[bool] = deque(maxlen=100)
        self.first: dict[str, float] = {}

    def on_start(self, run) -> None:
        for row in run.rows:
            self._note(row)

    def on_iteration(self, run) -> None:
        metrics = run.metrics
        self._note(metrics)
        self.endings.extend(
            run.rollout.truncations[episode.step, episode.environment]
            for episode in run.rollout.info.episodes
        )
        symptoms = {
            "kl": metrics.get("approx_kl", 0.0) > LARGE_KL,
            "clipped": metrics.get("value_clip_fraction", 0.0) > 0.9,
            "explained": metrics["explained_variance"] < 0,
            "endless": len(self.endings) >= FEW_EPISODES
            and sum(self.endings) > 0.95 * len(self.endings),
        }
        for name, is_present in symptoms.items():
            self.streaks[name] = self.streaks[name] + 1 if is_present else 0
        for name, text in self._problems(run):
            if name not in self.reported:
                self.reported.add(name)
                run.folder.event("doctor", text)

    def _note(self, metrics: Metrics) -> None:
        """Keep the first return and entropy, and the best return. metrics: values are numbers or
        None; in rows of metrics.csv texts, which may be empty."""
        for name in ("episode_return_mean", "entropy"):
            if metrics.get(name) not in (None, ""):
                value = float(metrics[name])
                self.first.setdefault(name, value)
                if name == "episode_return_mean":
                    self.best_return = max(self.best_return, value)

    def _problems(self, run) -> Problems:
        """Yield problems that may show in any iteration, and then those of a late one."""
        kl = run.metrics.get("approx_kl", 0.0)
        if self.streaks["kl"] >= 3 or not kl <= VERY_LARGE_KL:  # or NaN
            fix = "lower --learning_rate, or set --target_kl"
            yield "kl", f"the policy leaps (KL {kl:.2g} in an update): {fix}"
        observations = run.rollout.observations
        shown = observations[:: max(1, len(observations) // 8)]
        if (shown == shown[0, 0]).all():
            effect = "the policy cannot tell one moment from another"
            yield "constant", f"all observations are the same: {effect}"
        largest = np.abs(shown).max()
        if largest > LARGE and run.config.normalize_observations is not True:
            fix = "give --normalize_observations=True"
            yield "observations", f"observations are as large as {largest:.2g}: {fix}"
        deviation = run.batch["returns"].std().item()
        if deviation > LARGE:
            fix = "give --normalize_rewards=True, or scale rewards in the environment"
            yield "returns", f"returns deviate by {deviation:.2g}, far from 1: {fix}"
        if self.streaks["clipped"] >= LONG:
            fix = "give --clip_value_coef=none, or --normalize_rewards=True"
            yield "clipped", f"nearly every value is clipped, so that they hardly learn: {fix}"
        is_late = run.iteration >= EARLY * run.config.iterations
        if is_late and run.metrics["episodes"] >= FEW_EPISODES:
            yield from self._late_problems(run)

    def _late_problems(self, run) -> Problems:
        """Yield problems of a run that should have learned something by now."""
        first = self.first.get("entropy", 0.0)
        if self.num_actions:
            high = first - 0.1 * self.num_actions
            low = first - 4 * self.num_actions
        else:
            high = 0.9 * first
            low = 0.05 * first
        entropy = run.metrics.get("entropy", first)
        bonus = run.config.entropy_coef
        if entropy > high and isinstance(bonus, float) and bonus >= LARGE_BONUS:
            fix = f"lower --entropy_coef={bonus:g}"
            yield "bonus", f"actions stay nearly as random as at first: {fix}"
        first_return = self.first.get("episode_return_mean", 0.0)
        if self.best_return > first_return + RISE * max(abs(first_return), 1e-3):
            return
        if self.streaks["explained"] >= LONG:
            yield (
                "explained",
                f"values have explained nothing of returns for {LONG} iterations, which do not "
                "rise either: lower --learning_rate, or raise --gae_lambda",
            )
        if self.streaks["endless"] >= LONG:
            yield (
                "limit",
                "the time limit ends nearly all episodes, and the return does not rise: reward "
                "what comes before the end, or lengthen the limit",
            )
        if entropy < low:
            problem = "actions are hardly random any more, and the return has not risen"
            yield "entropy", f"{problem}: raise --entropy_coef"
