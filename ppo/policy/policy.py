"""Use a trained policy: act, evaluate, and replay episodes of its training."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Env
from numpy import ndarray
from torch.nn.utils import parameters_to_vector

from ppo.config.config import Config
from ppo.config.flags import Settings
from ppo.config.resolve import resolve
from ppo.envs.episodes import WHOLE_EPISODE
from ppo.envs.errors import worker_error
from ppo.envs.make import Spaces, make_env
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.envs.video import Filmed, open_video
from ppo.errors import CheckpointError, ConfigError, NotRepeated
from ppo.models import make_actor
from ppo.models.numpy_mlp import layout_of
from ppo.policy.build import new_model, new_normalizer
from ppo.policy.evaluation import evaluate
from ppo.run.checkpoint import load, load_newest, misfits
from ppo.run.highlights import find_episode
from ppo.system.files import read_json
from ppo.system.state_dict import State, add_prefix, select_prefix

IMPORT_PATHS = ("env_name", "model", "optimizer", "learner")  # settings that may import code


class Policy:
    """Act in the environments of make_env(), which preprocess observations as in training."""

    def __init__(
        self, config: Any, spaces: Spaces, weights: ndarray, *, normalize: NormalizeObservation
    ) -> None:
        """config: the run's, resolved; weights: (P,), all of the model's parameters."""
        self.config = config
        self.weights = weights
        self.normalize = normalize
        self.model = new_model(config, spaces, to_act=True)
        self.actor = make_actor(lambda: self.model, layout_of(self.model), weights)
        self.to_actions = action_converter(spaces.actions, config.squash_actions)
        self.to_mask = mask_converter(spaces.actions) if spaces.has_masks else None
        self.generator = np.random.default_rng(config.seed)
        self.reset()

    def make_env(self, render_mode: str | None = None) -> Env:
        """Make a new environment as in training."""
        config = self.config
        if render_mode:
            config = replace(config, env_kwargs={**config.env_kwargs, "render_mode": render_mode})
        return make_env(config)

    def reset(self) -> None:
        """Forget the episode so far. Call it before each episode of a recurrent policy."""
        self.state = np.zeros((1, self.actor.state_size), np.float32)

    def predict(
        self, observation: Any, deterministic: bool = True, info: dict[str, Any] | None = None
    ) -> Any:
        """Return the action for an observation, as the environment's step takes it.

        deterministic: the most likely action, else a random one, for which gSDE draws new noise
        each time; info: what came with the observation, if it says which actions are allowed."""
        return self.act(np.asarray(observation)[None], [info or {}], self.state, deterministic)[0]

    def act(
        self,
        observations: ndarray,
        infos: Sequence[dict[str, Any]],
        states: ndarray,
        deterministic: bool = True,
    ) -> Any:
        """Return n actions for observations (n, *observation) and n infos; overwrite the states
        (n, S) by the next ones."""
        noise = None
        if not deterministic:
            noise = np.vstack([self.actor.draw_noise(self.generator, 1) for _ in infos])
        masks = []
        if self.to_mask:
            masks = [self.to_mask(info.get(ACTION_MASK)) for info in infos]
        columns = self.actor(self.normalize(observations), noise, np.array(masks), states=states)
        return self.to_actions(columns)

    def evaluate(
        self,
        episodes: int = 10,
        deterministic: bool = True,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        video: Path | None = None,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Play whole episodes; return what ppo.policy.evaluation.evaluate does.

        The episodes' seeds follow from seed, None for the run's, so that they are always the same.
        video: a new file, .mp4 or .gif, for which episodes are played one after another. Raises
        WorkerError if an environment raises."""
        if seed is None:
            seed = self.config.seed
        seeds = [integer_seed(seed, Stream.EVALUATION, episode) for episode in range(episodes)]
        if video:
            num_envs = 1
            render_mode = "rgb_array"
        envs = [self.make_env(render_mode) for _ in seeds[:num_envs]]
        act = partial(self.act, deterministic=deterministic)
        try:
            with _filmed(envs, video) as filmed:
                return evaluate(act, filmed, seeds, self.actor.state_size)
        except Exception as error:
            raise worker_error(
                f"environment {self.config.env_name} in evaluation", error
            ) from error

    def replay(self, episode: dict[str, Any], video: Path | None = None) -> None:
        """Repeat an episode of training, as ppo.run.highlights.find_episode returns it; film it if
        video is given. Raises NotRepeated, without a video, if its return or length differ."""
        number = episode["number"]
        is_over = True
        envs = [self.make_env("rgb_array" if video else None)]
        with _filmed(envs, video) as (env,):
            for action in self.to_actions(episode["actions"]):
                if is_over:  # it begins, or a life was lost and the game goes on
                    place = (Stream.EPISODE, episode["environment"], number)
                    env.reset(seed=integer_seed(self.config.seed, *place))
                    number += 1
                _, _, terminated, truncated, info = env.step(action)
                is_over = terminated or truncated
            found = list(info.get(WHOLE_EPISODE, ()))
            expected = [episode["episode_return"], episode["episode_length"]]
            if found != expected:
                raise NotRepeated(
                    f"{self.config.env_name} does not repeat itself: the episode came to "
                    f"(return, length) = {expected}, its replay to {found or 'no end'}"
                )


