"""Benchmarks give both trainers the same work, and compare them rightly."""

import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces

from benchmarks import all as all_benchmarks
from benchmarks import choices, harness, learning, solve, workloads, zoo, zoo_learning
from benchmarks.internals import num_sides
from benchmarks.trainers import SB3, plain_maker
from benchmarks.workloads import WORKLOADS
from ppo.algorithm.numpy_learner import LARGE
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.config.resolve import resolve
from ppo.models import make_model

CHOICES = [(env_name, flag) for env_name, flags in choices.CHOICES.items() for flag in flags]

per_workload = pytest.mark.parametrize("name", WORKLOADS)


def config_of(env_name: str, flags: str) -> Config:
    return Config(**parse_flags(shlex.split(flags), Config), env_name=env_name)


@per_workload
def test_the_settings_of_both_trainers_mean_the_same(name: str) -> None:
    workload = WORKLOADS[name]
    ours = config_of(workload.env_name, workload.own_flags)
    theirs = {**SB3, **workload.sb3_settings}
    assert ours.num_envs == workload.num_envs
    assert ours.num_steps == theirs["n_steps"]
    assert ours.rollout_size == ours.num_minibatches * theirs["batch_size"]
    assert ours.normalize_observations == ours.normalize_rewards == workload.normalizes
    assert ours.normalize_advantages == "minibatch"
    assert ours.value_coef == 2 * theirs["vf_coef"]  # our loss has a factor 1/2
    same = {
        "num_epochs": "n_epochs",
        "learning_rate": "learning_rate",
        "clip_coef": "clip_range",
        "clip_value_coef": "clip_range_vf",
        "entropy_coef": "ent_coef",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "max_grad_norm": "max_grad_norm",
    }
    for flag, setting in same.items():
        assert getattr(ours, flag) == theirs[setting], flag


def test_the_workload_by_defaults_has_those_of_stable_baselines3() -> None:
    PPO = pytest.importorskip("stable_baselines3").PPO
    settings = {**SB3, **WORKLOADS["sb3-defaults"].sb3_settings}
    of_class = PPO.__init__.__kwdefaults__ or {}
    positional = PPO.__init__.__defaults__
    names = PPO.__init__.__code__.co_varnames[: PPO.__init__.__code__.co_argcount]
    defaults = {**of_class, **dict(zip(names[-len(positional) :], positional, strict=True))}
    for setting in settings.keys() - {"policy", "device"}:
        assert settings[setting] == defaults[setting], setting


@per_workload
def test_the_networks_of_both_trainers_are_of_the_same_size(name: str) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    workload = WORKLOADS[name]
    if workload.env_name.startswith("HalfCheetah"):
        pytest.importorskip("mujoco")
    config, found = resolve(config_of(workload.env_name, workload.own_flags))
    ours = make_model(config, found.observations, found.actions)
    settings = {**SB3, **workload.sb3_settings, "n_steps": 2, "batch_size": 2}
    algorithm = stable_baselines3.PPO
    if name == "memory":
        algorithm = pytest.importorskip("sb3_contrib").RecurrentPPO
    theirs = algorithm(env=plain_maker(workload.env_name)(), **settings).policy
    if name == "memory":
        assert lstm_sizes(ours) == lstm_sizes(theirs) == [128]
    else:
        assert shapes(ours) == shapes(theirs)


def shapes(model: Any) -> list[tuple[int, ...]]:
    return sorted(tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2)


def lstm_sizes(model: Any) -> list[int]:
    return [part.hidden_size for part in model.modules() if type(part).__name__ == "LSTM"]


def test_both_trainers_see_the_same_environment_without_velocities() -> None:
    env_name = WORKLOADS["memory"].env_name
    env = plain_maker(env_name)()
    assert env.observation_space == resolve(Config(env_name))[1].observations
    assert env.observation_space.shape == (2,)
    assert env.unwrapped.render_mode is None


def test_ours_is_compared_with_the_fastest_peer() -> None:
    speeds = {"ours": [10.0, 40.0, 30.0], "one": [10.0, 9.0, 11.0], "two": [20.0, 8.0, 15.0]}
    runs = {name: [{"steps_per_second": x} for x in each] for name, each in speeds.items()}
    found = workloads.compare(runs)
    assert found["medians"] == {"ours": 30, "one": 10, "two": 15}
    assert found["best_peer"] == "two"
    assert found["ratios"] == {"of_medians": 2, "of_pairs": [0.5, 5, 2]}
    shown = workloads.show({"memory": found}).splitlines()
    assert shown[-1].count(" | ") == shown[0].count(" | ")
    assert "| 30 | 10 / 15 | 2.00 | 0.50, 5.00, 2.00 |" in shown[-1]


