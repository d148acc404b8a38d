"""A trained policy: predict, evaluate, film, save, load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.callbacks import make_callbacks, make_extras, overriding
from ppo.checkpoint import State, find, load, save, select
from ppo.config import Config, flag_names, name_of
from ppo.envs.episodes import Episode, set_attributes
from ppo.envs.make import EnvMaker, Spaces, calling, check_finite, columns_of
from ppo.envs.normalize import Arrays, NormalizeObservation
from ppo.envs.observations import Reader
from ppo.envs.sampler import MakeActor, observer
from ppo.envs.seeding import Stream, integer_seed, seed_sequence
from ppo.envs.spaces import ACTION_MASK, action_converter, from_json, mask_converter
from ppo.envs.worker import Worker, table_shapes
from ppo.errors import CheckpointError, ConfigError, reason
from ppo.flags import checked, flags_of
from ppo.models import MakeTorchActor, make_actor_of, make_model
from ppo.models.numpy_mlp import EMPTY
from ppo.settings import LOOK, resolve
from ppo.state import POLICY, check_code, saved_flags

MAX_STEPS = 30_000  # of an episode, where nothing else limits it


@dataclass(frozen=True)
class Evaluation:
    """The results of whole episodes; mean and std are None without episodes. env: means of the
    environment's own metrics, by name."""

    mean: float | None = None
    std: float | None = None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    env: dict[str, float] = field(default_factory=dict)


def summarize(episodes: Sequence[Episode]) -> Evaluation:
    """Return the results of episodes, at least one."""
    returns = [x.episode_return for x in episodes]
    own: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.metrics.items():
            own.setdefault(name, []).append(value)
    return Evaluation(
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
        returns=returns,
        lengths=[x.episode_length for x in episodes],
        env={name: fmean(values) for name, values in own.items()},
    )


