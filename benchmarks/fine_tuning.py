"""Fine-tuning against training from scratch: python -m benchmarks.fine_tuning [--seeds=3]

The task of examples/own_project with another reward (force costs something), on its second level:
steps until the last 100 episodes return 2.5 on average, once from scratch, once from the weights of
a policy that has learned the original reward to the same end. Writes results/fine_tuning/.
"""

import tempfile
from pathlib import Path
from statistics import median

from benchmarks import harness

TASK = (
    "--env_name=examples/own_project/envs/my_env.py:Reach --learning_rate=1e-3 "
    "--total_steps=400000 --stop_when=episode_return_mean>2.5 --report=False --eval_episodes=0"
)
ORIGINAL = """--env_kwargs='{"level": 2}'"""
CHANGED = """--env_kwargs='{"level": 2, "effort": 0.3}'"""


def measure(seed: int) -> dict[str, int]:
    """Return the steps of the three runs of a seed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "0")
        runs = {
            "the original reward, from scratch": ORIGINAL,
            "the changed reward, from scratch": CHANGED,
            "the changed reward, from those weights": f"{CHANGED} --init_from={first}",
        }
        for number, (name, flags) in enumerate(runs.items()):
            run = harness.train_in(Path(folder, str(number)), f"{TASK} {flags} --seed={seed}")
            assert run.summary["stopped"], f"{name}: not learned in {run.summary['steps']} steps"
            found[name] = run.summary["steps"]
    return found


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=3)
    seeds = range(1, parser.parse_args().seeds + 1)
    result = harness.describe()
    result["runs"] = [measure(seed) for seed in seeds]
    rows = []
    for name in result["runs"][0]:
        steps = [run[name] for run in result["runs"]]
        rows.append(f"{name} | {median(steps):,.0f} | {harness.each(steps, ',')}")
    harness.write_json("fine_tuning/fine_tuning.json", result)
    table = harness.table("task | steps, median | each seed", rows)
    harness.write_page("fine_tuning/README.md", __doc__, table, result=result)


if __name__ == "__main__":
    main()
