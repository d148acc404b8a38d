"""Write the checkpoints of a run on a thread, and remove old ones."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread, current_thread

from ppo.errors import CheckpointError, ConfigError, SaveFailed
from ppo.run.checkpoint import LAST, copy_state, load, newest_first, save
from ppo.run.reader import MILESTONES
from ppo.system.files import atomic_write, link_or_copy, remove_leftovers
from ppo.system.signals import stopped_at_once
from ppo.system.state_dict import State

NUM_KEPT = 3
BEST = "best.safetensors"
SECONDS_AT_ONCE = 1.0  # to save what is kept after a second Ctrl-C
SECONDS_FOR_LAST_WORDS = 0.3  # longer than a write usually takes


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """Write a run's checkpoints on a thread, made at once, one at a time: <step>.safetensors.

    The last three and the best are kept. last.safetensors links to the newest, best.safetensors to
    the best. Only files that this run has written, and unfinished ones, are removed. Every
    keep_every iterations a checkpoint is also written to milestones/ beside the folder, under the
    same name, where nothing is removed or replaced.
    on_event(kind, message) receives the reason why a checkpoint could not be written. Raises
    ConfigError if the thread cannot be made.
    """

    def __init__(
        self, folder: Path, on_event: Callable[[str, str], None], keep_every: int | None = None
    ) -> None:
        self.folder = folder
        self.milestones = folder.parent / MILESTONES
        self.on_event = on_event
        self.keep_every = keep_every
        self.last_state: State = {}
        self.is_best = False
        self.failure: BaseException | None = None  # of the last write
        self.warning = ""  # about it, until it is shown
        self.written: list[Path] = []  # by this run, the oldest first
        self.requests = SimpleQueue[tuple[State, bool, Event] | None]()
        self.done = Event()  # the last request
        self.done.set()
        self.owner = current_thread()
        for place in (folder, self.milestones):
            remove_leftovers(place)
        self.thread = Thread(target=self._work, daemon=True)
        try:
            self.thread.start()
        except RuntimeError as error:
            raise ConfigError(
                f"the thread that writes checkpoints cannot be made ({error}): allow more by "
                "ulimit -u"
            ) from error

    def take_ownership(self, own: Path, state: State) -> None:
        """Treat checkpoints of the resumed run as written by this one: its own, of this state, and
        those with the same settings, up to its step."""
        for path in reversed(newest_first(self.folder)):
            with suppress(CheckpointError, LookupError, TypeError, RuntimeError):
                found = state if path.name == own.name else load(path)
                if found["config"] == state["config"] and found["step"] <= state["step"]:
                    self.written.append(path)

    def remember(self, state: State, is_best: bool = False) -> None:
        """Copy the state of a run between two iterations, for save to write.

        is_best: whether best.safetensors shall link to it."""
        self._warn()
        self.last_state, self.is_best = copy_state(state), is_best

    @property
    def last_step(self) -> int:
        """Environment step of the last state that was remembered."""
        return self.last_state["step"]

    def save(self) -> None:
        """Start writing the state that was remembered last, once any earlier write has ended; from
        any thread."""
        self.wait()
        self.done = Event()
        self.requests.put((self.last_state, self.is_best, self.done))

    def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing is being written, for at most the given number of seconds."""
        self.done.wait(seconds)
        self._warn()

    def finish(self) -> None:
        """Wait for the last checkpoint. Raises SaveFailed if it could not be written."""
        self.wait()
        if self.failure:
            raise SaveFailed(
                f"the last checkpoint cannot be written to {self.folder} ({self.failure}): "
                f"{self._newest}"
            )

    def last_words(self) -> str:
        """Say what is saved, and what is lost, of a run that is stopped at once; give what is being
        written a moment to end."""
        deadline = time.monotonic() + SECONDS_FOR_LAST_WORDS
        while not self.done.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)  # without a lock, which what a signal has interrupted may hold
        if not self.last_state:
            return stopped_at_once()
        if self._path(self.last_state) in self.written:
            return f"{stopped_at_once()}, saved in {self.folder.parent} after step {self.last_step}"
        return f"{stopped_at_once()}, the state after step {self.last_step} is lost: {self._newest}"

    def __exit__(self, *exception: object) -> None:
        """Wait for what is being written; after Ctrl-C, save the last kept state, too, unless that
        takes longer than a second."""
        # If the thread is still writing when Python exits, the process may abort.
        seconds = None
        if isinstance(exception[1], KeyboardInterrupt):
            seconds = SECONDS_AT_ONCE
            deadline = time.monotonic() + seconds
            self.wait(seconds)
            if self.last_state and self.done.is_set():
                self.save()
                seconds = max(0.0, deadline - time.monotonic())
        self.wait(seconds)
        self.requests.put(None)
        self.thread.join(seconds)

    def _work(self) -> None:
        """Write the states that are requested, until there is None."""
        for state, is_best, done in iter(self.requests.get, None):
            self._write(state, is_best)
            done.set()

    def _warn(self) -> None:
        """Report what could not be written; by no other thread, since the output may block it."""
        if self.warning and current_thread() is self.owner:
            warning, self.warning = self.warning, ""
            self.on_event("checkpoint_failed", warning)

    @property
    def _newest(self) -> str:
        return f"the newest is {self.written[-1]}" if self.written else "there is none"

    def _is_milestone(self, state: State) -> bool:
        if not self.keep_every:
            return False
        return state["iteration"] > 0 and state["iteration"] % self.keep_every == 0

    def _path(self, state: State) -> Path:
        return self.folder / f"{state['step']:012d}.safetensors"

    def _write(self, state: State, is_best: bool) -> None:
        path = self._path(state)
        try:
            if path not in self.written:
                save(path, state)
                self.written.append(path)
            for name in (LAST, BEST) if is_best else (LAST,):
                with atomic_write(self.folder / name) as link:
                    link_or_copy(link, path)
            best = (self.folder / BEST).resolve()
            for old in self.written[:-NUM_KEPT]:
                if old.name != best.name:
                    old.unlink(missing_ok=True)
                    self.written.remove(old)
            milestone = self.milestones / path.name
            if self._is_milestone(state) and not milestone.exists():
                save(milestone, state)
            self.failure = None
        except BaseException as error:  # callbacks and models may return any state
            self.failure = error
            self.warning = (
                f"the checkpoint of step {state['step']} cannot be written to {self.folder} "
                f"({error}); older ones are intact, and it is tried again"
            )
