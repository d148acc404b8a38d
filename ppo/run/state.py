"""What a checkpoint holds: all that a run needs to go on as if it had never stopped."""

import platform
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from ppo.config.config import ELSEWHERE, FIXED
from ppo.envs.episodes import pack_episodes, unpack_episodes
from ppo.errors import CheckpointError
from ppo.run.checkpoint import by_part

Snapshot = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and all else as JSON can have it
VARYING = (
    "optimizer.",
    "open_episodes.",
    "episodes.recent",
    "acting.",
)  # there is more or less of these each time


def snapshot(training: Any) -> Snapshot:
    """A copy of the state of a ppo.trainer.Training between two iterations, with all ranks' environments."""
    rows = {
        name: vars(training.rollout)[name][-1]
        for name in ("observations", "states", "action_masks")
    }
    here = {
        "next": rows,
        "returns": training.normalize_reward.returns,
        "begun": training.episode_counts_at_rollout_end,
    }
    training.ranks.check_same_weights(training.learner.weights)
    everywhere = training.ranks.gather({**here, "open": training.open_episodes.open})
    returns, begun = (
        np.concatenate([rank[name] for rank in everywhere]) for name in ("returns", "begun")
    )
    open_episodes = pack_episodes(
        [episode for rank in everywhere for episode in rank["open"]],
        training.open_episodes.no_actions,
    )
    learner, device = training.learner, torch.device(training.config.device)
    parts: dict[str, dict[str, Any]] = {
        "model": dict(training.model.named_parameters()),
        "optimizer": learner.optimizer.state_dict()["state"].get(0, {}),
        "normalize_observation": training.normalize_observation.state_dict(),
        "normalize_reward": training.normalize_reward.state_dict() | {"returns": returns},
        "generator": {"cpu": torch.get_rng_state()},
        "next": {
            name: np.concatenate([rank["next"][name] for rank in everywhere]) for name in rows
        },
        "episodes": {
            "begun": begun,
            "recent": np.array(training.recent, np.float64).reshape(-1, 2),
        },
        "open_episodes": open_episodes,
    }
    if training.config.overlap:
        parts["acting"] = {"weights": training.behaviour_weights}
    if device.type == "cuda":
        parts["generator"]["cuda"] = torch.cuda.get_rng_state(device)
    named = {
        f"{part}.{key}": x
        for part, values in parts.items()
        for key, x in values.items()
        if x is not None
    }
    tensors = {name: torch.as_tensor(x).detach().to("cpu", copy=True) for name, x in named.items()}
    config = {
        name: x for name, x in training.config.__getstate__().items() if name not in ELSEWHERE
    }
    counters = {
        "iteration": training.iteration,
        "step": training.step,
        "episodes": training.num_episodes,
    }
    learned = {
        "best": training.best,
        "learning_rate": learner.learning_rate,
        "num_skipped": learner.num_skipped,
    }
    about = {"made_with": made_with(), "faults": dict(training.faults)}
    return tensors, {"config": config, **counters, **learned, **about}


def restore(training: Any, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> list[str]:
    """Bring a new training to a state. Returns in what the state differs from what is asked for now, without being
    unusable. Raises CheckpointError if it is of another environment or network, or made otherwise."""
    mine, theirs = training.config.__getstate__(), state["config"]
    both = [
        (name, theirs.get(name), x)
        for name, x in mine.items()
        if name not in ELSEWHERE and theirs.get(name) != x
    ]
    if wrong := [f"{name}={old}, not {new}" for name, old, new in both if name in FIXED]:
        raise CheckpointError(
            f"the run was begun with {'; '.join(wrong)}: leave these flags out, or begin another run"
        )
    wanted = {name: x for name, x in snapshot(training)[0].items() if not name.startswith(VARYING)}
    problems = [f"{name} is missing" for name in wanted.keys() - tensors.keys()]
    for name, x in tensors.items():
        fits = not name.startswith("optimizer.") or x.numel() in (
            1,
            training.learner.weights.numel(),
        )
        if name in wanted:
            fits = (x.shape, x.dtype) == (wanted[name].shape, wanted[name].dtype)
        if not fits:
            here = (
                f", here {wanted[name].dtype} {tuple(wanted[name].shape)}" if name in wanted else ""
            )
            problems.append(f"{name} is {x.dtype} {tuple(x.shape)}{here}")
    if problems:
        raise CheckpointError(
            f"the checkpoint is of another environment or network: {'; '.join(sorted(problems))}"
        )
    parts = by_part(
        {name: tensor.clone() for name, tensor in tensors.items()}
    )  # what is given is not ours to change
    try:
        _apply(training, parts, state)
    except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise CheckpointError(
            f"the checkpoint cannot be gone on with ({error}): give another"
        ) from error
    made, now = state["made_with"], made_with()
    others = [(name, made.get(name), now[name]) for name in now if made.get(name) != now[name]]
    return [f"{name}={new} instead of {old}" for name, old, new in [*both, *others]]


def _apply(
    training: Any, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> None:
    learner = training.learner
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(parts["model"][name])
    training.publish_weights()
    if training.config.overlap and "acting" in parts:
        training.behaviour_weights[:] = parts["acting"]["weights"].numpy()
    if "optimizer" in parts:
        groups = learner.optimizer.state_dict()["param_groups"]
        learner.optimizer.load_state_dict(
            {"state": {0: dict(parts["optimizer"])}, "param_groups": groups}
        )
    training.normalize_observation.load_state_dict(_arrays(parts["normalize_observation"]))
    scales = _arrays(parts["normalize_reward"])
    here = slice(training.numbers.start, training.numbers.stop)  # of all ranks' environments
    training.normalize_reward.returns = scales.pop("returns")[here]
    training.normalize_reward.load_state_dict(scales)
    torch.set_rng_state(parts["generator"]["cpu"])
    if "cuda" in parts["generator"] and training.config.device.startswith("cuda"):
        torch.cuda.set_rng_state(parts["generator"]["cuda"], torch.device(training.config.device))
    for name, row in _arrays(parts["next"]).items():
        for rollout in training.rollouts:
            vars(rollout)[name][-1] = row[here]
    training.episode_counts_at_rollout_end[:] = training.begun[:] = parts["episodes"][
        "begun"
    ].numpy()[here]
    training.recent.extend(tuple(row) for row in parts["episodes"]["recent"].tolist())
    no_actions = training.open_episodes.no_actions
    episodes = unpack_episodes(_arrays(parts["open_episodes"]), no_actions)[here]
    if len(episodes) != len(training.numbers):
        raise ValueError(f"there are open episodes of {len(episodes)} environments")
    training.open_episodes.open = episodes
    training.iteration, training.step = int(state["iteration"]), int(state["step"])
    training.num_episodes = int(state["episodes"])
    training.best = None if state["best"] is None else float(state["best"])
    learner.learning_rate, learner.num_skipped = (
        float(state["learning_rate"]),
        int(state["num_skipped"]),
    )
    training.faults.update(
        {name: int(count) for name, count in state["faults"].items() if name in training.faults}
    )


def _arrays(part: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in part.items()}


def made_with() -> dict[str, Any]:
    """On what the bits of a run depend, beside its config."""
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    return {**versions, "gymnasium": gymnasium.__version__, "threads": torch.get_num_threads()}
