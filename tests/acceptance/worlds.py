"""What can be learned, and what cannot: environments of which the best return is known."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from tests.acceptance.tree import ENVIRONMENTS, Tree, rows, summary

COMMON = (
    "--run_dir=run --seed=1 --preset=none --logger=none --num_workers=0 --eval_episodes=40"
    " --num_envs=6 --num_steps=32 --learning_rate=3e-3 --precision=float32"
)
SHORT = "--total_steps=3072"
LONG = "--total_steps=6144"
PIXELS = f"{SHORT} --screen_size=36 --frame_stack=1 --num_minibatches=2 --learning_rate=1e-3"
PIXELS += " --threads=1"  # two cases side by side would wait for each other in busy loops
LSTM = "--total_steps=9216 --model=lstm --hidden_size=32"
VALUES = f"{LONG} --gamma=0.9 --normalize_rewards=False --clip_value_coef=none --num_epochs=8"
LIMITED = f"{VALUES} --max_episode_steps=8"
ONCE = f"{LSTM} --num_epochs=1 --num_minibatches=1 --learning_rate=1e-2"
SUMS = tuple((1 - 0.9**steps) / (1 - 0.9) for steps in range(8, 0, -1))
ENDLESS = (1 / (1 - 0.9),) * 8
PARTS = {"shows": "dict", "answer": "choices"}
STILL = {"length": 8, "truncates": True, "tells_time": False}


class Row(NamedTuple):
    """low, high: of mean returns, by the trainer and by load_policy; values: of an episode."""

    world: str
    options: dict[str, Any]
    flags: str
    low: float
    high: float = math.inf
    values: tuple[float, ...] = ()
    mode: str = ""


CASES = {
    "episodes of one step": Row("Echo", {}, f"{SHORT} --num_workers=2", 0.97),
    "far from zero": Row("Echo", {"shows": "far"}, SHORT, 0.97),
    "tuple observations": Row("Echo", {**PARTS, "shows": "tuple"}, LONG, 0.97),
    "image": Row("Echo", {"shows": "image"}, PIXELS, 0.97),
    "image and number": Row("Echo", PARTS, PIXELS, 0.9),
    "image alone": Row("Echo", PARTS, f"{PIXELS} --policy_keys=camera", 0, 0.85),
    "MultiDiscrete": Row("Echo", {"answer": "choices"}, SHORT, 0.97),
    "MultiBinary": Row("Echo", {"answer": "switches"}, SHORT, 0.97),
    "bounds": Row("Echo", {"answer": "numbers"}, LONG, 0.85),
    "bounds, gSDE": Row("Echo", {"answer": "numbers"}, f"{LONG} --use_sde=True", 0.85),
    "far bounds": Row("Echo", {"answer": "far"}, LONG, 0.85),
    "odd bounds": Row("Echo", {"answer": "odd"}, LONG, 0.85),
    "masks": Row("Masked", {}, SHORT, 0.95),
    "masks that are not told": Row("Masked", {"tells": False}, SHORT, -10, 0),
    "lstm": Row("Cue", {"length": 4}, LSTM, 0.97),
    "gru": Row("Cue", {"length": 4}, f"{LONG} --model=gru --hidden_size=32", 0.97),
    "no memory": Row("Cue", {"length": 4}, SHORT, 0, 0.8),
    "velocity": Row("Moving", {"length": 8}, f"{SHORT} --frame_stack=2", 6.5),
    "velocity, one frame": Row("Moving", {"length": 8}, SHORT, 0, 5.8),
    "set_env": Row("Goal", {}, f"{SHORT} --callback=worlds:Move", 0.97),
    "termination": Row("Clock", {"length": 8}, VALUES, 8, 8, SUMS),
    "truncation": Row("Clock", STILL, VALUES, 8, 8, ENDLESS),
    "time limit": Row("Clock", {**STILL, "length": 99}, LIMITED, 8, math.inf, ENDLESS),
    "next step": Row("Echo", {}, SHORT, 0.97, mode="NextStep"),
    "next step, termination": Row("Clock", {"length": 8}, VALUES, 8, 8, SUMS, "NextStep"),
    "next step, truncation": Row("Clock", STILL, VALUES, 8, 8, ENDLESS, "NextStep"),
    "next step, lstm": Row("Cue", {"length": 4}, LSTM, 0.97, mode="NextStep"),
    "same step": Row("Echo", {}, SHORT, 0.97, mode="SameStep"),
    "same step, truncation": Row("Clock", STILL, VALUES, 8, 8, ENDLESS, "SameStep"),
    "no autoreset": Row("Clock", STILL, VALUES, 8, 8, ENDLESS, "Disabled"),
    "gymnasium's own": Row("Echo", {}, SHORT, 0.97, mode="own"),
    "team": Row("Team", {}, f"{SHORT} --num_workers=2", 3.8),
    "team, lstm": Row("Team", {"needs_memory": True}, LSTM, 3.8),
    "learns as it acts": Row("Cue", {"length": 4}, ONCE, 0),
    "learns as it acts, vector": Row("Cue", {"length": 4}, ONCE, 0, mode="NextStep"),
    "learns as it acts, team": Row("Team", {"needs_memory": True}, ONCE, 0),
}
LATE = "2.0.1 learns from a late beginning with another recurrent state than the one that acted"
MARKS = {"learns as it acts, vector": LATE, "learns as it acts, team": LATE}


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    row = CASES[name]
    env, options = row.world, row.options
    if row.mode:
        env, options = "together", {"world": row.world, "mode": row.mode, **options}
    words = f"{COMMON} {row.flags} --env_name=worlds:{env}".split()
    flags = {word.partition("=")[0]: word for word in words}  # a later one counts
    done = tree.run([*flags.values(), f"--env_kwargs={json.dumps(options)}"], folder)
    if done.code != 0:
        return f"exit code {done.code}: {done.err}"
    means = {"evaluation": summary(folder / "run")["evaluation"]["mean"]}
    problems = []
    if row.world not in ("Team", "Goal"):
        script = ENVIRONMENTS / "worlds.py"
        done = tree.run(["run", row.world, json.dumps(row.options)], folder, script=script)
        if done.code != 0:
            return f"load_policy: {done.err}"
        means["load_policy"], values = json.loads(done.out)
        if any(abs(x - y) > 0.2 for x, y in zip(values, row.values, strict=False)):
            problems.append(f"values are {values}, not {row.values}")
    for how, mean in means.items():
        if not row.low <= mean <= row.high:
            problems.append(f"{how}: {mean} is not between {row.low} and {row.high}")
    if ONCE in row.flags and any(float(x["approx_kl"]) > 1e-6 for x in rows(folder / "run")):
        problems.append("the policy has changed before an iteration's only gradient step")
    return "; ".join(problems)