@per_workload
@pytest.mark.parametrize("is_quick", [False, True])
def test_runs_are_of_three_whole_iterations_or_more(name: str, is_quick: bool) -> None:
    workload = WORKLOADS[name]
    steps = workloads.steps_of(workload, is_quick)
    assert steps % workload.rollout_size == 0
    assert steps >= 3 * workload.rollout_size


def test_policy_and_value_take_a_thread_each_for_large_minibatches_if_they_share_nothing() -> None:
    config = Config(model="mlp", share_trunk=False)
    assert num_sides(config, LARGE) == 2
    assert num_sides(config, LARGE - 1) == 1
    assert num_sides(Config(model="mlp", share_trunk=True), LARGE) == 1
    assert num_sides(Config(model="cnn", share_trunk=False), LARGE) == 1


@pytest.mark.parametrize(("env_name", "flag"), CHOICES)
def test_a_choice_is_one_flag_that_suits_the_environment(env_name: str, flag: str) -> None:
    default = vars(config_of(env_name, choices.DEFAULT))
    chosen = config_of(env_name, f"{choices.DEFAULT} {flag}")
    different = [name for name, value in vars(chosen).items() if value != default[name]]
    assert different == [flag.removeprefix("--").partition("=")[0]]
    resolve(chosen)


def test_choices_of_spaces_are_those_that_their_names_say() -> None:
    actions = {
        "MultiBinaryActions": spaces.MultiBinary,
        "MultiDiscreteActions": spaces.MultiDiscrete,
        "DictActions": spaces.Dict,
        "Masks": spaces.Discrete,
    }
    for name, kind in actions.items():
        env = wrapped(name)
        env.reset(seed=1)
        assert isinstance(env.action_space, kind)
        env.action_space.seed(1)
        info = env.step(env.action_space.sample())[-1]
        assert ("action_mask" in info) == (name == "Masks")
    env = wrapped("DictObservations")
    assert env.observation_space.contains(env.reset(seed=1)[0])
    assert {part.shape for part in env.observation_space.values()} == {(2,)}


def wrapped(name: str) -> Any:
    from benchmarks import choice_environments

    return getattr(choice_environments, name)(gymnasium.make("CartPole-v1"))


@pytest.fixture
def sb3() -> Iterator[Any]:
    """Stable-Baselines3, and afterwards as many threads as before."""
    num_threads = torch.get_num_threads()
    yield pytest.importorskip("stable_baselines3")
    torch.set_num_threads(num_threads)


