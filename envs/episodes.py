"""Episodes as a player would count them, and what it takes to go on with one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

WHOLE_EPISODE = "whole_episode"  # in the info of an episode's last step: its (return, length)
LONGEST_REPLAY = 100_000  # steps after which an open episode is not played again, for the time that would take


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
    """An episode that goes on beyond a rollout: its number, and either the actions (L, D) since its reset, in which it
    is played again, or the emulator's own state. With neither it cannot be gone on with."""

    number: int
    actions: np.ndarray | None
    emulator: bytes | None


class OpenEpisodes:
    """What it takes to go on with the episode that is open in each environment: the actions (L, D) since its reset, or
    its emulator's state. no_actions: (0, D)."""

    def __init__(self, num_envs: int, no_actions: np.ndarray) -> None:
        self.no_actions = no_actions
        self.actions: list[np.ndarray | None] = [None] * num_envs  # None where they are not known, or too many
        self.emulators: dict[int, bytes | None] = {}

    def update(
        self, actions: np.ndarray, dones: np.ndarray, begun: Sequence[int], emulators: Mapping[int, bytes | None]
    ) -> None:
        """Take a rollout in. actions: (T, N, D); dones: (T, N); begun: environments that were reset where it begins;
        emulators: their states at its end."""
        self.begin(begun)
        self.emulators = dict(emulators)
        for index, before in enumerate(self.actions):
            ends = dones[:, index].nonzero()[0]
            known = self.no_actions if len(ends) else before
            if known is not None and emulators.get(index) is None and len(known) <= LONGEST_REPLAY:
                self.actions[index] = np.concatenate([known, actions[ends[-1] + 1 if len(ends) else 0 :, index]])
            else:
                self.actions[index] = None

    def begin(self, environments: Sequence[int]) -> None:
        """New episodes have begun there."""
        for index in environments:
            self.actions[index], self.emulators[index] = self.no_actions, None

    def episodes(self, num_begun: np.ndarray) -> list[OpenEpisode]:
        """One for each environment, which has begun so many (N,)."""
        known = zip(num_begun.tolist(), self.actions, strict=True)
        return [OpenEpisode(n - 1, actions, self.emulators.get(index)) for index, (n, actions) in enumerate(known)]

    def pack(self) -> dict[str, np.ndarray]:
        """All of it as arrays by name."""
        lengths = [-1 if actions is None else len(actions) for actions in self.actions]
        actions = np.concatenate([self.no_actions, *(actions for actions in self.actions if actions is not None)])
        states = {
            f"emulator.{i}": np.frombuffer(x, np.uint8).copy() for i, x in self.emulators.items() if x is not None
        }
        return {"lengths": np.array(lengths), "actions": actions, **states}

    def unpack(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take what pack returned. Raises ValueError if it is of other environments."""
        lengths, actions = arrays["lengths"], arrays["actions"]
        if len(lengths) != len(self.actions) or actions.shape != (lengths.clip(0).sum(), *self.no_actions.shape[1:]):
            raise ValueError(f"there are {actions.shape} actions in {len(lengths)} open episodes")
        parts = np.split(actions.astype(self.no_actions.dtype), lengths.clip(0).cumsum()[:-1])
        self.actions = [part if length >= 0 else None for part, length in zip(parts, lengths, strict=True)]
        names = {index: f"emulator.{index}" for index in range(len(lengths))}
        self.emulators = {index: arrays[name].tobytes() for index, name in names.items() if name in arrays}


def save_emulator(env: gymnasium.Env) -> bytes | None:
    """What an emulator holds, and the wrappers around it; None of environments that are played again instead."""
    *wrappers, game = layers(env)
    if not hasattr(game, "save"):
        return None
    about = [{name: getattr(wrapper, name) for name in getattr(wrapper, "SAVED", ())} for wrapper in wrappers]
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
