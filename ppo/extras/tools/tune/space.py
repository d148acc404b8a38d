"""Search spaces of ppo tune: flags, and the values that each may take."""

import re
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

    def suggest(self, trial: "Trial") -> str:
        """Return a value, drawn by a trial, as a text that the flag takes."""
        if self.words:
            return str(trial.suggest_categorical(self.name, self.words))
        if allowed_values(FIELDS[self.name])[0] is int:
            low, high = int(self.low), int(self.high)
            return f"{self.schedule}{trial.suggest_int(self.name, low, high, log=self.is_log)}"
        number = trial.suggest_float(self.name, self.low, self.high, log=self.is_log)
        return f"{self.schedule}{number:.6g}"


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
            hint = suggest(name, known, "give flags of ppo --help")
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
