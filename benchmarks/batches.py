"""Batches beside environments one by one: python -m benchmarks.batches [--repetitions=5]
[--envs=...] [--games]

Trains on the same work in turn, the order reversed each time: by main.py with two workers on
EnvPool and on gymnasium's environments, and by Stable-Baselines3 on the same EnvPool, made a VecEnv
(benchmarks/trainers.py), with a thread of EnvPool per core and one of torch. 64 environments x 128
steps, 4 epochs x 4 minibatches, 2 x 64 tanh each for policy and value; HalfCheetah 2 x 256. The
speed is in environment steps per second from the end of the first iteration to the end of the last.

--games: Pong from pixels by main.py in three ways instead, 16 environments x 64 steps with the
Nature CNN: by this trainer's own wrappers, by EnvPool and by ale_py's AtariVectorEnv, each with
four frames per step, 84 x 84 x 4, ends of episodes at lost lives and clipped rewards. What takes
most of the time is the network, which is the same; "collecting" are the environment steps per
second while a rollout is collected, actions included.

Needs envpool. The machine should have nothing else to do. Writes results/batches/, a page for each.
"""

import json
import shlex
from functools import partial
from statistics import median

from benchmarks import harness
from benchmarks.trainers import OURS, PHASES, Workload, run_ours, run_sb3

SIZE = {"num_envs": 64, "batch_size": 2048}
WIDE = {"flags": "--hidden_size=256", "settings": {"policy_kwargs": {"net_arch": [256, 256]}}}
RUNS = {
    "LunarLander-v3": Workload("LunarLander-v3", 196_608, **SIZE),
    "BipedalWalker-v3": Workload("BipedalWalker-v3", 98_304, **SIZE),
    "CartPole-v1": Workload("CartPole-v1", 393_216, **SIZE),
    "HalfCheetah-v5": Workload("HalfCheetah-v5", 98_304, **SIZE, **WIDE),
}
ENVPOOL = "EnvPool/"
PIXELS = (
    f"{OURS.replace('--model=mlp --hidden_size=64 --share_trunk=False', '--model=cnn')}"
    " --num_envs=16 --num_steps=64 --num_minibatches=4 --num_epochs=4 --num_workers=2"
)
GAME_STEPS = 8192
GAMES = {
    "own wrappers": "--env_name=PongNoFrameskip-v4 --end_on_life_loss=True --clip_rewards=True",
    "EnvPool": "--env_name=EnvPool/Pong-v5",
    "ale_py": "--env_name=gymnasium:make_vec",
}
GAME_OPTIONS = {
    "EnvPool": {"episodic_life": True, "reward_clip": True},
    "ale_py": {
        "id": "ale_py:ALE/Pong-v5",
        "vectorization_mode": "vector_entry_point",
        "repeat_action_probability": 0.0,
        "use_fire_reset": False,
        "episodic_life": True,
        "num_threads": 1,
    },
}


def measure(name: str, repetitions: int) -> harness.Result:
    """Train in each way in turn; return the speeds of all runs, and their ratios."""
    workload = RUNS[name]
    steps = workload.steps_of()
    flags = workload.own_flags()
    pool = workload._replace(env_name=f"{ENVPOOL}{name}")
    variants = {
        "envpool": partial(run_ours, pool.env_name, steps, flags),
        "gymnasium": partial(run_ours, name, steps, flags),
        "sb3": partial(harness.in_fresh_process, run_sb3, pool, steps, False, 1),
    }
    found = harness.alternate(variants, range(1, repetitions + 1), name)
    speeds = {kind: [run["steps_per_second"] for run in runs] for kind, runs in found.items()}
    to_others = {kind: harness.ratios(speeds["envpool"], speeds[kind]) for kind in speeds}
    learning = {kind: share_of_learning(found[kind]) for kind in ("envpool", "gymnasium")}
    return {"speeds": speeds, "ratios": to_others, "learning": learning}


def share_of_learning(runs: list[harness.Result]) -> float:
    """Return which share of an iteration's time is learning."""
    collecting, learning = (median(run[phase] for run in runs) for phase in PHASES)
    return learning / (collecting + learning)


def show(runs: dict[str, harness.Result]) -> str:
    rows = []
    for name, found in runs.items():
        speeds = " | ".join(f"{median(found['speeds'][kind]):,.0f}" for kind in found["speeds"])
        cells = [name, speeds]
        for kind in ("gymnasium", "sb3"):
            ratio = found["ratios"][kind]
            cells += [f"{ratio['of_medians']:.2f}", harness.each(ratio["of_pairs"])]
        cells += [f"{found['learning'][kind]:.0%}" for kind in ("envpool", "gymnasium")]
        rows.append(" | ".join(cells))
    head = (
        "steps per second | EnvPool | gymnasium | SB3 on EnvPool | ratio to gymnasium | each pair "
        "| ratio to SB3 | each pair | share of learning, EnvPool | gymnasium"
    )
    return harness.table(head, rows)


def measure_games(repetitions: int) -> harness.Result:
    """Train on Pong in each way in turn; return the speeds of all runs."""
    variants = {}
    for kind, flags in GAMES.items():
        options = shlex.quote(json.dumps(GAME_OPTIONS[kind])) if kind in GAME_OPTIONS else ""
        more = f" --env_kwargs={options}" if options else ""
        line = f"{flags}{more} {PIXELS} --total_steps={GAME_STEPS}"
        variants[kind] = partial(run_game, line)
    return harness.alternate(variants, range(1, repetitions + 1), "Pong")


def run_game(line: str, seed: int) -> dict[str, float]:
    run = harness.train(f"{line} --seed={seed}")
    steps = run.column("step")
    collecting = (steps[1] - steps[0]) / median(run.column("seconds_collecting")[1:])
    return {"steps_per_second": run.steps_per_second, "collecting": collecting}


def show_games(found: harness.Result) -> str:
    rows = []
    for kind, runs in found.items():
        cells = [kind]
        for name in ("steps_per_second", "collecting"):
            values = [run[name] for run in runs]
            cells += [f"{median(values):,.0f}", harness.each(values, ",.0f")]
        rows.append(" | ".join(cells))
    return harness.table("Pong | steps per second | each | collecting | each", rows)


def main() -> None:
    parser = harness.make_parser(__doc__, repetitions=5, envs=",".join(RUNS))
    parser.add_argument("--games", action="store_true", help="Pong in three ways instead")
    given = parser.parse_args()
    result = harness.describe("envpool", "ale-py", "stable-baselines3")
    medians = f"Medians of {given.repetitions}."
    if given.games:
        result["runs"] = measure_games(given.repetitions)
        harness.write_json("batches/games.json", result)
        table = show_games(result["runs"])
        harness.write_page("batches/games.md", __doc__, medians, table, result=result)
        return
    names = given.envs.split(",")
    result["runs"] = {name: measure(name, given.repetitions) for name in names}
    harness.write_json("batches/batches.json", result)
    table = show(result["runs"])
    harness.write_page("batches/README.md", __doc__, medians, table, result=result)


if __name__ == "__main__":
    main()
