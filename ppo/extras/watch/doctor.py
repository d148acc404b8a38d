"""Warn of problems of a run while it trains.

The limits are chosen so that no run in results/learning was warned of."""

from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from ppo.algorithm.rollout import Metrics
from ppo.callbacks.base import Callback, Run
from ppo.config.config import Config
from ppo.envs.observations import describe_rounding, rounded_parts

LARGE_KL = 0.5  # of an iteration, three times in a row
VERY_LARGE_KL = 1.0  # once
MAX_STREAK = 30  # iterations in a row with a symptom
LATE = 0.3  # of the run: a policy that has not begun to learn by then may never do so
MIN_EPISODES = 50
MIN_IMPROVEMENT = 0.3  # relative to the first return's size; a smaller one may be chance
LARGE_VALUE = 1_000.0  # of observations, and of the standard deviation of returns
LARGE_ENTROPY_COEF = 0.05
MANY_CLIPPED = 0.95  # of a column of an iteration's actions, from the first iteration on
MIN_ACTIONS = 100  # of such a first iteration
Problems = Iterator[tuple[str, str]]  # a short name and a sentence


class Doctor(Callback):
    """Examine every iteration, and report each problem once, or once more after a resume.

    num_actions: the dimension of continuous actions, 0 for discrete ones; bounds: (2, D), to which
    each column of the policy's actions is clipped, infinite if it is not."""

    def __init__(self, num_actions: int, bounds: ndarray | None = None) -> None:
        self.num_actions = num_actions
        self.bounds = bounds if bounds is not None and np.isfinite(bounds).any() else None
        self.num_seen = 0  # actions of the last iteration, and the share of each column clipped
        self.clipped = np.zeros(1)
        self.best_return = -float("inf")
        self.reported: set[str] = set()
        self.streaks = Counter[str]()  # iterations in a row with each symptom
        self.endings: deque[bool] = deque(maxlen=100)
        self.first: dict[str, float] = {}

    def on_start(self, run: Run) -> None:
        for row in run.rows:
            self._note(row)

    def on_iteration(self, run: Run) -> None:
        metrics = run.metrics
        self._note(metrics)
        self.endings.extend(
            run.rollout.truncations[episode.step, episode.environment]
            for episode in run.rollout.info.episodes
        )
        if self.bounds is not None:
            low, high = self.bounds
            actions = run.rollout.of_present(run.rollout.actions)
            self.num_seen = len(actions)
            self.clipped = ((actions < low) | (actions > high)).mean(0)
        symptoms = {
            "actions": self.clipped.max() >= MANY_CLIPPED,
            "kl": metrics.get("approx_kl", 0.0) > LARGE_KL,
            "clipped": metrics.get("value_clip_fraction", 0.0) > 0.9,
            "explained": metrics["explained_variance"] < 0,
            "endless": len(self.endings) >= MIN_EPISODES
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

    def _problems(self, run: Run) -> Problems:
        """Yield problems that may show in any iteration, and then those of a late one."""
        kl = run.metrics.get("approx_kl", 0.0)
        if self.streaks["kl"] >= 3 or not kl <= VERY_LARGE_KL:  # or NaN
            fix = "lower --learning_rate, or set --target_kl"
            yield "kl", f"policy updates are too large (KL {kl:.2g} in an iteration): {fix}"
        observations = run.rollout.observations
        shown = observations[:: max(1, len(observations) // 8)]
        space = run.parts.spaces.observations
        rows = shown.reshape(-1, *space.shape)
        for name, multiple in rounded_parts(space, rows):
            yield f"rounded {name}", describe_rounding(name, multiple)
        if (shown == shown[0, 0]).all():
            fix = "check what reset() and step() of the environment return"
            yield "constant", f"observations are constant: {fix}"
        largest = np.abs(shown).max()
        if largest > LARGE_VALUE and run.config.normalize_observations is not True:
            fix = "give --normalize_observations=True"
            yield "observations", f"observations are as large as {largest:.2g}: {fix}"
        deviation = run.batch["returns"].std().item() / run.parts.learner.value_scale
        if deviation > LARGE_VALUE:
            fix = "give --normalize_rewards=True, or scale rewards in the environment"
            yield "returns", f"returns have a standard deviation of {deviation:.2g}, not 1: {fix}"
        begins_anew = not getattr(run.config, "init_from", None)  # which another extra may add
        is_new = self.streaks["actions"] == run.iteration and begins_anew
        if is_new and self.num_seen >= MIN_ACTIONS:
            yield "actions", self._describe_clipped(run.config)
        if self.streaks["clipped"] >= MAX_STREAK:
            fix = "give --clip_value_coef=none, or --normalize_rewards=True"
            yield "clipped", f"over 90 % of value updates are clipped, which slows them down: {fix}"
        is_late = run.iteration >= LATE * run.config.iterations
        has_mean = run.metrics["episode_return_mean"] is not None
        if is_late and has_mean and run.metrics["episodes"] >= MIN_EPISODES:
            yield from self._late_problems(run)

    def _late_problems(self, run: Run) -> Problems:
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
        if entropy > high and isinstance(bonus, float) and bonus >= LARGE_ENTROPY_COEF:
            fix = f"lower --entropy_coef={bonus:g}"
            yield "bonus", f"the entropy stays near that of the first policy: {fix}"
        first_return = self.first.get("episode_return_mean", 0.0)
        improved = first_return + MIN_IMPROVEMENT * max(abs(first_return), 1e-3)
        if self.streaks["actions"] >= 3 and run.metrics["episode_return_mean"] <= improved:
            yield "actions", self._describe_clipped(run.config)
        if self.best_return > improved:
            return
        if self.streaks["explained"] >= MAX_STREAK:
            yield (
                "explained",
                f"explained variance was < 0 for {MAX_STREAK} iterations and the return does not "
                "improve: lower --learning_rate, or raise --gae_lambda",
            )
        if self.streaks["endless"] >= MAX_STREAK:
            yield (
                "limit",
                "the time limit truncates over 95 % of episodes and the return does not improve: "
                "give rewards earlier in the episode, or raise the limit",
            )
        if entropy < low:
            problem = "the entropy has collapsed and the return does not improve"
            yield "entropy", f"{problem}: raise --entropy_coef"

    def _describe_clipped(self, config: Config) -> str:
        """Say which actions are clipped, and what to do."""
        assert self.bounds is not None
        column = int(self.clipped.argmax())
        low, high = self.bounds[:, column]
        if not np.isfinite(low + high):
            fix = "give the action space two bounds, to which actions are scaled"
        elif not config.scale_actions:
            fix = "begin a run with --scale_actions=True"
        else:
            fix = "lower --entropy_coef or --log_std_init, or give --squash_actions=True"
        where = f" of number {column + 1} of {self.clipped.size}" if self.clipped.size > 1 else ""
        return (
            f"{self.clipped[column]:.0%} of actions{where} are clipped, as they are not in "
            f"[{low:g}, {high:g}], so that exploration changes little: {fix}"
        )
