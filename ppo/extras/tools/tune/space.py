"""Search spaces of ppo tune: flags, and the values that each may take."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from ppo.config.config import Config
from ppo.config.flags import NUMBER, Settings, allowed_values, convert
from ppo.errors import ConfigError, suggest

if TYPE_CHECKING:
    from optuna import Trial  # not installed without the extra tune

TERM = re.compile(rf"(\w+)=(\w+:)?(?:(log|range)\(({NUMBER}),({NUMBER})\)|([^()]+))")
NOT_SEARCHED = {"env_name", "env_kwargs", "eval_env", "preset", "seed"}
FIELDS = {field.name: field for field in fields(Config)}
# The default search spaces, by the environment's family.
COMMON = "learning_rate=linear:log(1e-4,5e-3) gae_lambda=0.9|0.95|0.98 clip_coef=0.1|0.2|0.3"
VECTORS = (
    f"{COMMON} num_steps=64|128|256|512|1024 batch_size=64|128|256|512 num_epochs=4|10|20 "
    "gamma=0.98|0.99|0.995|0.999 entropy_coef=0|0.001|0.01"
)
SPACES = {
    "discrete": VECTORS,
    "continuous": f"{VECTORS} log_std_init=-2|-1|0 activation=tanh|relu hidden_size=64|256",
    "categories": VECTORS,
    "images": f"{COMMON} num_steps=64|128|256 num_epochs=2|4|8 entropy_coef=0.001|0.01|0.03",
}


class Dimension(NamedTuple):
    """A flag and the values that it may take: the words, or if there are none, numbers from low to
    high, both included, after a schedule such as "linear:". is_log: draw their logarithm evenly."""

    name: str
    words: list[str]
    schedule: str = ""
    is_log: bool = False
    low: float = 0
    high: float = 0

    def suggest(self, trial: "Trial", name: str) -> str:
        """Return a value, drawn by a trial as its parameter of this name, as a text that the flag
        takes."""
        if self.words:
            return str(trial.suggest_categorical(name, self.words))
        if allowed_values(FIELDS[self.name])[0] is int:
            low, high = int(self.low), int(self.high)
            return f"{self.schedule}{trial.suggest_int(name, low, high, log=self.is_log)}"
        number = trial.suggest_float(name, self.low, self.high, log=self.is_log)
        return f"{self.schedule}{number:.6g}"

    def numbers(self) -> list[int]:
        """Return the words as numbers, or the bounds."""
        return [int(float(word)) for word in self.words] or [int(self.low), int(self.high)]

    def fitting(self, sizes: Mapping[str, int]) -> "Dimension":
        """Return this with those values only with which a rollout fits into the budget. sizes: see
        _first_sizes. Raises ConfigError if there are none."""
        total, num_envs, num_steps = sizes.values()
        low: float = 1
        high = total // (num_steps if self.name == "num_envs" else num_envs)
        if self.name == "total_steps":
            low, high = num_envs * num_steps, max(total, 1)
        elif self.name not in sizes or not total:  # with which nothing is trained
            return self
        words = [x for x in self.words if low <= float(x) <= high]
        kept = self._replace(words=words, low=max(self.low, low), high=min(self.high, high))
        if words or (not self.words and kept.low <= kept.high):
            return kept
        raise ConfigError(
            f"--space: no {self.name} leads to a rollout (num_envs x num_steps) that --total_steps "
            "allows: give lower values, or more steps"
        )


def fitting(space: Sequence[Dimension], config: Config) -> list[Dimension]:
    """Return a space without the values that --total_steps never suffices for. config: has the
    flags that are not searched. Raises ConfigError if none are left."""
    sizes = _first_sizes(space, config)
    return [dimension.fitting(sizes) for dimension in space]


def draw(space: Sequence[Dimension], trial: "Trial", config: Config) -> Settings:
    """Return values that a trial draws from a fitting space, one after another: of those that
    decide on the rollout's size, such as fit with what is drawn already."""
    sizes = _first_sizes(space, config)
    flags: Settings = {}
    for dimension in sorted(space, key=lambda one: one.name != "total_steps"):
        name = dimension.name
        part = dimension.fitting(sizes)
        # Optuna knows the choices of a parameter by its name, and they must stay the same.
        known = name if part.words == dimension.words else f"{name} of {'|'.join(part.words)}"
        flags[name] = part.suggest(trial, known)
        if name in sizes:
            sizes[name] = int(float(flags[name]))
    return flags


def _first_sizes(space: Sequence[Dimension], config: Config) -> dict[str, int]:
    """Return what decides whether a rollout fits into the budget: of flags that are searched, the
    values with which most others do."""
    sizes = {name: getattr(config, name) for name in ("total_steps", "num_envs", "num_steps")}
    for dimension in space:
        if (name := dimension.name) in sizes:
            choose = max if name == "total_steps" else min
            sizes[name] = choose(dimension.numbers())
    return sizes


def default_space(family: str, given: Settings) -> str:
    """Return the default search space of a family, for parse_space, without given flags."""
    known = {*given, "batch_size"} if "num_minibatches" in given else {*given}
    return " ".join(x for x in SPACES[family].split() if x.partition("=")[0] not in known)


def parse_space(space: str, given: Settings) -> list[Dimension]:
    """Parse a text such as "learning_rate=linear:log(1e-4,3e-3) gamma=range(0.9,1) num_envs=8|16".

    given: flags of the command line, which cannot be searched as well. Raises ConfigError for an
    unknown, given or repeated flag, for values that it does not take, and for an empty space.
    """
    known = {*Config.names(scope="training")} - NOT_SEARCHED
    found: dict[str, Dimension] = {}
    for term in space.split():
        match = TERM.fullmatch(term)
        if not match:
            raise ConfigError(
                f"--space: {term} names no values: give flag=log(low,high), flag=range(low,high) "
                "or flag=value|value"
            )
        name, schedule, scale, low, high, words = match.groups(default="")
        if name not in known:
            hint = suggest(name, known, "give flags of ppo --help=all")
            raise ConfigError(f"--space: {name} cannot be searched: {hint}")
        dimension = Dimension(name, f"{schedule}{words}".split("|"))
        if scale:
            dimension = Dimension(name, [], schedule, scale == "log", float(low), float(high))
            if not dimension.low < dimension.high or (dimension.is_log and dimension.low <= 0):
                raise ConfigError(
                    f"--space: {term}: give a lower bound, above 0 for log, and a higher one"
                )
        if name in given or name in found:
            raise ConfigError(f"--{name} is searched already: give it once, here or in --space")
        for text in dimension.words or (f"{schedule}{low}", f"{schedule}{high}"):
            convert(FIELDS[name], text)
        found[name] = dimension
    if not found:
        raise ConfigError("--space: give at least one flag with its values")
    return [*found.values()]
