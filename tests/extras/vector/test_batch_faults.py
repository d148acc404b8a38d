"""What a batch or a team may do to a run: the same as a single environment, and no more."""

import json
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers.vector import NormalizeReward

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.worker import RolloutInfo
from tests.damaged import DamagedTeam
from tests.running import PLAIN, metrics, run_main, spaces_of
from tests.teams import sync

SLOW = pytest.mark.slow
NAMES = {"batch": "tests.damaged:Damaged", "team": "tests.damaged:DamagedTeam"}
FORMS = ["batch", "team"]
N = 4
T = 32
BATCH = r"the batch of environments 0 to 3 of tests\.damaged:Damaged(Team)?"
RAISED = f"{BATCH} raised"
INVALID = f"{BATCH}: its"
STEP = "in the step of the batch of environments 0 to 3"
RESET = STEP.replace("step", "reset")
LIMIT = 11  # steps, in which an episode of column 0 or 1 terminates, but none of 2 or 3
FIVE = "step returned .*, which is not five results ending in a dict"
# Where it happens, what, and what is said of it.
EVERYWHERE = {
    ("step", "raise"): f"{RAISED} RuntimeError: a wheel came off",
    ("step", "nan"): f"{INVALID} observation .* is not finite",
    ("step", "shape"): rf"{INVALID} observations? (is|are) float32 \(.*1,?\)",
    ("step", "rows"): f"{BATCH}: ",
    ("step", "outside"): f"{INVALID} observation .* is outside of Box",
    ("step", "reward_nan"): f"{INVALID} reward .*is nan, not one finite number",
    ("step", "reward_words"): f"({RAISED} ValueError|{INVALID} rewards are)",
    ("step", "reward_rows"): f"{BATCH}: ",
    ("step", "truncation_rows"): f"{BATCH}: ",
    ("step", "infos"): f"{INVALID} {FIVE}",
    ("step", "four_results"): f"{INVALID} {FIVE}",
    ("reset", "odd"): f"{RAISED} Odd: a wheel came off",
    ("reset", "only_observations"): (
        f"{INVALID} reset returned .*, which is not two results ending in a dict"
    ),
    ("step", "mask"): f"{RAISED} ValueError: its action_mask .* is not 2 zeros and ones",
}
OF_BATCHES = {
    ("step", "termination_words"): f"{INVALID} terminations are <U",
    ("step", "termination_nan"): f"{INVALID} terminations are .*, not all finite",
    ("step", "mask_rows"): rf"{INVALID} action_mask is int8 \(3, 2\) .*, not one for each of 4",
}
OF_TEAMS = {
    **{what: EVERYWHERE["step", what] for what in ("raise", "nan", "rows", "outside", "mask")},
    **{what: EVERYWHERE["step", what] for what in ("reward_rows", "reward_nan", "infos")},
    "reward_digits": f"{INVALID} reward is '[01].0', not one finite number",
    "termination_words": f"{INVALID} termination is 'False', not True or False",
    "termination_nan": f"{INVALID} termination is nan, not True or False",
    "truncation_words": f"{INVALID} truncation is 'False', not True or False",
}
CASES = [
    *(("batch", *kind, said) for kind, said in (EVERYWHERE | OF_BATCHES).items()),
    *(("team", "step", what, said) for what, said in OF_TEAMS.items()),
]
Events = list[tuple[str, dict[str, Any]]]


def make(form: str, damage: dict[str, Any], **flags: Any) -> Components:
    """Make the parts of a run whose batch, or teams, have a damage."""
    sizes = {"num_envs": N, "num_steps": T, "total_steps": 2 * N * T, "num_minibatches": 1}
    about = {"env_name": NAMES[form], "env_kwargs": damage, "normalize_rewards": False}
    return Components(settings_of(Config(**{**PLAIN, **sizes, **about, **flags})))


def collect(parts: Components) -> tuple[RolloutInfo, Events]:
    """Collect a rollout by the pool of a run; return the report on it and what happened."""
    events: Events = []
    with parts.make_pool(on_event=lambda kind, **more: events.append((kind, more))) as pool:
        info = pool.collect(1)
    parts.finish_collect(1, info)
    return info, events


def assert_replaced(parts: Components, said: str) -> None:
    """Assert that the worker is lost once, for this reason, and replaced, and that the rollout is
    one of a batch that is well."""
    info, events = collect(parts)
    kinds = [kind for kind, _ in events]
    assert kinds == ["worker_lost", "worker_replaced"]
    assert re.match(said, events[0][1]["cause"]), events[0][1]["cause"]
    assert "\n" not in events[0][1]["message"]
    assert "was lost and is replaced" in events[0][1]["message"]
    assert info.reset_envs == [*range(N)]
    rollout = parts.rollout
    np.testing.assert_array_equal(rollout.rewards, rollout.actions[:, :, 0])
    assert np.isfinite(rollout.observations).all()
    assert rollout.terminations.sum() == len(info.episodes) > N