class Policy:
    """Act on observations as environments return them. predict plays one episode, from each reset()
    to the next; predict_batch plays n side by side. Where observations are stacked or the network
    is recurrent, both remember earlier steps. state: see ppo.state.policy_state; make_actor:
    weights (P,) -> actor."""

    def __init__(self, spaces: Spaces, state: State, make_actor: MakeActor) -> None:
        self.spaces = spaces
        self.config = spaces.config
        self.state = state
        self.env_attributes = state["env_attributes"]
        weights = [x.ravel() for x in select("model", state).values()]
        self.weights = np.concatenate(weights, dtype=np.float32)
        self.actor = make_actor(self.weights)
        shapes = table_shapes(spaces, 1, 1, state_size=0)
        shared = {name: np.zeros(*shapes[name]) for name in ("shift", "scale")}
        self.normalize = normalize = NormalizeObservation(shared, self.config)
        normalize.statistics.load_state_dict(select("normalize_observation", state))
        normalize.publish()
        self.observe = observer(spaces.layout, normalize)
        self.to_actions = action_converter(spaces.actions)
        self.to_mask = mask_converter(spaces.actions)
        self.generator = np.random.default_rng(seed_sequence(self.config.seed, Stream.ACTION))
        self.reset()

    def reset(self) -> None:
        """Forget earlier steps; call it at the start of each episode that predict plays."""
        self.readers: list[Reader] = []

    def predict(self, observation: Any, *, stochastic: bool = False, info: Any = None) -> Any:
        """Return the action for an observation of the environment, as its step takes it.
        stochastic: sample it, rather than the most likely one; info: may have an action_mask."""
        infos = None if info is None else [info]
        return self.predict_batch([observation], stochastic=stochastic, infos=infos)[0]

    def predict_batch(
        self,
        observations: Sequence[Any],
        *,
        stochastic: bool = False,
        infos: Sequence[Any] | None = None,
    ) -> Sequence[Any]:
        """Return the actions for n observations, of n environments that begin together."""
        if len(self.readers) != len(observations):
            self.readers, self.states = self._begin(len(observations))
        mask = EMPTY
        if self.spaces.has_masks:
            seen = [x if isinstance(x, Mapping) else {} for x in observations]  # as PettingZoo's
            places = [{**x, **info} for x, info in zip(seen, infos or seen, strict=True)]
            mask = np.stack([self.to_mask(place.get(ACTION_MASK)) for place in places])
        generator = self.generator if stochastic else None
        rows = _read(self.readers, observations)
        return self.to_actions(self.act(rows, generator, mask, self.states))

    def act(
        self, rows: Arrays, generator: np.random.Generator | None, mask: ndarray, states: ndarray
    ) -> ndarray:
        """Return the actions (n, D), as in rollouts, for rows (n, ...) of observation tables.
        generator: None for the most likely ones; states (n, S) are overwritten by the next ones."""
        noise = None
        if generator:
            noise = np.concatenate(
                [self.actor.draw_noise(generator, 1) for _ in range(len(states))]
            )
        return np.asarray(self.actor(self.observe(rows), noise, mask=mask, states=states))

    def values(self, observations: Sequence[Any]) -> ndarray:
        """Return the values (n,) of n observations, each as the first of an episode, in the units
        in which rewards were learned."""
        return self._evaluate(observations)[1]

    def log_probs(self, observations: Sequence[Any], actions: ndarray) -> ndarray:
        """Return the log-probabilities (n,) of actions (n, D), as in rollouts, neither scaled nor
        clipped, for n observations, each as the first of an episode."""
        import torch

        distribution, _ = self._evaluate(observations)
        return np.asarray(distribution.log_prob(torch.as_tensor(np.asarray(actions))))

    def _evaluate(self, observations: Sequence[Any]) -> tuple[Any, ndarray]:
        readers, states = self._begin(len(observations))
        return self._torch_actor.evaluate(self.observe(_read(readers, observations)), states)

    @cached_property
    def _torch_actor(self) -> Any:
        return MakeTorchActor(self.spaces)(self.weights)

    def _begin(self, count: int) -> tuple[list[Reader], ndarray]:
        readers = [Reader(self.spaces.layout) for _ in range(count)]
        return readers, np.zeros((count, self.actor.state_size), np.float32)

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
        stochastic: bool = False,
        seed: int | None = None,
        render: str | None = None,
        wrap: Callable[[Env], Env] = lambda env: env,
        should_stop: Callable[[], bool] = bool,
    ) -> Evaluation:
        """Play whole episodes, several side by side; none once should_stop returns true. seed: by
        default the run's; stochastic: sample actions; render: a render_mode, such as "human", in
        which one environment plays, within wrap. Raises ConfigError, EnvironmentFailed."""
        if not episodes:
            return Evaluation()
        seed = self.config.seed if seed is None else seed
        seeds = [integer_seed(seed, Stream.EVALUATION, x) for x in range(episodes)]
        size_of = columns_of(self.spaces.make_env).size_of_evaluation
        num_envs = 1 if render else size_of(self.spaces.make_env, num_envs, episodes)
        with calling(self.spaces.make_env.spec.id):
            play = Play(self, seeds, num_envs, stochastic, render_mode=render)
            try:
                if render:
                    play.columns.envs[0] = wrap(play.columns.envs[0])
                while play.play_step():
                    if should_stop():
                        return Evaluation()
            finally:
                play.close()
        return summarize([play.found[x] for x in range(episodes)])

    def save(self, path: str | Path) -> None:
        """Save the policy alone, without what training needs. Raises OSError."""
        save(Path(path), self.state)


def _read(readers: Sequence[Reader], observations: Sequence[Any]) -> Arrays:
    """Return tables (n, ...) of n observations. Raises BadValue for numbers that are not finite."""
    rows = [read(x) for read, x in zip(readers, observations, strict=True)]
    tables = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    check_finite(tables, "the caller")
    return tables


