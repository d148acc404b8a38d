"""A trained policy: predict (predictor.py), make its environments, evaluate, save."""

from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium import Env

from ppo.config.config import Config
from ppo.envs.env_kwargs import tasks_of
from ppo.envs.episodes import set_attributes
from ppo.envs.errors import EnvironmentUnavailable, worker_error
from ppo.envs.forms import in_its_form
from ppo.envs.make import Finish
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError, PPOError
from ppo.guard import OnProgress, ignore
from ppo.models.observation_parts import parts_of
from ppo.policy.evaluation import MAX_STEPS, summarize
from ppo.policy.predictor import PolicyNetwork
from ppo.policy.spectators import spectators_of
from ppo.run.summary import Evaluation
from ppo.system.process import not_daemonic
from ppo.system.signals import RAISED_BY_SIGNALS
from ppo.system.state_dict import State


@dataclass(eq=False, repr=False)
class Policy(PolicyNetwork):
    """Act in the environments of make_env(), which preprocess observations as in training.

    Predictions, values and distributions are those of PolicyNetwork. env_attributes: set on each
    new environment, as by Run.set_env; refusal: why none can be made, "" if one can. A pickled copy
    has neither the recurrent state nor the random state of the original."""

    env_attributes: State = field(default_factory=dict)
    refusal: str = ""

    def __repr__(self) -> str:
        return f"Policy({self.config.env_name!r}, {self.config.model!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Policy, tuple(getattr(self, field.name) for field in fields(self))

    def make_env(
        self,
        render_mode: str | None = None,
        number: int = 0,
        env_name: str | None = None,
        finish: Finish | None = None,
    ) -> Env:
        """Make a new environment as in training, or another one with the same env_kwargs; of a
        batch, one of a single environment.

        render_mode: as gymnasium.make takes it; number: 0, 1, ... for environments that exist at
        the same time; their indices follow those of training; finish: as of ppo.envs.make.make_env,
        by default as in training, in a form that self.reader reads.
        Raises EnvironmentUnavailable, also for a team, which is no gymnasium.Env; CheckpointError
        if its import path was not repeated as the policy was loaded; WorkerError if the environment
        raises."""
        config = self.environment_config(render_mode, env_name)
        index = self.first_index(config) + number
        env = in_its_form(config, "make_env", index, finish or self.reader.finish)
        set_attributes(env, self.env_attributes)
        return env

    def first_index(self, config: Config) -> int:
        """Return the index of the first environment that is made by a config beside those of
        training, which keeps each with the arguments of its index."""
        return config.num_envs * len(config.env_kwargs)

    def environment_config(
        self, render_mode: str | None = None, env_name: str | None = None
    ) -> Config:
        """Return the settings of an environment like those of training, or of another one. Raises
        CheckpointError if none can be made."""
        if self.refusal:
            raise CheckpointError(self.refusal)
        config = copy(self.config)  # replace would reject schedules that are names of functions
        tasks = tasks_of(config.env_kwargs)
        if render_mode:
            tasks = [{**task, "render_mode": render_mode} for task in tasks]
        vars(config).update(env_name=env_name or config.env_name, env_kwargs=tasks)
        return config

    @not_daemonic()
    def evaluate(
        self,
        episodes: int = 10,
        deterministic: bool = True,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
        on_progress: OnProgress = ignore,
        **options: Any,
    ) -> Evaluation:
        """Play whole episodes; return what they came to.

        The environment is --eval_env if the run has one. num_envs: environments played side by
        side; seed: determines the episodes' seeds, None is the run's; max_steps: after which an
        episode is cut off; on_progress: called with the number of episodes so far. options: those
        that extensions add to ppo evaluate, such as video=FILE. Raises as make_env does,
        EnvironmentUnavailable also if the policy was trained with other spaces, TypeError for an
        unknown option, ConfigError or SaveFailed if an extension cannot do what it is asked for."""
        spectators = spectators_of(options)
        for spectator in spectators:
            if spectator.render_mode:
                num_envs, render_mode = 1, spectator.render_mode
        if seed is None:
            seed = self.config.seed
        seeds = [integer_seed(seed, Stream.EVALUATION, episode) for episode in range(episodes)]
        if not seeds:
            return summarize([], [], 0, {})
        eval_env = self.config.eval_env
        config = self.environment_config(render_mode, eval_env)
        arguments: dict[str, Any] = {
            "act": partial(self.act, deterministic=deterministic),
            "num_envs": num_envs,
            "max_steps": max_steps,
            "spectators": spectators,
            "on_progress": on_progress,
        }
        try:
            with ExitStack() as stack:
                for spectator in spectators:
                    stack.enter_context(spectator)
                return in_its_form(config, "evaluate", self, seeds, **arguments)
        except (PPOError, *RAISED_BY_SIGNALS):
            raise
        except BaseException as error:
            raise worker_error(
                f"environment {eval_env or self.config.env_name} in evaluation", error
            ) from error

    def check_plays(self, env: Env) -> None:
        """Raise EnvironmentUnavailable for an environment that the policy cannot play."""
        own = self.spaces
        observations: Any = env.observation_space
        if not own.is_like(own._replace(observations=observations, actions=env.action_space)):
            here, there = (
                ", ".join(f"{name} {box.shape}" for name, box in parts_of(space).items())
                for space in (observations, own.observations)
            )
            raise EnvironmentUnavailable(
                f"{self.config.eval_env or self.config.env_name} observes {here} and acts in "
                f"{env.action_space}, but the policy was trained with {there} and {own.actions}: "
                "give that environment, by --env_name and --env_kwargs"
            )

    def save(self, path: str | Path) -> None:
        """Save the policy by itself, without the optimizer and the environments of a checkpoint.

        load_policy reads the file, and a new run may begin with it. Raises OSError if it cannot be
        written."""
        from ppo.policy.save import save_policy  # imports torch

        save_policy(self, Path(path))
