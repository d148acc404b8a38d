"""Use a trained policy: make its environments, evaluate, save; network.py has what it answers."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium import Env

from ppo.envs.columns import Columns
from ppo.envs.env_kwargs import tasks_of
from ppo.envs.episodes import apply_task_params
from ppo.envs.errors import EnvironmentUnavailable, ManyMade, worker_error
from ppo.envs.isolation import ISOLATION
from ppo.envs.make import Finish, make_env, preprocess
from ppo.envs.make_columns import make_columns, make_one_column
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.video import filmed, filmed_columns
from ppo.errors import CheckpointError, ConfigError, PPOError
from ppo.models.parts import parts_of
from ppo.policy.evaluation import MAX_STEPS, evaluate, evaluate_columns
from ppo.policy.inputs import preprocess_for_predict
from ppo.policy.network import PolicyNetwork
from ppo.run.summary import Evaluation
from ppo.system.process import not_daemonic
from ppo.system.signals import RAISED_BY_SIGNALS
from ppo.system.state_dict import State


@dataclass(eq=False)
class Policy(PolicyNetwork):
    """Act in the environments of make_env(), which preprocess observations as in training.

    Predictions, values and distributions are those of PolicyNetwork. env_attributes: set on each
    new environment, as by Run.set_env; refusal: why none can be made, "" if one can. A pickled copy
    has neither the recurrent state nor the random state of the original."""

    env_attributes: State = field(default_factory=dict)
    refusal: str = ""

    def __reduce__(self):
        return Policy, tuple(getattr(self, field.name) for field in fields(self))

    def make_env(
        self,
        render_mode: str | None = None,
        number: int = 0,
        env_name: str | None = None,
        finish: Finish = preprocess_for_predict,
    ) -> Env:
        """Make a new environment as in training, or another one with the same env_kwargs; of a
        batch, one of a single environment.

        render_mode: as gymnasium.make takes it; number: 0, 1, ... for environments that exist at
        the same time; their indices follow those of training; finish: as of ppo.envs.make.make_env,
        by default as in training, but what predict could not tell apart has another form.
        Raises EnvironmentUnavailable, also for a team, which is no gymnasium.Env; CheckpointError
        if its import path was not repeated as the policy was loaded; WorkerError if the environment
        raises."""
        try:
            return self._make_single(render_mode, number, env_name, finish)
        except ManyMade:
            config = self._config_of(render_mode, env_name)
            env = make_one_column(config, config.num_envs + number, finish)
            apply_task_params(env, self.env_attributes)
            return env

    def make_columns(
        self, seeds: Sequence[int], render_mode: str | None = None, env_name: str | None = None
    ) -> Columns:
        """Make a batch with an environment for each seed, or as many teams as have so many agents.

        seeds: of the first episodes. Raises as make_env does."""
        config = self._config_of(render_mode, env_name)
        first = config.num_envs
        columns = make_columns(config, range(first, first + len(seeds)), seeds)
        columns.batch.set_training(self.env_attributes)
        return columns

    def _make_single(
        self,
        render_mode: str | None,
        number: int,
        env_name: str | None,
        finish: Finish = preprocess,
    ) -> Env:
        """Make a new environment. Raises as make_env does, ManyMade for a batch, too."""
        config = self._config_of(render_mode, env_name)
        env = make_env(config, config.num_envs * len(config.env_kwargs) + number, finish)
        apply_task_params(env, self.env_attributes)
        return env

    def _config_of(self, render_mode: str | None, env_name: str | None):
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
        video: Path | None = None,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
        record: str | Path | None = None,
    ) -> Evaluation:
        """Play whole episodes; return what they came to.

        The environment is --eval_env if the run has one. num_envs: environments played side by
        side; video: a new file, .mp4 or .gif, for which num_envs is 1; seed: determines the
        episodes' seeds, None is the run's; max_steps: after which an episode is cut off; record: a
        new file for the episodes, as of ppo.Recorder, which are those of single environments then.
        Raises as make_env does, EnvironmentUnavailable also if the policy was trained with other
        spaces, WorkerError if the video cannot be written, ConfigError if a package for videos is
        missing or nothing can be recorded, SaveFailed if the record cannot be written."""
        if seed is None:
            seed = self.config.seed
        seeds = [integer_seed(seed, Stream.EVALUATION, episode) for episode in range(episodes)]
        if video:
            num_envs = 1
            render_mode = "rgb_array"
        eval_env = self.config.eval_env
        act = partial(self.act, deterministic=deterministic)
        options = {"state_size": self.actor.state_size, "max_steps": max_steps}
        first_seeds = seeds[:num_envs]
        recording = None
        make = self._make_single
        if record:
            from ppo.extras.demonstrations.recorder import Recording

            if self.spaces.form == "team":
                raise ConfigError("--record: a team of agents cannot be recorded: leave it out")
            recording = Recording(record)
            make = partial(self.make_env, finish=recording.finish)
        try:
            try:
                envs = [make(render_mode, number, eval_env) for number in range(len(first_seeds))]
            except ManyMade:
                columns = self.make_columns(first_seeds, render_mode, eval_env)
                self._check_plays(columns.envs[0])
                with filmed_columns(columns, video):
                    return evaluate_columns(act, columns, seeds, **options)
            for env in envs[:1]:  # none, if no episode is played
                self._check_plays(env)
            with filmed(envs, video) as played:
                result = evaluate(act, played, seeds, **options)
            if recording:
                recording.save()
            return result
        except (PPOError, *RAISED_BY_SIGNALS):
            raise
        except BaseException as error:
            raise worker_error(
                f"environment {eval_env or self.config.env_name} in evaluation", error
            ) from error

    def _check_plays(self, env: Env) -> None:
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

        load_policy and --init_from read the file. Raises OSError if it cannot be written."""
        from ppo.policy.save import save_policy  # imports torch

        save_policy(self, Path(path))

    def isolated(self, purpose: str, method: Callable[..., Any], *arguments, **options):
        """Call a function or a method of this policy by ISOLATION.call, and return its result.

        The isolated process gets a pickled copy of the policy. purpose: names the call in error
        messages. Raises WorkerError if the environment raises, crashes or hangs there."""
        ISOLATION.set_timeouts(self.config.step_timeout, self.config.reset_timeout)
        return ISOLATION.call(purpose, self.config.env_name, method, *arguments, **options)
