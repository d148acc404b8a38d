"""Watch a run: read rollouts, batches and metrics, and never change what is learned."""

from collections import deque
from statistics import fmean

import numpy as np

from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.analysis.doctor import Doctor
from ppo.analysis.histograms import make_histograms
from ppo.analysis.report import report_run
from ppo.components import Components
from ppo.envs.errors import WorkerError
from ppo.envs.isolation import OnProgress, ignore
from ppo.envs.worker import Episode
from ppo.policy.evaluation import evaluate
from ppo.run.folder import RunFolder
from ppo.run.highlights import EpisodeHighlights
from ppo.system.clock import Clock
from ppo.system.files import write_json
from ppo.system.state_dict import State

RECENT = 100  # episodes that are averaged
MOST_METRICS = 64  # of an environment's own


class EpisodeStatistics:
    """Count episodes, and average the return and length of the last 100, and each of the
    environment's own metrics over the last 100 that report it.

    has_too_many: whether the environment has reported more than MOST_METRICS names."""

    def __init__(self) -> None:
        self.count = 0
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT)  # (return, length)
        self.metrics: dict[str, deque[float]] = {}
        self.has_too_many = False

    def add(self, episode: Episode) -> None:
        """Add an episode that is over."""
        self.count += 1
        self.recent.append((episode.episode_return, episode.episode_length))
        for name, value in episode.metrics.items():
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics.setdefault(name, deque(maxlen=RECENT)).append(value)
            else:
                self.has_too_many = True

    def means(self) -> Metrics:
        """Return the averages, None before there is an episode; the environment's own by the names
        env/..., from the first episode on that reports them."""
        means = np.mean(self.recent, axis=0).tolist() if self.recent else (None, None)
        named = dict(zip(("episode_return_mean", "episode_length_mean"), means, strict=True))
        return named | {f"env/{name}": fmean(values) for name, values in self.metrics.items()}

    def state_dict(self) -> State:
        """Return the count and the last 100 episodes, and those with the environment's own
        metrics, if there are any."""
        recent = np.array(self.recent, np.float64).reshape(-1, 2)
        state: State = {"episodes": self.count, "episodes.recent": recent}
        if self.metrics:
            state["episodes.metrics"] = {name: [*x] for name, x in self.metrics.items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Take over what state_dict() returned; other names in it are ignored."""
        self.count = int(state["episodes"])
        self.recent.extend(tuple(row) for row in state["episodes.recent"].tolist())
        metrics = state.get("episodes.metrics", {})
        self.metrics = {name: deque(values, RECENT) for name, values in metrics.items()}


class Monitor:
    """Count episodes and faults, evaluate, diagnose, note highlights and make videos.

    is_best: whether the last evaluation was the best so far. histograms: of the last iteration, if
    they are due.
    """

    def __init__(self, parts: Components, run: RunFolder) -> None:
        self.parts = parts
        self.config = parts.config
        self.run = run
        self.episodes = EpisodeStatistics()
        self.best: float | None = None
        self.highlights = EpisodeHighlights()
        self.warned_envs: set[int] = set()
        head = parts.model.policy_head
        is_discrete = head.action_dtype is np.int64
        self.doctor = Doctor(self.config, num_actions=0 if is_discrete else head.action_size)

    def after_update(
        self, rollout: Rollout, batch: Batch, metrics: Metrics, clock: Clock
    ) -> Metrics:
        """Watch an iteration whose update is done. Returns all of its metrics, update's included;
        those of the environment appear once an episode reports them."""
        parts = self.parts
        self._count_episodes(rollout)
        self._make_histograms(rollout, batch)
        evaluation = self._evaluate_if_due()
        parts.ranks.on_rank0(self._film_if_due)
        learning = {"episodes": self.episodes.count, **self.episodes.means(), **metrics}
        for problem in self.doctor.look(
            rollout, batch, learning, progress=parts.iteration / self.config.iterations
        ):
            self.run.event("doctor", problem)
        if num_skipped := metrics["skipped_steps"]:
            self.run.event(
                "step_skipped",
                f"{num_skipped} gradient steps of iteration {parts.iteration} were skipped: their "
                "loss or gradient was not finite",
                num_skipped,
            )
        exchanging = parts.ranks.seconds
        parts.ranks.seconds = 0.0
        return {
            "iteration": parts.iteration,
            "step": parts.step,
            "seconds": clock.elapsed,
            "steps_per_second": self.config.rollout_size / sum(clock.phases.values()),
            **learning,
            **evaluation,
            **{f"seconds_{phase}": seconds for phase, seconds in clock.phases.items()},
            "seconds_exchanging": exchanging,
            **{f"faults/{name}": count for name, count in parts.faults.items()},
        }

    def save_highlights(self) -> None:
        """Note the best, median and worst episode since the last time."""
        self.run.episodes.append(self.highlights.to_json_lines(self.parts.step))
        self.highlights.episodes.clear()

    def note_lost_episodes(self, env_ids: list[int]) -> None:
        """Tell the user in which environments of a resumed run the open episode was lost."""
        lost = [env_id for rank in self.parts.ranks.gather(env_ids) for env_id in rank]
        if lost:
            self.run.event(
                "episodes_lost",
                f"resume is not exact: environments {lost} did not repeat their open episode, a "
                "new one began there; --fresh_env_per_episode may help from the start",
            )

    def finish(self, clock: Clock, on_progress: OnProgress = ignore) -> Metrics:
        """Evaluate the final policy, and write summary.json and the report; return the summary."""
        seconds = clock.elapsed
        summary = {
            "env_name": self.config.env_name,
            "seed": self.config.seed,
            "steps": self.parts.step,
            "seconds": round(seconds, 3),
            "steps_per_second": round(self.parts.step / seconds, 1),
            "episodes": self.episodes.count,
            "mean_return": self.episodes.means()["episode_return_mean"],
            "evaluation": self._evaluate(on_progress),
        }
        folder = self.run.path
        write_json(folder / "summary.json", summary)
        if self.config.report:
            try:
                report_run(folder, self.parts.policy())
            except Exception as error:
                self.run.event(
                    "report_failed", f"curve.png and report.html cannot be written: {error}"
                )
        return summary

    def state_dict(self) -> State:
        """Return what the metrics of a resumed run depend on."""
        return {**self.episodes.state_dict(), "best": self.best}

    def load_state_dict(self, state: State) -> None:
        """Take over what state_dict() returned; other names in it are ignored."""
        self.episodes.load_state_dict(state)
        if state["best"] is not None:
            self.best = float(state["best"])

    def _is_due(self, every: int | None) -> bool:
        return every is not None and self.parts.iteration % every == 0

    def _count_episodes(self, rollout: Rollout) -> None:
        """Count what all ranks report: episodes, and observations outside of their space, of which
        the user is warned once for each environment."""
        env_ids = self.parts.env_ids
        info = rollout.info
        ended = [x._replace(environment=env_ids[x.environment]) for x in info.episodes]
        outside = [(env_ids[index], count) for index, count in info.num_outside.items() if count]
        ranks = self.parts.ranks.gather((ended, outside))
        had_too_many = self.episodes.has_too_many
        for episode in sorted(x for rank in ranks for x in rank[0]):
            self.episodes.add(episode)
        if self.episodes.has_too_many and not had_too_many:
            self.run.event(
                "env_metrics",
                f"the environment reports more than {MOST_METRICS} numbers by different names; "
                "further names are ignored",
            )
        self.highlights.add(rollout.played_episodes)
        for env_id, count in sorted(found for rank in ranks for found in rank[1]):
            if env_id in self.warned_envs:
                self.parts.faults["observation_outside"] += count
            else:
                self.warned_envs.add(env_id)
                self.run.event(
                    "observation_outside",
                    f"environment {env_id} has shown an observation outside of its space; it is "
                    "used as it is, and more are only counted",
                    count,
                )

    def _make_histograms(self, rollout: Rollout, batch: Batch) -> None:
        """Make histograms if they are due, and if a logger that shows them is asked for."""
        self.histograms = None
        is_shown = {"tensorboard", "wandb"} & {*self.config.logger.split(",")}
        if is_shown and self._is_due(self.config.histogram_every):
            space = self.parts.spaces.observations
            self.histograms = self.parts.ranks.on_rank0(
                make_histograms, self.parts.learner, rollout, batch, space
            )

    def _evaluate_if_due(self) -> dict[str, float | None]:
        """Return a metric if there are regular evaluations, None between them."""
        self.is_best = False
        mean = None
        if not self.config.eval_every:
            return {}
        if self._is_due(self.config.eval_every):
            mean = self.parts.ranks.broadcast_from_rank0(self._evaluate)["mean"]
        if mean is not None and (self.best is None or mean > self.best):
            self.best = mean
            self.is_best = True
        return {"evaluation_return_mean": mean}

    def _evaluate(self, on_progress: OnProgress = ignore) -> Metrics:
        """Evaluate the present policy; no weight, statistic or random stream of the run changes. If
        the environment fails, that is noted, and there are no episodes."""
        policy = self.parts.policy()
        try:
            result: Metrics = policy.isolated(
                "the evaluation",
                policy.evaluate,
                self.config.eval_episodes,
                num_envs=self.config.num_envs,
                max_steps=self.config.eval_max_steps,
                on_progress=on_progress,
            )
        except WorkerError as error:
            self.run.event("evaluation_failed", str(error), traceback="".join(error.args[1:]))
            result = evaluate(list, [], [])  # the result of no episodes
        return result

    def _film_if_due(self) -> None:
        """Make a video of an episode of the present policy; its failure does not end training."""
        if self._is_due(self.config.video_every):
            path = self.run.path / "videos" / f"{self.parts.step}.mp4"
            try:
                path.unlink(missing_ok=True)  # made before a run was resumed from an earlier state
                policy = self.parts.policy()
                policy.isolated("the video", policy.evaluate, 1, video=path)
            except Exception as error:
                self.run.event(
                    "video_failed", f"{path} cannot be made: {error}; training continues"
                )
