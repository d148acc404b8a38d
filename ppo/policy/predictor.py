"""Predict actions, values, log-probabilities and distributions by a trained policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from ppo.envs.normalize import NormalizeObservation
from ppo.envs.probe import Spaces
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.extensions import functions_of
from ppo.models.noise import EMPTY, draw_rows
from ppo.models.observation_parts import parts_of
from ppo.policy.factories import ActorFactory
from ppo.policy.reader import Observations, Reader, read_actions

if TYPE_CHECKING:
    from ppo.config.config import Config
    from ppo.models.actor import Actor  # heavy, as the next
    from ppo.models.distributions import Distribution


@dataclass(eq=False)
class PolicyNetwork:
    """Answer for one observation or for n at once.

    config: the run's, resolved; weights: (P,) float32, the model's parameters and persistent
    buffers; make_actor: makes a ppo.models.actor.Actor, or what acts like one, from weights."""

    config: "Config"
    spaces: Spaces
    weights: ndarray
    make_actor: Callable[[ndarray], Any]
    normalize: NormalizeObservation

    def __post_init__(self) -> None:
        self.to_actions = action_converter(
            self.spaces.actions, self.config.squash_actions, self.config.scale_actions
        )
        self.to_mask = mask_converter(self.spaces.actions) if self.spaces.has_masks else None
        self.generator = np.random.default_rng(self.config.seed)

    @cached_property
    def actor(self) -> Any:
        """The network, made on first use: a policy that is only pickled does not need it."""
        return self.make_actor(self.weights)

    @cached_property
    def torch_actor(self) -> "Actor":
        """The network in torch, which knows values and distributions."""
        from ppo.models.actor import Actor

        if isinstance(self.actor, Actor):
            return self.actor
        return Actor(ActorFactory(self.config, self.spaces).make_model(), self.weights)

    @cached_property
    def state(self) -> ndarray:
        """The recurrent states (n, S) of the n episodes that predict plays, S = 0 without memory;
        zeros where an episode begins."""
        return self.initial_state()

    @cached_property
    def reader(self) -> Reader:
        """What reads observations."""
        reader = Reader(self.config, self.spaces)
        for around in functions_of("reader"):
            reader = around(reader)
        return reader

    @cached_property
    def parts(self) -> list[str]:
        """The names of the parts of an observation that the policy reads."""
        names = getattr(self.actor, "policy_parts", None)
        return [*(names or parts_of(self.spaces.observations))]

    def initial_state(self, n: int = 1) -> ndarray:
        """Return recurrent states (n, S) for the beginnings of n episodes: zeros."""
        return np.zeros((n, self.actor.state_size), np.float32)

    def reset(self, episode: int | None = None) -> None:
        """Forget the episodes that predict plays, or one of n: recurrent states, and what was shown
        before. Call it before each episode."""
        self.reader.reset(episode)
        if episode is None:
            vars(self).pop("state", None)
        else:
            self.state[episode : episode + 1] = 0

    def predict(
        self,
        observation: Any,
        deterministic: bool = True,
        info: Any = None,
        state: ndarray | None = None,
    ) -> Any:
        """Return the action for an observation, as the environment's step takes it, or n for n.

        observation: one that self.reader reads, such as make_env() shows it, or n of them; only
        self.parts are needed; deterministic: whether to take the most likely action, else a random
        one, drawn anew each time; info: that of the observation, needed for its action mask only,
        or n of them; state: recurrent states (n, S) of initial_state, which are overwritten by the
        next ones, by default self.state.
        Raises ValueError for a missing part, another shape, dtype or number of anything, numbers
        that are not finite, and choices that do not exist."""
        read, states = self._read(observation, info, state)
        actions = self.act(read.rows, read.infos, states, deterministic)
        self.reader.remember(read)
        return actions if read.is_batch else actions[0]

    def values(self, observation: Any, state: ndarray | None = None) -> Any:
        """Return the value of an observation, a float, or (n,) of n: the expected discounted sum of
        the rewards to come, in units of those learned from (--normalize_rewards divides them).

        observation, state, errors: as of predict, but the critic may need more parts than
        self.parts, and no state changes."""
        read, states = self._read(observation, None, state, for_critic=True)
        values = self.torch_actor.values(self.normalize(read.rows), states)
        return values if read.is_batch else values.item()

    def log_probs(
        self, observation: Any, action: Any, info: Any = None, state: ndarray | None = None
    ) -> Any:
        """Return the logarithm of an action's probability (density, where actions are numbers), a
        float, or (n,) of n actions, for n observations.

        action: as predict returns it; n of them may be an array. A number at a bound of its Box is
        taken for one that was not clipped; of numbers that --squash_actions or --scale_actions
        scales, the density is that of actions in [-1, 1]. The rest: as of predict, but no state
        changes."""
        read, states = self._read(observation, info, state)
        squash, scale = self.config.squash_actions, self.config.scale_actions
        num, is_batch = len(read.rows), read.is_batch
        columns = read_actions(self.spaces.actions, action, num, is_batch, squash, scale)
        distribution = self._distribution(read, states)
        log_probs = distribution.log_prob(self.torch_actor.tensor(columns)).cpu().numpy()
        return log_probs if is_batch else log_probs.item()

    def distribution(
        self, observation: Any, info: Any = None, state: ndarray | None = None
    ) -> "Distribution":
        """Return the distribution of n actions; n is 1 for an observation.

        Its tensors are of the policy's columns (n, D), a column for each number of an action, in
        [-1, 1] where --scale_actions scales it to its bounds. The arguments: as of predict, but no
        state changes."""
        return self._distribution(*self._read(observation, info, state))

    def act(
        self,
        observations: ndarray,
        infos: Sequence[Any],
        states: ndarray,
        deterministic: bool = True,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """Return n actions, as step takes them, for observations (n, *observation) and n infos;
        overwrite the recurrent states (n, S) by the next ones. generator: of random actions, by
        default the policy's own."""
        noise = None
        if not deterministic:
            generator = generator or self.generator
            noise = draw_rows(self.actor.draw_noise, generator, len(observations))
        masks = self._masks(infos)
        columns = self.actor(self.normalize(observations), noise, masks, states=states)
        return self.to_actions(columns)

    def _read(
        self, observation: Any, info: Any, state: ndarray | None, for_critic: bool = False
    ) -> tuple[Observations, ndarray]:
        """Return n observations, and states (n, S)."""
        needed = [*parts_of(self.spaces.observations)] if for_critic else self.parts
        read = self.reader.read(observation, info, needed, "critic" if for_critic else "policy")
        if read.memory and state is not None:
            raise ValueError(
                "state= carries none of what was shown before: leave it out, or give stacks of "
                "observations, as make_env() shows them"
            )
        return read, self._states(len(read.rows), state)

    def _states(self, n: int, state: ndarray | None) -> ndarray:
        """Return the recurrent states (n, S) to use: those given, or those of the policy itself."""
        if state is None:
            if len(self.state) != n:
                if self.state.any():
                    raise ValueError(
                        f"the policy remembers {len(self.state)} episodes, and is given {n} "
                        "observations: call reset() where episodes begin, or give state="
                    )
                self.state = self.initial_state(n)
            state = self.state
        shape = (n, self.actor.state_size)
        if state.shape != shape or state.dtype != np.float32:
            raise ValueError(
                f"state is {state.dtype} {state.shape}: give float32 {shape}, as of "
                f"initial_state({n})"
            )
        if state.size and not np.isfinite(state).all():
            row = np.argwhere(~np.isfinite(state))[0, 0]
            raise ValueError(
                f"row {row} of the recurrent state is not finite: set it to 0, which begins anew"
            )
        return state

    def _distribution(self, read: Observations, states: ndarray) -> "Distribution":
        rows = self.normalize(read.rows)
        return self.torch_actor.distribution(rows, self._masks(read.infos), states)

    def _masks(self, infos: Sequence[Any]) -> ndarray:
        """Return the policy's masks (n, M) bool of n infos, or an empty array without masks."""
        if not self.to_mask:
            return EMPTY
        return np.array([self.to_mask(info.get(ACTION_MASK)) for info in infos])