@contextmanager
def _filmed(envs: list[Env], path: Path | None) -> Iterator[list[Env]]:
    """Film environments into a file if there is a path, and close them."""
    try:
        if path and envs:
            with open_video(path, envs[0].metadata.get("render_fps", 30)) as video:
                yield [Filmed(env, video) for env in envs]
        else:
            yield envs
    finally:
        for env in envs:
            env.close()


def load_policy(
    path: str | Path,
    env_name: str | None = None,
    model: str | None = None,
    *,
    precision: Any = None,
) -> Policy:
    """Load the policy of a checkpoint.

    env_name, model: repeat them if they are import paths, which a file alone is not trusted with;
    precision: float32 or bfloat16 instead of training's. Raises CheckpointError if the file is
    damaged, or of another environment or model."""
    path = Path(path)
    state = load(path)
    # Schedules may be functions, which a file cannot hold; they do not matter here.
    config = saved_config(
        path, state, {"env_name": env_name, "model": model}, Config.names(schedules=())
    )
    return _restore_policy(path, state, replace(config, precision=precision or config.precision))


def saved_settings(run: Path, given: Settings) -> Settings:
    """Read a run's settings: from its newest intact checkpoint; those of scope "run" from its
    config.json. Raises CheckpointError if there are none, and as load_policy does."""
    path, state = load_newest(run / "checkpoints", lambda damage: None)
    repeated = {name: given.get(name) for name in IMPORT_PATHS}
    _restore_policy(path, state, saved_config(path, state, repeated, Config.names()))
    settings: Settings = state["config"]
    with suppress(KeyError, ValueError):
        saved = read_json(run / "config.json", {})
        names = {*Config.names(scope="run")} - {"name", "run_dir", "resume"}
        watched = {name: saved[name] for name in names}
        Config(**watched)
        settings |= watched
    return settings


def saved_config(path: Path, state: State, repeated: Settings, needed: Sequence[str]) -> Config:
    """Return the needed settings of a checkpoint's run, checked as flags are.

    repeated: what the user gives now of settings that may import code; an import path in the file
    is trusted only if it is the same. Raises CheckpointError for one that is not trusted, and
    naming a setting that is not accepted.
    """
    settings = state.get("config")
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path} has no config: give another")
    try:
        if unknown := settings.keys() - {*Config.names()}:
            raise ConfigError(f"{min(unknown)} is unknown")
        config = Config(**{name: settings[name] for name in settings.keys() & needed})
        for name in ("iteration", "step"):
            count = state.get(name)
            if not isinstance(count, int) or not 0 <= count < 2**53:
                raise ConfigError(f"{name}={count} is no count")
    except ConfigError as error:
        raise CheckpointError(
            f"{path} has settings that this version does not accept ({error}): give another"
        ) from error
    for name, given in repeated.items():
        wanted = str(settings.get(name))
        if ":" in wanted and not wanted.startswith("torch.optim:") and given != wanted:
            raise CheckpointError(
                f"{path} would import {wanted}: if you trust it, repeat --{name}={wanted}"
            )
    return config


def _restore_policy(path: Path, state: State, config: Config) -> Policy:
    """Make the policy of a checkpoint.

    Before any memory is allocated whose size the settings imply, they are compared with the tensors
    that there are; a model of the user's own class is trusted. Raises CheckpointError unless they
    fit.
    """
    try:
        config, spaces = resolve(replace(config, device="cpu", compile=False))
        shape = (config.num_envs, *spaces.observations.shape)
        if getattr(state.get("next.observations"), "shape", None) != shape:
            raise ConfigError(f"next.observations is missing, or not of shape {shape}")
        with torch.device("cpu" if ":" in config.model else "meta"):  # which has no memory
            network = new_model(config, spaces)
        normalize = new_normalizer(config, spaces)
        statistics = add_prefix("normalize_observation", normalize.statistics.state_dict())
        parameters = add_prefix("model", dict(network.named_parameters()))
        if problems := misfits(state, parameters | statistics):
            raise ConfigError(problems)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is of another network or environment ({error}): give another"
        ) from error
    found = {name: state[name].numpy() for name in statistics}
    normalize.load_state_dict(select_prefix("normalize_observation", found))
    weights = parameters_to_vector(state[name] for name in parameters).numpy()
    return Policy(config, spaces, weights, normalize=normalize)


def best_video(folder: Path, policy: Policy) -> Path | None:
    """Return the video of a run's best episode, made now if it is missing; None if that fails."""
    try:
        episode = find_episode(folder, "best")
        path = folder / "videos" / f"best-{episode['step']}.mp4"
        if not path.exists():
            policy.replay(episode, path)
        return path
    except Exception:  # rendering an environment may raise anything
        return None
