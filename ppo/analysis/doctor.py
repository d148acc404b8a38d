"""What is wrong with a run, in words, while there is still time to end it. Limits are such that no run in
results/learning would have been warned of."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

FAR, FAR_AT_ONCE = 0.5, 1.0  # KL of an iteration, three times in a row, or once
LONG = 30  # iterations
EARLY = 0.3  # of the run: what has not begun to learn by then may never
FEW_EPISODES = 50
RISE = 0.3  # of the first return's size: less may be chance
LARGE_RETURNS, LARGE_OBSERVATIONS, LARGE_BONUS = 1_000.0, 1_000.0, 0.05


class IterationDiagnostics(NamedTuple):
    """Of an iteration, beside its metrics. endings: of the episodes that ended, whether the time limit ended them;
    deviation of returns, as they are learned from; largest size of an observation's number, None of images;
    is_constant: whether all observations are the same."""

    endings: list[bool]
    returns_deviation: float
    largest_observation: float | None
    is_constant: bool


class Doctor:
    """Looks at every iteration, and says of each thing that is wrong once what it is. num_actions: columns of actions
    if they are numbers, 0 if they are choices."""

    def __init__(self, config: Any, num_actions: int) -> None:
        self.config, self.num_actions = config, num_actions
        self.said: set[str] = set()
        self.streaks: dict[str, int] = {}
        self.endings: deque[bool] = deque(maxlen=100)
        self.first: dict[str, float] = {}
        self.best_return = -float("inf")

    def remember(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """What an earlier part of the run has written counts too."""
        for row in rows:
            self._note(row)

    def look(
        self, metrics: dict[str, Any], seen: IterationDiagnostics, progress: float
    ) -> list[str]:
        """What is to be said after an iteration. progress: how much of the run is done, up to 1."""
        self.endings.extend(seen.endings)
        self._note(metrics)
        new = {
            name: text
            for name, text in self._findings(metrics, seen, progress)
            if name not in self.said
        }
        self.said |= new.keys()
        return list(new.values())

    def _note(self, metrics: Mapping[str, Any]) -> None:
        """Keep the first return and entropy, and the best return. metrics: numbers, or texts that may be empty."""
        names = ("episode_return_mean", "entropy")
        known = {
            name: float(metrics[name]) for name in names if metrics.get(name) not in (None, "")
        }
        self.first = {**known, **self.first}
        self.best_return = max(self.best_return, known.get("episode_return_mean", self.best_return))

    def _findings(
        self, metrics: dict[str, Any], seen: IterationDiagnostics, progress: float
    ) -> Iterator[tuple[str, str]]:
        config, kl, first_entropy = (
            self.config,
            metrics.get("approx_kl", 0.0),
            self.first.get("entropy", 0.0),
        )
        if self._lasts("kl", kl > FAR) >= 3 or not kl <= FAR_AT_ONCE:
            yield (
                "kl",
                f"the policy leaps (KL {kl:.2g} in an update): lower --learning_rate, or set --target_kl",
            )
        if seen.is_constant:
            yield (
                "constant",
                "all observations are the same: the policy cannot tell one moment from another",
            )
        largest, is_raw = seen.largest_observation or 0.0, config.normalize_observations is not True
        if is_raw and largest > LARGE_OBSERVATIONS:
            yield (
                "observations",
                f"observations are as large as {largest:.2g}: give --normalize_observations=True",
            )
        if seen.returns_deviation > LARGE_RETURNS:
            fix = "--normalize_rewards=True, or scale rewards in the environment"
            yield (
                "returns",
                f"returns deviate by {seen.returns_deviation:.2g}, far from 1: give {fix}",
            )
        if self._lasts("clipped", metrics.get("value_clip_fraction", 0.0) > 0.9) >= LONG:
            fix = "give --clip_value_coef=none, or --normalize_rewards=True"
            yield "clipped", f"nearly every value is clipped, so that they hardly learn: {fix}"
        is_wrong = self._lasts("explained", metrics["explained_variance"] < 0) >= LONG
        is_endless = len(self.endings) >= FEW_EPISODES and sum(self.endings) > 0.95 * len(
            self.endings
        )
        is_endless = self._lasts("endless", is_endless) >= LONG
        if progress < EARLY or metrics["episodes"] < FEW_EPISODES:
            return
        entropy, bonus, count = (
            metrics.get("entropy", first_entropy),
            config.entropy_coef,
            self.num_actions,
        )
        is_high = entropy > (first_entropy - 0.1 * count if count else 0.9 * first_entropy)
        if is_high and isinstance(bonus, float) and bonus >= LARGE_BONUS:
            yield (
                "bonus",
                f"actions stay nearly as random as at first: lower --entropy_coef={bonus:g}",
            )
        if self._has_risen():
            return
        if is_wrong:
            text = f"values have explained nothing of returns for {LONG} iterations, which do not rise either"
            yield "explained", f"{text}: lower --learning_rate, or raise --gae_lambda"
        if is_endless:
            fix = "reward what comes before the end, or lengthen the limit"
            yield (
                "limit",
                f"the time limit ends nearly all episodes, and the return does not rise: {fix}",
            )
        if entropy < (first_entropy - 4 * count if count else 0.05 * first_entropy):
            yield (
                "entropy",
                "actions are hardly random any more, and the return has not risen: raise --entropy_coef",
            )

    def _lasts(self, name: str, is_so: bool) -> int:
        """For how many iterations in a row something has been so."""
        self.streaks[name] = self.streaks.get(name, 0) + 1 if is_so else 0
        return self.streaks[name]

    def _has_risen(self) -> bool:
        """Whether returns have grown by more than chance."""
        first = self.first.get("episode_return_mean", 0.0)
        return self.best_return > first + RISE * max(abs(first), 1e-3)
