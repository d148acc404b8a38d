"""What was learned, to be used."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from ppo.envs.episodes import WHOLE_EPISODE
from ppo.envs.errors import environment_error
from ppo.envs.make import Preprocessing, Spaces, make_env, spaces_of
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.envs.video import Filmed, Video
from ppo.errors import NotRepeated
from ppo.models import image_shape, make_actor, make_model
from ppo.models.numpy_mlp import NumpyActor
from ppo.policy.evaluation import evaluate
from ppo.run import checkpoint
from ppo.run.highlights import find_episode
from ppo.system.hardware import has_bfloat16


class Policy:
    """Acts in the environments that make_env() gives, which do to observations what was done in training."""

    def __init__(
        self, config: Any, spaces: Spaces, weights: np.ndarray, normalize: NormalizeObservation
    ) -> None:
        self.config, self.normalize = config, normalize
        model = new_model(config, spaces, to_act=True)
        self.make_torch_actor = partial(make_actor, lambda: model, weights)
        layout = model.numpy_layout()
        self.actor = NumpyActor(layout, weights) if layout else self.make_torch_actor()
        self.to_actions = action_converter(spaces.actions, config.squash_actions)
        self.to_mask = mask_converter(spaces.actions) if spaces.has_masks else None
        self.generator = np.random.default_rng(config.seed)
        self.reset()

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """A new environment."""
        preprocessing = preprocessing_of(self.config)
        shown = (
            {**preprocessing.env_kwargs, "render_mode": render_mode}
            if render_mode
            else preprocessing.env_kwargs
        )
        return make_env(self.config.env_name, preprocessing._replace(env_kwargs=shown))

    def reset(self) -> None:
        """Forget the episode so far; needed before each by a policy that remembers."""
        self.state = np.zeros((1, self.actor.state_size), np.float32)

    def predict(
        self, observation: Any, deterministic: bool = True, info: dict[str, Any] | None = None
    ) -> Any:
        """The action for an observation, as the environment's step takes it; if not deterministic, gSDE's noise is new
        each time. info: what came with the observation, if that says which actions are allowed."""
        return self.act(np.asarray(observation)[None], [info or {}], self.state, deterministic)[0]

    def act(
        self,
        observations: np.ndarray,
        infos: Sequence[dict],
        states: np.ndarray,
        deterministic: bool = True,
    ) -> Sequence[Any]:
        """observations: (n, *observation); infos: n; states: (n, S), to be overwritten by the next. Returns n actions:
        the most likely, or drawn at random."""
        noise = (
            None
            if deterministic
            else np.stack([self.actor.draw_noise(self.generator, 1)[0] for _ in infos])
        )
        masks = np.array(
            [self.to_mask(info.get(ACTION_MASK)) for info in infos] if self.to_mask else []
        )
        return self.to_actions(self.actor(self.normalize(observations), noise, masks, states))

    def evaluate(
        self,
        episodes: int = 10,
        deterministic: bool = True,
        num_envs: int = 1,
        render_mode: str | None = None,
        video: Path | None = None,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Play whole episodes, each from a seed of its own that is always the same, or follows from another seed than
        the run's; returns what ppo.policy.evaluation.evaluate does. video: a new file for what is shown, .mp4 or .gif; the
        episodes are then played one after another. Raises WorkerError if an environment raises."""
        seed = self.config.seed if seed is None else seed
        seeds = [integer_seed(seed, Stream.EVALUATION, episode) for episode in range(episodes)]
        act, state_size = partial(self.act, deterministic=deterministic), self.actor.state_size
        envs = [
            self.make_env("rgb_array" if video else render_mode)
            for _ in seeds[: 1 if video else num_envs]
        ]
        try:
            with self._filmed(envs, video) as filmed:
                return evaluate(act, filmed, seeds, WHOLE_EPISODE, state_size)
        except Exception as error:
            raise environment_error(f"{self.config.env_name} in evaluation", error) from error
        finally:
            for env in envs:
                env.close()

    def replay(self, episode: dict[str, Any], video: Path | None = None) -> None:
        """Play an episode of the run's training again, as ppo.run.highlights has it, and make a video of it if asked to. Raises
        NotRepeated, without a video, if it does not come to the return and the length that it had."""
        env, where = (
            self.make_env("rgb_array" if video else None),
            (Stream.EPISODE, episode["environment"]),
        )
        seeds = (
            integer_seed(self.config.seed, *where, number)
            for number in itertools.count(episode["number"])
        )
        wanted = [episode["episode_return"], episode["episode_length"]]
        came: list[Any] = []
        try:
            with self._filmed([env], video) as (filmed,):
                filmed.reset(seed=next(seeds))
                for action in self.to_actions(episode["actions"]):
                    _, _, terminated, truncated, info = filmed.step(action)
                    came = list(info.get(WHOLE_EPISODE, ()))
                    if (terminated or truncated) and not came:  # it ended for the learner only
                        filmed.reset(seed=next(seeds))
                if came != wanted:
                    problem = f"the episode came to (return, length) = {wanted}, and played again to {came or 'no end'}"
                    raise NotRepeated(f"{self.config.env_name} does not repeat itself: {problem}")
        finally:
            env.close()

    @contextmanager
    def _filmed(
        self, envs: list[gymnasium.Env], path: Path | None
    ) -> Iterator[list[gymnasium.Env]]:
        """The environments, of which what they show becomes a video if there is a path."""
        if path is None or not envs:
            yield envs
            return
        with Video(path, envs[0].metadata.get("render_fps", 30)) as video:
            yield [Filmed(env, video) for env in envs]


