"""Start from another run's weights, and hold parameters: --init_from, --freeze, --critic_warmup."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ppo.callbacks import Callback
from ppo.checkpoint import State, find, load, select
from ppo.config import flag
from ppo.errors import CheckpointError, ConfigError, suggest
from ppo.models.actor_critic import named_tensors
from ppo.rollout import Batch
from ppo.run import Run

Shaped = Mapping[str, Any]  # tensors, arrays or spaces by name
EQUAL = ("image", "normalize_observations", "activation")  # flags


@dataclass
class FineTuning(Callback):
    """Parameters are held by their requires_grad. Raises ConfigError for weights that do not fit,
    for an unknown parameter, and if nothing is left to learn."""

    init_from: str | None = None
    """Run or policy file whose weights and observation statistics a new run starts with."""
    freeze: tuple[str, ...] = ()
    """Parameters to freeze, by name or prefix, such as policy_trunk; can be repeated."""
    critic_warmup: int = flag(0, 0)
    """Iterations at the start in which only the value network is trained; the policy, and
    observation statistics that it came with, do not change."""

    def __post_init__(self) -> None:
        self.source: str | None = None  # what the run has started from
        self.of_policy: list[nn.Parameter] = []  # held in the warm-up

    def on_start(self, run: Run) -> None:
        if self.init_from and self.init_from != self.source:
            with naming(f"--init_from={self.init_from}"):
                if run.iteration:
                    raise ConfigError("this run has already started without it: leave the flag out")
                self._initialize(run, find(self.init_from))
        self._freeze(run.model)
        if run.iteration < self.critic_warmup:
            self._find_policy(run)

    def on_batch(self, run: Run, batch: Batch) -> None:
        """Hold the policy for an update."""
        if run.iteration > self.critic_warmup:
            return
        self.learning_rate = run.learner.learning_rate
        buffers = run.model.buffers()  # of batch norm
        self.buffers = [x.clone() for x in buffers]
        for parameter in self.of_policy:
            parameter.requires_grad_(False)
        if run.normalize.statistics.count >= 1:
            run.normalize.enabled = False

    def on_iteration(self, run: Run) -> None:
        """Release it; after the warm-up, restart the optimizer. Adam corrects its moments for the
        number of steps (Kingma & Ba 2015, section 3), but the policy's are still zero: its first
        steps would be up to six times too long."""
        if run.iteration > self.critic_warmup:
            return
        run.learner.learning_rate = self.learning_rate  # an adaptive one saw a KL of zero
        buffers = run.model.buffers()
        for buffer, before in zip(buffers, self.buffers, strict=True):
            buffer.copy_(before)
        for parameter in self.of_policy:
            parameter.requires_grad_(True)
        run.normalize.enabled = bool(run.config.normalize_observations)
        run.publish()
        if run.iteration == self.critic_warmup:
            run.learner.optimizer = run.learner.make_optimizer()

    def state_dict(self) -> State:
        return {"source": self.source}

    def load_state_dict(self, state: State) -> None:
        self.source = state["source"]

    def _initialize(self, run: Run, path: Path) -> None:
        """Load weights and observation statistics. Nothing that the file names is imported."""
        state = load(path)
        own = named_tensors(run.model)
        saved = select("model", state)
        check_fits(run, own, state, saved, EQUAL)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(saved[name]))
        statistics = select("normalize_observation", state)
        run.normalize.statistics.load_state_dict(statistics)
        run.publish()
        self.source = self.init_from
        run.note(f"starting with the weights and observation statistics of {path}")

    def _freeze(self, model: nn.Module) -> None:
        parameters = dict(model.named_parameters())
        starts = ",".join(self.freeze)
        for start in filter(None, starts.split(",")):
            chosen = []
            for name, parameter in parameters.items():
                if name.startswith(start):
                    chosen.append(name)
                    parameter.requires_grad_(False)
            if not chosen:
                parts = {name.partition(".")[0] for name in parameters}
                hint = suggest(start, parts)
                raise ConfigError(f"--freeze={start} is not the name of a parameter{hint}")
        is_learned = [x.requires_grad for x in parameters.values()]
        if not any(is_learned):
            raise ConfigError("--freeze leaves nothing to learn: name fewer parameters")

    def _find_policy(self, run: Run) -> None:
        """Find the parameters that the policy depends on, without frozen ones."""
        distribution = probe(run)
        likeliest = distribution.mode()
        outputs = distribution.log_prob(likeliest) + distribution.entropy()
        if not outputs.requires_grad:
            return
        learned = [x for x in run.model.parameters() if x.requires_grad]
        total = outputs.sum()
        gradients = torch.autograd.grad(total, learned, allow_unused=True)
        for parameter, gradient in zip(learned, gradients, strict=True):
            if gradient is not None:
                self.of_policy.append(parameter)
        if len(self.of_policy) == len(learned):
            raise ConfigError(
                "--critic_warmup: the policy depends on all trainable parameters: leave the "
                "flag out, or give the value network parameters of its own"
            )


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Name a flag in the errors that are raised in this context."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        raise type(error)(f"{flag}: {error}") from error


def check_fits(
    run: Run,
    own: Shaped,
    state: State,
    saved: Shaped,
    flags: Sequence[str],
) -> None:
    """Raise ConfigError unless a saved policy has the actions and the values of flags of a run, and
    what it consists of has the names and shapes of the run's own."""
    here = vars(run.config) | shapes_of(own)
    here["actions"] = run.spaces.in_json[1]
    there = state["config"] | shapes_of(saved)
    there["actions"] = state["spaces"][1]
    if there["normalize_observations"] == "auto":
        there["normalize_observations"] = run.spaces.layout.has_numbers
    for name in ("actions", *flags, *own, *saved):
        its = there.get(name)
        ours = here.get(name)
        if its != ours:
            raise ConfigError(f"it has {name} {its}, this run has {ours}: they must match")


def shapes_of(parts: Shaped) -> dict[str, Any]:
    shapes = {}
    for name, part in parts.items():
        shapes[name] = tuple(part.shape)
    return shapes


def probe(run: Run) -> Any:
    """Return the policy's distribution of actions for an observation of zeros."""
    batch = {}
    names = [*run.spaces.layout.tables, "states"]
    for name in names:
        table = run.rollout.tables[name]
        row = table[0, :1]
        if row.size:
            batch[name] = run.learner.table(row)
    distribution, _ = run.learner.forward(batch)
    return distribution