@pytest.mark.parametrize(("form", "where", "what", "said"), CASES)
def test_a_damaged_call_costs_a_worker(
    form: str, where: str, what: str, said: str, tmp_path: Path
) -> None:
    damage = {"where": where, "what": what, "after": 6 if where == "step" else 1}
    if "mask" in what:
        damage["has_masks"] = True
    marker = str(tmp_path / "marker")
    flags = {"strict_spaces": True} if what == "outside" else {}
    assert_replaced(make(form, {**damage, "marker": marker}, **flags), said)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("form", "where", "what", "said"),
    [
        ("batch", "step", "exit", f"worker 0 ended with exit code 3 {STEP}"),
        ("team", "step", "hang", rf"worker 0 hung {STEP}: over 1 s \(--step_timeout\)"),
        ("batch", "reset", "hang", rf"worker 0 hung {RESET}: over 5 s \(--reset_timeout\)"),
    ],
)
def test_a_process_that_dies_or_hangs_is_replaced(
    form: str, where: str, what: str, said: str, tmp_path: Path
) -> None:
    damage = {"where": where, "what": what, "after": 6 if where == "step" else 1}
    damage["marker"] = str(tmp_path / "marker")
    timeouts = {"step_timeout": 1.0, "reset_timeout": 5.0}  # a new process takes a second or more
    assert_replaced(make(form, damage, num_workers=1, **timeouts), said)


@pytest.mark.parametrize("form", FORMS)
def test_observations_outside_are_counted_and_passed_on(form: str) -> None:
    parts = make(form, {"where": "step", "what": "outside", "after": 1})
    info, events = collect(parts)
    assert not events
    assert info.faults == {key: {"observation_outside": T - 1} for key in range(N)}


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_made_is_named_at_once(form: str) -> None:
    with pytest.raises(WorkerError, match=f"{NAMES[form]} raised Odd: a wheel came off"):
        make(form, {"where": "constructor", "what": "odd"})


class Nobody(DamagedTeam):
    """A team without agents."""

    possible_agents = ()


class Deserted(DamagedTeam):
    """A team that nobody comes back to after its first episode in training."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed, options)
        if self.damage.num_calls:
            self.agents = []
        self.damage.num_calls += 1
        return found


def test_a_team_must_have_agents() -> None:
    about = {"num_envs": N, "total_steps": 2 * N * T, "num_steps": T, "num_minibatches": 1}
    name = "tests.extras.vector.test_batch_faults:"
    with pytest.raises(EnvironmentUnavailable, match="Nobody is a team without agents: name those"):
        settings_of(Config(env_name=f"{name}Nobody", **about))
    parts = Components(settings_of(Config(env_name=f"{name}Deserted", **{**PLAIN, **about})))
    with pytest.raises(WorkerError, match=": no agent is there after its reset"):
        collect(parts)


def scaled(num_envs: int) -> Any:
    return NormalizeReward(sync(num_envs))


def test_statistics_that_no_checkpoint_has_are_named() -> None:
    (warning,) = spaces_of(f"{__name__}:scaled").warnings
    assert "NormalizeReward has statistics that are in no checkpoint" in warning
    assert warning.endswith("--normalize_rewards does it here")


@pytest.mark.parametrize("form", FORMS)
def test_a_close_that_raises_is_said_once_and_ends_nothing(form: str) -> None:
    parts = make(form, {"where": "close", "what": "odd"})
    (warning,) = parts.spaces.warnings
    assert warning.startswith(f"environment {NAMES[form]}: it raised ")
    assert warning.endswith(" as it was closed: a wheel came off")
    assert collect(parts)[1] == []


def test_a_world_that_reuses_its_arrays_is_the_same_as_one_that_copies() -> None:
    found = []
    for reuses in (False, True):
        parts = make("batch", {"reuses": reuses}, max_episode_steps=LIMIT)
        info, _ = collect(parts)
        assert info.last_observations
        found.append((parts.rollout, info))
    (one, info), (other, same) = found
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        np.testing.assert_array_equal(vars(other)[name], vars(one)[name])
    assert same.episodes == info.episodes
    for expected, last in zip(info.last_observations, same.last_observations, strict=True):
        np.testing.assert_array_equal(last.observation, expected.observation)


def run_two_iterations(
    form: str, damage: dict[str, Any], run: Path, num_steps: int = T, *flags: str
) -> CompletedProcess:
    """Train by main.py."""
    return run_main(
        *(f"--env_name={NAMES[form]}", f"--env_kwargs={json.dumps(damage)}", "--preset=none"),
        *(f"--num_envs={N}", f"--num_steps={num_steps}", "--num_minibatches=1", "--num_epochs=1"),
        *(f"--total_steps={2 * N * num_steps}", "--num_workers=1", f"--run_dir={run}", *flags),
    )


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("form", "where", "what", "said"),
    [
        ("batch", "step", "kill", f"worker 0 was killed by SIGKILL {STEP}"),
        ("team", "step", "reward_rows", EVERYWHERE["step", "reward_rows"]),
    ],
)
def test_a_run_goes_on_and_counts_it(
    form: str, where: str, what: str, said: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    damage = {"where": where, "what": what, "after": 6, "marker": str(tmp_path / "marker")}
    done = run_two_iterations(form, damage, run, T, "--eval_episodes=0")
    assert done.returncode == 0, done.stderr
    (warning,) = done.stderr.splitlines()
    assert re.match("warning: worker 0 was lost and is replaced, .*: " + said, warning)
    rows = metrics(run)
    assert [row["faults/worker_lost"] for row in rows] == ["1", "1"]
