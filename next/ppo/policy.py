"""A trained policy: predict, evaluate, save, load."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.config import Config
from ppo.envs.columns import SingleColumns
from ppo.envs.episodes import set_attributes
from ppo.envs.make import EnvMaker, Spaces, calling
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.observations import NUMBERS, Reader
from ppo.envs.sampler import observer
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, action_converter, from_json, mask_converter, to_json
from ppo.errors import CheckpointError, ConfigError, reason
from ppo.evaluation import Evaluation, Film, Play, summarize
from ppo.models.noise import EMPTY


class Policy:
    """Act on observations as environments return them.

    predict plays one episode, from each reset() to the next; predict_batch plays n side by side.
    Where observations are stacked or the network is recurrent, both remember earlier steps."""

    def __init__(
        self,
        spaces: Spaces,
        *,
        weights: Mapping[str, ndarray],
        make_actor: Callable[[ndarray], Any],
        statistics: tuple[ndarray, ndarray],
        env_attributes: Mapping[str, Any],
        step: int = 0,
    ) -> None:
        self.config = spaces.config
        self.spaces = spaces
        self.weights = weights
        self.vector = np.concatenate([x.ravel() for x in weights.values()], dtype=np.float32)
        self.actor = make_actor(self.vector)
        self.statistics = statistics
        config = spaces.config
        enabled = bool(config.normalize_observations)
        self.observe = observer(spaces.layout, NormalizeObservation(*statistics, enabled))
        self.env_attributes = env_attributes
        self.step = step
        self.to_actions = action_converter(spaces.actions, config.squash_actions)
        self.to_mask = mask_converter(spaces.actions)
        self.generator = np.random.default_rng(config.seed)
        self.reset()

    def reset(self) -> None:
        """Forget earlier steps; call it at the start of each episode that predict plays."""
        self.readers: list[Reader] = []
        self.states = np.zeros((0, self.actor.state_size), np.float32)

    def predict(self, observation: Any, *, deterministic: bool = True, info: Any = None) -> Any:
        """Return the action for an observation of the environment, as its step takes it.

        deterministic: the most likely action, rather than a sample; info: the environment's, which
        may have an action_mask."""
        infos = None if info is None else [info]
        return self.predict_batch([observation], deterministic=deterministic, infos=infos)[0]

    def predict_batch(
        self,
        observations: Sequence[Any],
        *,
        deterministic: bool = True,
        infos: Sequence[Any] | None = None,
    ) -> Sequence[Any]:
        """Return the actions for n observations, of n environments that begin together."""
        rows = self._read(observations)
        noise = None
        if not deterministic:
            noise = self.draw_noise(len(observations), self.generator)
        mask = EMPTY
        if self.spaces.has_masks and infos is not None:
            mask = np.stack([self.to_mask(info.get(ACTION_MASK)) for info in infos])
        actions = self.actor(self.observe(rows), noise, mask=mask, states=self.states)
        return self.to_actions(np.asarray(actions))

    def values(self, observations: Sequence[Any]) -> ndarray:
        """Return the values (n,) of n observations, in the units in which rewards were learned."""
        rows = self._read(observations, keep=False)
        return self.actor.values(self.observe(rows), self.states)

    def log_probs(self, observations: Sequence[Any], actions: ndarray) -> ndarray:
        """Return the log-probabilities (n,) of actions (n, D), as in rollouts, for n observations;
        D numbers describe an action, neither scaled nor clipped."""
        import torch

        from ppo.models import MakeTorchActor

        actor = MakeTorchActor(self.config, self.spaces, self.config.hooks)(self.vector)
        rows = self._read(observations, keep=False)
        distribution = actor.distribution(self.observe(rows), states=self.states)
        return np.asarray(distribution.log_prob(torch.as_tensor(np.asarray(actions))))

    def draw_noise(self, num_rows: int, generator: np.random.Generator) -> ndarray:
        """Draw the noise (n, *noise) of a step of n environments."""
        return np.concatenate([self.actor.draw_noise(generator, 1) for _ in range(num_rows)])

    def _read(self, observations: Sequence[Any], keep: bool = True) -> dict[str, ndarray]:
        """Return tables (n, ...) of n observations. keep: whether they are the next step."""
        if len(self.readers) != len(observations):
            self.reset()
            self.readers = [Reader(self.spaces.layout) for _ in observations]
            self.states = np.zeros((len(observations), self.actor.state_size), np.float32)
        readers = self.readers
        if not keep:
            readers = [Reader(self.spaces.layout) for _ in observations]
        rows = [read(x) for read, x in zip(readers, observations, strict=True)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def make_env(self, render_mode: str | None = None) -> Env:
        """Make an environment as in training, whose observations predict reads. Raises ConfigError
        if there is none."""
        env = self.spaces.make_env(self.config.num_envs, render_mode)
        set_attributes(env, self.env_attributes)
        return env

    def evaluate(
        self,
        episodes: int = 10,
        *,
        num_envs: int = 8,
        deterministic: bool = True,
        seed: int | None = None,
        video: str | Path | None = None,
        render: str | None = None,
        should_stop: Callable[[], bool] = bool,
    ) -> Evaluation:
        """Play whole episodes, several side by side. seed: of the episodes, by default the run's;
        video: a file such as play.mp4 or play.gif, of all episodes one after the other; render:
        "human" shows them in a window.

        There are no episodes once should_stop returns true. Raises ConfigError if the environment
        or the video cannot be made, EnvironmentFailed for what the environment raises."""
        if not episodes:
            return Evaluation()
        seed = self.config.seed if seed is None else seed
        name = self.spaces.make_env.spec.id
        with calling(name):
            play = Play(
                self,
                [integer_seed(seed, Stream.EVALUATION, x) for x in range(episodes)],
                num_envs=1 if video or render else min(num_envs, episodes),
                is_sampled=not deterministic,
                render_mode="rgb_array" if video else render,
            )
        film = Film(video, play.columns.envs[0]) if video else None
        try:
            with calling(name):
                while play.play_step():
                    if film:
                        film.add()
                    if should_stop():
                        return Evaluation()
        finally:
            play.close()
        if film:
            film.write()
        return summarize([play.found[x] for x in range(episodes)])

    def save(self, path: str | Path) -> None:
        """Save the policy alone, without what training needs. Raises OSError."""
        from ppo.checkpoint import copied, save

        shift, scale = self.statistics
        content = {
            **{f"model.{name}": x for name, x in self.weights.items()},
            "statistics.shift": shift,
            "statistics.scale": scale,
            "config": self.config.to_json(),
            "spaces": [to_json(self.spaces.observations), to_json(self.spaces.actions)],
            "has_masks": self.spaces.has_masks,
            "env_attributes": self.env_attributes,
            "step": self.step,
        }
        save(Path(path), copied(content))


def load_policy(path: str | Path, env: Any = None, **flags: Any) -> Policy:
    """Load a policy from a run's folder or name (its best checkpoint, if there is one) or a file,
    to act on the CPU. env: the environment, where it is not the run's or cannot be imported; flags:
    of the environment, in place of the run's.

    Raises CheckpointError."""
    from ppo.checkpoint import arrays, find, load, select
    from ppo.envs.normalize import EPSILON
    from ppo.flags import checked
    from ppo.models import make_actor_of, make_model
    from ppo.models.actor_critic import named_tensors
    from ppo.settings import resolve
    from ppo.state import saved_flags

    file = find(path)
    state = load(file)
    given = checked({**flags, **({} if env is None else {"env_name": env})}, [Config])
    values = {**saved_flags(file, state, given, to_train=False), "device": "cpu", "resume": None}
    try:
        config = Config(**checked(values, [Config]))
        spaces = Spaces(
            EnvMaker(config), *map(from_json, state["spaces"]), state["has_masks"], SingleColumns
        )
        spaces = spaces.with_config(config := resolve(config, spaces))
        model = make_model(config, spaces, config.hooks)
        named = named_tensors(model)
        numbers = arrays(state)
        saved = select("model", numbers)
        if {n: (*x.shape,) for n, x in named.items()} != {n: x.shape for n, x in saved.items()}:
            raise CheckpointError(f"{file}: its network has other layers or sizes than its config")
        if "statistics.shift" in numbers:
            shift, scale = numbers["statistics.shift"], numbers["statistics.scale"]
        else:
            shift = numbers["normalize_observation.mean"]
            variance = numbers["normalize_observation.variance"]
            scale = (1 / np.sqrt(variance + EPSILON)).astype(np.float32)
            if spaces.layout.has_numbers:
                dtype = np.result_type(spaces.layout.tables[NUMBERS].dtype, np.float32)
                shift = shift.astype(dtype)
        return Policy(
            spaces,
            weights={name: saved[name] for name in named},
            make_actor=make_actor_of(model, config, spaces, config.hooks),
            statistics=(shift, scale),
            env_attributes=state["env_attributes"],
            step=int(state["step"]),
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, (CheckpointError, ConfigError)):
            raise
        raise CheckpointError(f"{file} cannot be used ({reason(error)})") from error
