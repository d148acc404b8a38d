"""Progress on the console."""

import os
import sys
import time
from contextlib import suppress
from operator import itemgetter
from threading import Timer

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from ppo.algorithm.rollout import Metrics
from ppo.config.config import to_repeat
from ppo.config.flags import command_line
from ppo.envs.env_factories import EnvObject
from ppo.envs.lookup import command_name
from ppo.run.loggers.logger import Histograms, Logger
from ppo.run.summary import RunSummary
from ppo.system.output import discard, readable
from ppo.system.signals import STOP

SECONDS_BETWEEN_LINES = 5
BAR, TIME = 14, 9  # columns
OWN = "env/"  # begins the names of the environment's own metrics
SUCCESS = f"{OWN}success_rate"


class NonExitingConsole(Console):
    """Raise EOFError when the reader of the output is gone; rich itself would end the process."""

    def on_broken_pipe(self) -> None:
        discard(sys.stdout)
        raise EOFError("nobody reads its output any more")


class Doing(ProgressColumn):
    """What a task does, or that it ends with the iteration as a signal has arrived."""

    def render(self, task: Task) -> Text:
        return Text("stops after this iteration" if STOP.received else task.description)


class ConsoleLogger(Logger):
    """Show a progress bar on a terminal, and a line for the last planned iteration; otherwise print
    a line every 5 seconds, and for the first and the last one.

    With log_every, print a line every log_every iterations instead, also on a terminal. With
    verbose=2, print all settings first, and all metrics after each line. show: metrics to add to
    each line, the environment's own with or without env/, "-" for one without a value; its success
    rate is there if it has one. Beside the bar are as many of them as fit, the return first.
    """

    def __post_init__(self) -> None:
        config = self.config
        self.first_log: tuple[float, float] | None = None  # when, and after which step
        self.next_line = 0.0
        self.shown = config.show.split(",") if config.show else []
        self.total_steps = config.iterations * config.rollout_size
        self.seconds = {"collecting": 0.0, "learning": 0.0}
        self.console = NonExitingConsole(highlight=False, markup=False, soft_wrap=True)
        lines = [*self.notes]
        if config.verbose > 1:
            lines[:0] = [f"{name}={value}" for name, value in config.__getstate__().items()]
        if self.total_steps != config.total_steps and not config.num_iterations:
            lines.append(
                f"trains {self.total_steps:,} steps, as whole rollouts of {config.rollout_size:,}"
            )
        self._print("\n".join(lines))
        self.bar = Progress(
            BarColumn(BAR),
            Doing(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("first iteration", total=self.total_steps)
        self.bar.start()
        self.first = Timer(SECONDS_BETWEEN_LINES, self._say_it_is_long)
        self.first.daemon = True
        if self.total_steps:
            self.first.start()

    def log(self, metrics: Metrics, histograms: Histograms | None) -> None:
        self.first.cancel()
        for phase in self.seconds:
            self.seconds[phase] += metrics[f"seconds_{phase}"]
        step = metrics["step"]
        known = {name: value for name, value in metrics.items() if value is not None}
        parts = self._describe(known)
        line = ", ".join(text for _, text in parts)
        self.bar.update(self.task, completed=step, description=self._beside_bar(parts))
        if "evaluation_return_mean" in known:
            self._print(f"step {step:,}: evaluation {readable(known['evaluation_return_mean'])}")
        now = time.monotonic()
        self.first_log = self.first_log or (now, step)
        if log_every := self.config.log_every:
            is_due = metrics["iteration"] % log_every == 0
        else:
            is_late = self.bar.disable and now >= self.next_line
            is_due = is_late or step >= self.total_steps
        if is_due:
            self.next_line = now + SECONDS_BETWEEN_LINES
            since, done = now - self.first_log[0], step - self.first_log[1]
            if done:  # the first iteration takes longer, as workers start
                line += f", {since / done * (self.total_steps - step):.0f} s left"
            self._print(line)
            if self.config.verbose > 1:
                self._print(", ".join(f"{name} {value:.4g}" for name, value in known.items()))

    def show_progress(self, done: int) -> None:
        self.first.cancel()
        text = f"evaluation: {done} of {self.config.eval_episodes} episodes"
        self.bar.update(self.task, description=text)
        now = time.monotonic()
        if self.bar.disable and now >= self.next_line:
            self.next_line = now + SECONDS_BETWEEN_LINES
            self._print(text)

    def summarize(self, summary: RunSummary) -> None:
        if summary.stopped:
            self._print(f"stopped: {summary.stopped}")
        result = summary.evaluation
        if result.episodes:
            text = f"evaluation: {result.describe()} over {result.episodes} deterministic episodes"
            if "success_rate" in result.env:
                text += f", success {result.env['success_rate']:.1%}"
            if result.unfinished:
                text += f", {result.unfinished} of them cut off by --eval_max_steps"
            self._print(text)
        if total := sum(self.seconds.values()):
            share = self.seconds["collecting"] / total
            limit = "the learner limits the speed"
            if share > 0.5:
                limit = "environments and acting limit the speed"
            self._print(f"time: {share:.0%} collecting, {1 - share:.0%} learning: {limit}")
        folder = os.path.relpath(self.run.path)
        files = ["summary.json"]
        if summary.steps:  # else nothing was trained
            pages = [page.name for page in sorted(self.run.path.glob("*.html"))]
            files = ["metrics.csv", *files, *pages]
        self._print(f"files in {folder}: {', '.join(files)}")
        self._print(self._next(folder))

    def _say_it_is_long(self) -> None:
        """Print why there is no line yet; on a thread of its own."""
        size = f"{self.config.rollout_size:,} steps"
        with suppress(EOFError):
            self._print(f"the first iteration, of {size}, takes over {SECONDS_BETWEEN_LINES} s")

    def _next(self, folder: str) -> str:
        """Return a line with the command that evaluates the policy, or with Python code where no
        command can import the environment. Both repeat what a file alone is not trusted to name."""
        config = self.config
        repeated = to_repeat(config, ("env_name", "wrapper", "model"))
        saved_name = repeated.pop("env_name", None)
        if env := command_name(config.env_name):
            named = {"env_name": env} if saved_name else {}
            return f"next: {command_line('evaluate', folder, **named, **repeated)}"
        arguments = [repr(folder)]
        if isinstance(config.env_name, EnvObject):
            name = config.env_name.strip("<>")
            arguments.append("env" if name == "lambda" else name)
        arguments += [f"{name}={value!r}" for name, value in repeated.items()]
        return f"next, in Python: load_policy({', '.join(arguments)}).evaluate(episodes=100)"

    def close(self) -> None:
        self.first.cancel()
        if not self.bar.disable:  # a disabled bar prints an empty line in some versions
            self.bar.stop()

    abort = close

    def _describe(self, metrics: Metrics) -> list[tuple[int, str]]:
        """Return the parts of an iteration's line, each with its rank: where there is no room, the
        highest are left out. metrics: those that have a value."""
        collecting = metrics["seconds_collecting"]
        share = collecting / (collecting + metrics["seconds_learning"])
        parts = [
            (4, f"step {metrics['step']:,} of {self.total_steps:,}"),
            (3, f"{metrics['steps_per_second']:,.0f} steps/s"),
        ]
        if "episode_return_mean" in metrics:
            parts.append((0, f"return {readable(metrics['episode_return_mean'])}"))
        if SUCCESS in metrics and not {SUCCESS, SUCCESS.removeprefix(OWN)} & {*self.shown}:
            parts.append((1, f"success {metrics[SUCCESS]:.1%}"))
        if "approx_kl" in metrics:
            parts.append((5, f"KL {metrics['approx_kl']:.2g}"))
        for name in self.shown:
            value = metrics.get(name, metrics.get(f"{OWN}{name}"))
            parts.append((2, f"{name} -" if value is None else f"{name} {value:.4g}"))
        return [*parts, (6, f"{share:.0%} collecting")]

    def _beside_bar(self, parts: list[tuple[int, str]]) -> str:
        """Join as many parts as fit beside the bar and the time that is left."""
        room = self.console.width - BAR - TIME - 2
        texts = [text for _, text in sorted(parts, key=itemgetter(0))]
        while texts and len(", ".join(texts)) > room:
            texts.pop()
        return ", ".join(texts)

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the output may go to a full disk
            self.console.print(text)
