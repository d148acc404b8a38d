"""Spaces of flags' values, which ppo tune searches."""

import re
from dataclasses import fields
from typing import NamedTuple

from ppo.config.config import Config
from ppo.config.flags import Settings, allowed_values, convert
from ppo.config.resolve import family_of, resolve
from ppo.config.run_flags import NUMBER
from ppo.errors import ConfigError, suggest

TERM = re.compile(rf"(\w+)=(\w+:)?(?:(log|range)\(({NUMBER}),({NUMBER})\)|(.+))")
SETTLED = {"env_name", "env_kwargs", "eval_env", "preset", "seed"}
FIELDS = {field.name: field for field in fields(Config)}
# What is searched by default, by the environment's family.
COMMON = "learning_rate=linear:log(1e-4,5e-3) gae_lambda=0.9|0.95|0.98 clip_coef=0.1|0.2|0.3"
VECTORS = (
    f"{COMMON} num_steps=64|128|256|512|1024 batch_size=64|128|256|512 num_epochs=4|10|20 "
    "gamma=0.98|0.99|0.995|0.999 entropy_coef=0|0.001|0.01"
)
IMAGES = f"{COMMON} num_steps=64|128|256 num_epochs=2|4|8 entropy_coef=0.001|0.01|0.03"
SPACES = {
    "discrete": VECTORS,
    "continuous": f"{VECTORS} log_std_init=-2|-1|0 activation=tanh|relu hidden_size=64|256",
    "categories": VECTORS,
    "images": IMAGES,
}


class Dimension(NamedTuple):
    """A flag and the values that it may take: one of some words, or a number from low to high with
    a schedule before it."""

    name: str
    words: list[str]
    schedule: str = ""
    is_log: bool = False
    low: float = 0
    high: float = 0

    def suggest(self, trial) -> str:
        """Return a value, as a text, that an optuna.Trial draws."""
        if self.words:
            return str(trial.suggest_categorical(self.name, self.words))
        return self.text(trial.suggest_float(self.name, self.low, self.high, log=self.is_log))

    def text(self, number: float) -> str:
        """Return a number as it is tried: to three digits, and whole if the flag's are."""
        is_whole = allowed_values(FIELDS[self.name])[0] is int
        return self.schedule + (str(round(number)) if is_whole else f"{number:.3g}")

    def check(self) -> None:
        """Raises ConfigError for a value that the flag does not take."""
        for text in self.words or (self.text(self.low), self.text(self.high)):
            convert(FIELDS[self.name], text)


def default_space(config: Config) -> str:
    """Return what is searched by default in a config's environment. Raises as resolve does."""
    return SPACES[family_of(resolve(config)[1])]


def parse_space(space: str, given: Settings) -> list[Dimension]:
    """Read a text such as "learning_rate=linear:log(1e-4,3e-3) gamma=range(0.9,1) num_envs=8|16".

    given: settings that are not searched. Raises ConfigError for what is no flag, or none of its
    values.
    """
    found = []
    for term in space.split():
        match = TERM.fullmatch(term)
        if not match:
            raise ConfigError(
                f"--space: {term} names no values: give flag=log(low,high), flag=range(low,high) "
                "or flag=value|value"
            )
        name, schedule, scale, low, high, words = match.groups(default="")
        known = {*Config.names(scope="training")} - SETTLED
        if name not in known:
            hint = suggest(name, known, "give flags of ppo --help")
            raise ConfigError(f"--space: {name} cannot be searched: {hint}")
        dimension = Dimension(name, f"{schedule}{words}".split("|"))
        if scale:
            dimension = Dimension(name, [], schedule, scale == "log", float(low), float(high))
            if not dimension.low < dimension.high or (dimension.is_log and dimension.low <= 0):
                raise ConfigError(
                    f"--space: {term}: give a lower bound, above 0 for log, and a higher one"
                )
        if name in given:
            raise ConfigError(f"--{name} is searched: leave it out, or leave it out of --space")
        dimension.check()
        found.append(dimension)
    return found