@pytest.mark.parametrize("env_name", ["CartPole-v1", "Pendulum-v1", "Hopper-v5"])
def test_the_zoos_values_train(env_name: str, sb3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_name.startswith("Hopper"):
        pytest.importorskip("mujoco")
    monkeypatch.setattr(zoo, "EPISODES", 10)
    monkeypatch.setitem(zoo.ZOO[env_name], "n_epochs", 1)
    values = zoo.ZOO[env_name]
    found = zoo.learn(env_name, seed=1, total_steps=500, num_threads=1)
    rollout = values["n_steps"] * values["n_envs"]
    assert found["steps"] == rollout * -(-500 // rollout)
    assert found["curve"][-1] == (found["steps"], found["seconds"], found["mean_return"])
    assert (found["solved"], found["stopped"]) == (None, None)
    low, high = {"CartPole-v1": (8, 500), "Pendulum-v1": (-2000, -1), "Hopper-v5": (0, 4000)}[
        env_name
    ]
    assert low <= found["mean_return"] <= high  # the environment's own, not normalised
    assert low <= found["evaluation"] <= high
    assert torch.get_num_threads() == 1


def test_the_zoos_values_reach_stable_baselines3(sb3: Any) -> None:
    pytest.importorskip("mujoco")
    hopper = zoo.make_model("Hopper-v5", seed=1)
    hidden = [(256, 11), (256, 256)]
    assert shapes(hopper.policy) == sorted([*hidden, *hidden, (3, 256), (1, 256)])
    assert hopper.policy.log_std.tolist() == [-2] * 3
    assert {type(part).__name__ for part in hopper.policy.modules()} & {"Tanh", "ReLU"} == {"ReLU"}
    assert hopper.get_vec_normalize_env().gamma == hopper.gamma == 0.999
    assert hopper.env.render_mode is None
    pendulum = zoo.make_model("Pendulum-v1", seed=1)
    assert (pendulum.use_sde, pendulum.sde_sample_freq, pendulum.env.num_envs) == (True, 4, 4)
    assert pendulum.get_vec_normalize_env() is None
    cartpole = zoo.make_model("CartPole-v1", seed=1)
    assert [cartpole.lr_schedule(remaining) for remaining in (1, 0.5, 0)] == [1e-3, 5e-4, 0]
    assert cartpole.clip_range(0.5) == 0.1


def test_evaluations_have_the_statistics_of_training_and_do_not_change_them(
    sb3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo, "EPISODES", 10)
    model = zoo.make_model("MountainCar-v0", seed=1)
    made = []
    make_envs = zoo.make_envs

    def noted(*arguments: Any, **more: Any) -> Any:
        made.append(make_envs(*arguments, **more))
        return made[-1]

    monkeypatch.setattr(zoo, "make_envs", noted)
    model.learn(1024)
    statistics = model.get_vec_normalize_env().obs_rms
    before = (statistics.count, statistics.mean.tolist())
    assert before[0] > 1000
    assert zoo.make_evaluation("MountainCar-v0", 1, model)() >= -200
    (envs,) = made
    assert envs.obs_rms is statistics
    assert (statistics.count, statistics.mean.tolist()) == before
    assert not envs.norm_reward


def test_a_run_of_stable_baselines3_ends_when_an_evaluation_proves_it(
    sb3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of few episodes and the proof, twice: the second proof is the run's last evaluation, too.
    returns = iter([10.0, 9.0, 10.0, 10.0])
    monkeypatch.setattr(zoo, "make_evaluation", lambda *_: lambda episodes=100: next(returns))
    found = zoo.learn("CartPole-v1", seed=1, threshold=10, num_threads=1)
    assert (found["solved"], found["stopped"], found["evaluation"]) == (True, "solved", 10)
    assert 110 <= found["episodes"] < 200
    assert found["steps"] % (8 * 32) == 0  # after an update


def test_a_run_of_stable_baselines3_ends_at_its_limits(
    sb3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns = iter([0.0, 1.0])
    monkeypatch.setattr(zoo, "make_evaluation", lambda *_: lambda: next(returns))
    cut_off = zoo.learn("CartPole-v1", seed=1, seconds=0, threshold=10, num_threads=1)
    assert (cut_off["solved"], cut_off["stopped"], cut_off["steps"]) == (False, "seconds", 8)
    unproved = zoo.learn("CartPole-v1", 1, threshold=10, num_threads=1, needs_proof=False)
    assert (unproved["solved"], unproved["evaluation"]) == (True, 1)
    assert 100 <= unproved["episodes"] < 200


def test_goals_are_those_of_stop_when() -> None:
    assert zoo.read_goal("MountainCar-v0", "solved") == (-110, True)
    assert zoo.read_goal("PongNoFrameskip-v4", "episode_return_mean>=18") == (18, False)
    assert zoo.read_goal("PongNoFrameskip-v4", "solved>=18") == (18, True)
    assert zoo.read_goal("CartPole-v1", "") == (None, False)
    for env_name, stop_when in (
        ("PongNoFrameskip-v4", "solved"),
        ("Pendulum-v1", "solved"),
        ("CartPole-v1", "iteration>=3"),
    ):
        with pytest.raises(ValueError, match="give"):
            zoo.read_goal(env_name, stop_when)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return tmp_path


MACHINE = {"cpu": "Z80", "cores": 1, "load_before": 0, "versions": {"torch": "2"}, "commit": "c0"}


def run_of(seconds: float, solved: bool | None = True, stopped: str = "solved") -> dict[str, Any]:
    return {
        "seconds": seconds,
        "steps": 1000,
        "evaluation": 200.0,
        "solved": solved,
        "stopped": stopped,
    }


def row_of(page: Path, name: str) -> list[str]:
    (line,) = (line for line in page.read_text().splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_of_seconds_shows_runs_that_were_not_solved(results: Path) -> None:
    earlier = [{"seconds": 7.5, "steps": 99_328, "evaluation": 500.0}]
    cut_off = run_of(1900, False, "seconds")
    examples = {
        "earlier": {"runs": earlier},
        "solved": {"runs": [run_of(20), run_of(10), run_of(30)], "sb3": [run_of(50), run_of(70)]},
        "slow": {"runs": [run_of(10)], "sb3": [cut_off, run_of(90), cut_off]},
        "never": {"runs": [run_of(9, False)], "sb3": [run_of(60)]},
        "empty": {},
    }
    for name, example in examples.items():
        about = {"command": "python main.py", "sb3_seconds": 1800, **MACHINE}
        harness.write_json(f"solve/{name}.json", {**about, **example})
    solve.write_page()
    page = results / "solve" / "README.md"
    assert row_of(page, "earlier")[:6] == ["7.5", "7.5", "", "", "", "99,328"]
    assert row_of(page, "solved")[:5] == ["20.0", "20.0, 10.0, 30.0", "60.0", "50.0, 70.0", "3.0"]
    assert row_of(page, "slow")[2:5] == ["> 1,800", "> 1,800, 90.0, > 1,800", "> 180.0"]
    assert row_of(page, "never")[:5] == ["unsolved", "unsolved", "60.0", "60.0", ""]
    assert len({len(row_of(page, name)) for name in ("file", *examples) if name != "empty"}) == 1


def test_seconds_are_measured_after_those_of_an_interrupted_command(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[tuple[str, int]] = []

    def run(trainer: str, *arguments: Any) -> dict[str, Any]:
        measured.append((trainer, arguments[-1]))
        if len(measured) == 3:
            raise KeyboardInterrupt
        return run_of(10.0)

    def command(line: str, commit: str = "c0") -> None:
        monkeypatch.setattr("sys.argv", ["solve", *line.split()])
        monkeypatch.setattr(harness, "describe", lambda *_: {**MACHINE, "commit": commit})
        solve.main()

    monkeypatch.setattr(solve, "solve", partial(run, "ours"))
    monkeypatch.setattr(solve, "solve_by_sb3", partial(run, "sb3"))
    with pytest.raises(KeyboardInterrupt):
        command("--env=CartPole-v1 --seeds=2 --sb3=1")
    command("--env=CartPole-v1 --seeds=2 --sb3=1")
    assert measured == [("ours", 1), ("sb3", 1), ("ours", 2), ("ours", 2)]
    command("--env=CartPole-v1 --seeds=2 --sb3=2 --sb3_seconds=7")  # other runs of SB3, not of ours
    assert measured[4:] == [("sb3", 1), ("sb3", 2)]
    command("--env=CartPole-v1 --seeds=1", commit="c1")
    assert measured[6:] == [("ours", 1)]
    (kept,) = harness.read_all("solve").values()
    assert (len(kept["runs"]), kept["sb3"], kept["commit"]) == (1, [], "c1")


def test_the_page_of_learning_shows_both_trainers(results: Path) -> None:
    ours = [
        {"steps": 1000, "seconds": 10 * n, "mean_return": 100.0 * n, "evaluation": {"mean": n}}
        for n in (1, 2, 3)
    ]
    theirs = {
        "seed": 1,
        "steps": 1024,
        "seconds": 50.0,
        "mean_return": 150.0,
        "evaluation": 170.0,
        "at_equal_seconds": {"seconds": 20, "steps": 400, "mean_return": 80.0},
        "measured": MACHINE,
    }
    harness.write_json("learning/HalfCheetah-v5-by-family.json", {**MACHINE, "runs": ours})
    harness.write_json("learning/sb3-HalfCheetah-v5.json", {"runs": [theirs]})
    harness.write_json("learning/sb3-Hopper-v5.json", {"runs": [theirs]})  # ours is not there
    assert learning.read_ours().keys() == {"HalfCheetah-v5-by-family"}
    learning.write_page(learning.read_ours())
    text = (results / "learning" / "README.md").read_text()
    assert "## Beside Stable-Baselines3 with the zoo's values" in text
    assert "- HalfCheetah-v5: SB3 on Z80, 1 cores" in text
    assert "- Hopper-v5" not in text
    row = "| 1,000 | 2.0 | 200.0 | 20 | 1,024 | 170.0 | 150.0 | 50 | 80.0 | 400 | 2.5 |"
    assert f"| HalfCheetah-v5-by-family {row}" in text


def test_a_curve_is_read_at_a_time() -> None:
    curve = [(8, 1.0, None), (16, 2.0, 5.0), (24, 3.5, 6.0)]
    assert zoo_learning.at(curve, 3.4) == curve[1]
    assert zoo_learning.at(curve, 0.5) == curve[0]
    assert zoo_learning.at(curve, 9) == curve[2]


def test_runs_beside_ours_are_not_made_again(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def train(env_name: str, seed: int, **flags: Any) -> dict[str, Any]:
        made.append((env_name, seed, flags["total_steps"], flags["num_threads"]))
        curve = [(8 * n, float(n), 1.0) for n in range(200)]
        return {"seed": seed, "steps": 1592, "evaluation": 1.0, "curve": curve}

    monkeypatch.setattr(zoo, "train", train)
    monkeypatch.setattr(harness, "describe", lambda *_: MACHINE)
    ours = {"Acrobot-v1": {"runs": [{"steps": 1500, "seconds": n} for n in (40, 50, 90)]}}
    for _ in range(2):
        zoo_learning.train_all(["Acrobot-v1", "Pong"], ours, [1, 2])
    assert sorted(made) == [("Acrobot-v1", 1, 1500, 1), ("Acrobot-v1", 2, 1500, 1)]
    zoo_learning.train_all(["Acrobot-v1"], ours, [3])
    found = json.loads((results / "learning" / "sb3-Acrobot-v1.json").read_text())
    assert [run["seed"] for run in found["runs"]] == [1, 2, 3]
    then = {"seconds": 50, "steps": 400, "mean_return": 1.0}
    assert found["runs"][0]["at_equal_seconds"] == then
    assert len(found["runs"][0]["curve"]) == zoo_learning.POINTS + 1


@pytest.mark.slow
def test_a_command_trains_by_the_zoos_values() -> None:
    pytest.importorskip("stable_baselines3")
    found = zoo.train("CartPole-v1", 2, total_steps=1000, stop_when="solved", seconds=None)
    assert (found["steps"], found["seed"], found["solved"]) == (1024, 2, False)
    assert found["command_seconds"] > found["seconds"] > 0
    with pytest.raises(SystemExit, match="exit code 2"):
        zoo.train("Pendulum-v1", 2, stop_when="solved")


@pytest.mark.slow
@per_workload
def test_a_workload_is_measured(name: str) -> None:
    pytest.importorskip("sb3_contrib")
    pytest.importorskip("mujoco")
    found = workloads.measure(name, "", [1], 1, is_quick=True)
    assert found["medians"].keys() == {"ours", "SB3, torch threads: 1"}
    assert min(found["medians"].values()) > 0


@pytest.mark.slow
def test_a_choice_is_measured_beside_the_default() -> None:
    found = choices.measure("CartPole-v1", "--activation=relu", 4096, 1)
    assert found["runs"].keys() == {"default", "choice"}
    rows = choices.show([found]).splitlines()
    assert len(rows) == 3
    assert len({row.count(" | ") for row in rows}) == 1


def test_all_benchmarks_go_on_where_they_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["all", "startup", "solve --env=CartPole", "throughput"])
    begun: list[str] = []

    def run(command: str) -> dict[str, Any]:
        begun.append(command)
        return {"exit_code": int(len(begun) == 2), "minutes": 1.5}

    monkeypatch.setattr(all_benchmarks, "run", run)
    assert all_benchmarks.main() == 1
    chosen = [x for x in all_benchmarks.COMMANDS if x.startswith(("startup", "throughput"))]
    chosen.append("solve --env=CartPole-v1 --sb3=5")
    assert begun == chosen
    assert all_benchmarks.main() == 0
    assert begun == [*chosen, chosen[1]]  # which had failed
    page = (tmp_path / "README.md").read_text()
    assert f"| `python -m benchmarks.{chosen[1]}` | 1.5 | " in page
    assert "with an error" not in page
    monkeypatch.setattr(harness, "commit", lambda: "another")
    all_benchmarks.main()
    assert begun[-len(chosen) :] == chosen


def test_each_of_all_benchmarks_is_there() -> None:
    for command in all_benchmarks.COMMANDS:
        name, *flags = shlex.split(command)
        about = resolve_name(f"benchmarks.{name}").__doc__
        for flag in flags:
            assert flag.partition("=")[0] in about, command