def load_policy(
    path: str | Path,
    env_name: str | None = None,
    model: str | None = None,
    precision: str | None = None,
) -> Policy:
    """The policy of a checkpoint. env_name, model: repeat them if they are import paths, which a file by itself is not
    trusted with. precision: float32 or bfloat16, if it is to be another than that of the training. Raises
    CheckpointError if the file is damaged or of another environment or model."""
    tensors, state = checkpoint.load(Path(path))
    config = SimpleNamespace(
        **checkpoint.settings(Path(path), state, {"env_name": env_name, "model": model})
    )
    config.precision = precision or config.precision
    spaces = spaces_of(config.env_name, preprocessing_of(config))
    normalize, network = new_normalizer(config, spaces), new_model(config, spaces)
    parts = checkpoint.by_part(tensors)
    try:
        if parts["model"].keys() != dict(network.named_parameters()).keys():
            raise KeyError("its parameters are called otherwise")
        network.load_state_dict(
            parts["model"], strict=False
        )  # which would miss a shared trunk's second name
        normalize.load_state_dict(
            {name: tensor.numpy() for name, tensor in parts["normalize_observation"].items()}
        )
    except (KeyError, RuntimeError, ValueError) as error:
        raise checkpoint.CheckpointError(
            f"{path} is of another network or environment: {error}"
        ) from error
    return Policy(
        config, spaces, parameters_to_vector(network.parameters()).detach().numpy(), normalize
    )


def best_video(folder: Path, policy: Policy) -> Path | None:
    """The video of a run's best episode, which is made if it is not there; None if it cannot be."""
    try:
        episode = find_episode(folder, "best")
        path = folder / "videos" / f"best-{episode['step']}.mp4"
        if not path.exists():
            policy.replay(episode, path)
        return path
    except Exception:  # whatever an environment that is to be seen raises
        return None


def preprocessing_of(config: Any) -> Preprocessing:
    """What a run's environments are made by."""
    return Preprocessing(*(getattr(config, name) for name in Preprocessing._fields))


def new_model(config: Any, spaces: Spaces, to_act: bool = False) -> Any:
    """A run's model as it begins. to_act: as it is where the CPU acts, whatever the learner's device is."""
    in_bfloat16 = config.precision == "bfloat16" and (not to_act or has_bfloat16("cpu"))
    with torch.random.fork_rng(
        devices=[]
    ):  # what else is drawn does not depend on how many models are made
        seed = integer_seed(config.seed, Stream.MODEL)
        return make_model(config, seed, spaces.observations, spaces.actions, in_bfloat16)


def new_normalizer(config: Any, spaces: Spaces) -> NormalizeObservation:
    """A run's statistics of observations as they begin: of all but pixels."""
    pixels = image_shape(spaces.observations) or (0,)
    return NormalizeObservation(
        spaces.observations.shape, config.normalize_observations, int(np.prod(pixels))
    )
