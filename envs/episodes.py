"""Episodes as a player would count them, and what it takes to go on with one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)
LONGEST_REPLAY = (
    100_000  # steps after which an open episode is not played again, for the time that would take
)


class RecordEpisode(gymnasium.Wrapper):
    """Adds up rewards and steps from reset to reset. What ends episodes for the learner only belongs outside."""

    SAVED = ("total", "length")

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.total, self.length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.total += float(reward)
        self.length += 1
        if terminated or truncated:
            info = {**info, WHOLE_EPISODE: (self.total, self.length)}
        return observation, reward, terminated, truncated, info


class FreshEveryEpisode(gymnasium.Wrapper):
    """Makes the environment anew for every episode, so that none depends on what came before it."""

    def __init__(self, make: Callable[[], gymnasium.Env]) -> None:
        super().__init__(make())
        self.make, self.is_fresh = make, True

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        if not self.is_fresh:
            self.env.close()
            self.env = self.make()
        self.is_fresh = False
        return self.env.reset(**options)


class OpenEpisode(NamedTuple):
    """A whole episode that goes on beyond a rollout: the number of its first reset, the actions (L, D) since then, in
    which it is played again, unless they are not known or too many; and the emulator's own state if it has one."""

    number: int
    actions: np.ndarray | None
    emulator: bytes | None = None


class PlayedEpisode(NamedTuple):
    """A whole episode that is over, and what it takes to play it again: as an OpenEpisode has it, and where it was."""

    episode_return: float
    episode_length: int
    environment: int
    number: int
    actions: np.ndarray


class OpenEpisodes:
    """The whole episode that is open in each environment. no_actions: (0, D)."""

    def __init__(self, num_envs: int, no_actions: np.ndarray) -> None:
        self.no_actions = no_actions
        self.open = [OpenEpisode(0, None)] * num_envs

    def update(
        self,
        actions: np.ndarray,
        dones: np.ndarray,
        report: Any,
        episode_counts_at_rollout_end: np.ndarray,
    ) -> list[PlayedEpisode]:
        """Take a rollout in; returns whole episodes that it ended, of which all actions are known. actions: (T, N, D);
        dones: (T, N), also of episodes that have ended for the learner only; report: of ppo.envs.worker.Worker; episode_counts_at_rollout_end:
        resets of each environment (N,) until now."""
        numbers = (
            episode_counts_at_rollout_end - 1 - dones.sum(0)
        )  # of what was open where the rollout begins
        self.begin(report.begun, numbers)
        played, starts = [], [0] * len(self.open)
        for step, index, episode_return, length in report.episodes:
            number, before, _ = self.open[index]
            if before is not None:
                rest = actions[starts[index] : step + 1, index]
                played.append(
                    PlayedEpisode(
                        episode_return, length, index, number, np.concatenate([before, rest])
                    )
                )
            starts[index] = step + 1
            self.open[index] = OpenEpisode(
                int(numbers[index] + dones[: step + 1, index].sum()), self.no_actions
            )
        for index, (number, known, _) in enumerate(self.open):
            is_short = known is not None and len(known) <= LONGEST_REPLAY
            longer = np.concatenate([known, actions[starts[index] :, index]]) if is_short else None
            self.open[index] = OpenEpisode(number, longer, report.emulators.get(index))
        return played

    def begin(self, environments: Sequence[int], numbers: np.ndarray) -> None:
        """New episodes have begun there, by resets of these numbers (N,)."""
        for index in environments:
            self.open[index] = OpenEpisode(int(numbers[index]), self.no_actions)

    def pack(self, episodes: Sequence[OpenEpisode]) -> dict[str, np.ndarray]:
        """Open episodes, those of a run's environments, as arrays by name."""
        numbers = np.array([episode.number for episode in episodes])
        lengths = np.array([-1 if actions is None else len(actions) for _, actions, _ in episodes])
        actions = np.concatenate(
            [self.no_actions, *(actions for _, actions, _ in episodes if actions is not None)]
        )
        states = {
            f"emulator.{index}": np.frombuffer(state, np.uint8).copy()
            for index, (_, _, state) in enumerate(episodes)
            if state is not None
        }
        return {"numbers": numbers, "lengths": lengths, "actions": actions, **states}

    def unpack(self, arrays: Mapping[str, np.ndarray], here: slice) -> None:
        """Take what pack returned, of the environments that are here. Raises ValueError if it is of others."""
        numbers, lengths, actions = arrays["numbers"], arrays["lengths"], arrays["actions"]
        sizes = lengths.clip(0)
        fits = len(numbers) == len(lengths) and len(numbers[here]) == len(self.open)
        if not fits or actions.shape != (sizes.sum(), *self.no_actions.shape[1:]):
            raise ValueError(f"there are {actions.shape} actions in {len(lengths)} open episodes")
        parts = np.split(actions.astype(self.no_actions.dtype), sizes.cumsum()[:-1])
        known = [part if length >= 0 else None for part, length in zip(parts, lengths, strict=True)]
        states = [arrays.get(f"emulator.{index}") for index in range(len(lengths))]
        self.open = [
            OpenEpisode(int(number), part, None if state is None else state.tobytes())
            for number, part, state in zip(numbers[here], known[here], states[here], strict=True)
        ]


def save_emulator(env: gymnasium.Env) -> bytes | None:
    """What an emulator holds, and the wrappers around it; None of environments that are played again instead."""
    *wrappers, game = layers(env)
    if not hasattr(game, "save"):
        return None
    about = [
        {name: getattr(wrapper, name) for name in getattr(wrapper, "SAVED", ())}
        for wrapper in wrappers
    ]
    return json.dumps([*about, game.np_random.bit_generator.state]).encode() + b"\n" + game.save()


def restore_emulator(env: gymnasium.Env, state: bytes, observation: np.ndarray) -> None:
    """Go on from what save_emulator returned, with an environment made in the same way. observation: what it showed."""
    *wrappers, game = layers(env)
    about, _, emulator = state.partition(b"\n")
    *saved, generator = json.loads(about)
    for wrapper, values in zip(wrappers, saved, strict=True):
        vars(wrapper).update({name: values[name] for name in getattr(wrapper, "SAVED", ())})
        if hasattr(wrapper, "restore"):
            wrapper.restore(observation)
    game.np_random.bit_generator.state = generator
    game.restore(emulator)


def layers(env: Any) -> Iterator[Any]:
    """An environment's wrappers from the outermost, and what they are around."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env