class Play(Worker):
    """An evaluation in progress: a worker with tables of one step and seeds of its own, one for
    each episode. An environment that is free takes the next one."""

    def __init__(
        self, policy: Policy, seeds: list[int], num_envs: int, stochastic: bool, **options: Any
    ) -> None:
        shapes = table_shapes(policy.spaces, 1, num_envs, state_size=policy.actor.state_size)
        tables = {name: np.zeros(*about) for name, about in shapes.items()}
        self.policy = policy
        self.seeds = seeds
        self.generator = np.random.default_rng([seeds[0], Stream.ACTION]) if stochastic else None
        self.num_begun = 0
        self.playing = [-1] * num_envs  # the number of each column's episode
        self.found: dict[int, Episode] = {}
        ids = range(num_envs)
        first = policy.config.num_envs  # training has the numbers below
        super().__init__(policy.spaces, tables, ids, limit=MAX_STEPS, first=first, **options)

    def next_seed(self, column: int, is_whole: bool) -> int:
        if is_whole:
            self.playing[column] = self.num_begun
            self.num_begun += 1
        number = self.playing[column]
        return self.seeds[number] if number < len(self.seeds) else number

    def play_step(self) -> bool:
        """Take a step in each environment; return whether episodes are left to play."""
        self.begin(self.policy.env_attributes)
        rows = {name: table[0] for name, table in self.tables.items()}
        states = self.tables["states"][1]
        states[:] = rows["states"]
        rows["actions"][:] = self.policy.act(rows, self.generator, rows["action_masks"], states)
        playing = [*self.playing]
        self.step(0)
        for episode in self.report.episodes:
            self.found[playing[episode.environment]] = episode
        return not all(number in self.found for number in range(len(self.seeds)))


def _refuse(error: CheckpointError, **kwargs: Any) -> Env:
    """Take the place of an environment that a file is not trusted to name."""
    raise error


def load_policy(path: str | Path, env: Any = None, *, callbacks: Any = (), **flags: Any) -> Policy:
    """Load a policy, to act on the CPU, from a file or a run's folder or name (its best checkpoint,
    or else its last). env: if not the run's, or if it cannot be imported; callbacks: those whose
    on_model changes the network; flags: of the environment. Raises CheckpointError."""
    from ppo.models.actor_critic import named_tensors

    file = find(path)
    state = load(file)
    flags |= {} if env is None else {"env_name": env}
    given = checked(flags, flags_of(Config))
    saved = saved_flags(file, state, given)
    if "env_name" in given:  # rather than the run's --eval_env
        saved["eval_env"] = given.get("eval_env")
    callbacks = make_callbacks(callbacks)
    callbacks += make_extras(saved, callbacks)
    hooks = tuple(overriding(callbacks, "on_model"))
    check_code(file, state, given, ["model"])
    needed = {*flag_names("fixed"), "precision", *given}
    values = {name: x for name, x in saved.items() if name in needed}
    try:
        check_code(file, state, given, ["env_name", "eval_env", "wrapper"])
    except CheckpointError as error:
        refused = partial(_refuse, error)
        values |= {"env_name": refused, "eval_env": None, "wrapper": (), "end_on_life_loss": False}
    try:
        config = Config(
            **{**checked(values, flags_of(Config)), **LOOK, "device": "cpu"}, hooks=hooks
        )
        observed, acts = map(from_json, state["spaces"])
        spaces = Spaces(EnvMaker(config), observed, acts, state["has_masks"])
        spaces = resolve(config, spaces)
        model = make_model(spaces)
        own = {f"model.{name}": (*x.shape,) for name, x in named_tensors(model).items()}
        found = {name: x.shape for name, x in state.items() if name.startswith("model.")}
        if wrong := {*own.items()} ^ {*found.items()}:
            network = f"the network of --model={name_of(config.model)}"
            raise CheckpointError(f"{file}: {network} differs from its own in {min(wrong)[0]}")
        ordered = {name: state[name] for name in own}
        rest = {name: x for name, x in state.items() if name.startswith(POLICY)}
        policy = {**ordered, **rest}
        return Policy(spaces.of_evaluations(), policy, make_actor_of(model, spaces))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, (CheckpointError, ConfigError)):
            raise
        raise CheckpointError(f"{file} cannot be used ({reason(error)})") from error
