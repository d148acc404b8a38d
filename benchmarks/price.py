"""What being careful costs: python -m benchmarks.price [--repetitions=5] [--steps=409600]

Trains LunarLander by main.py, in turn as it is with a checkpoint every 10 iterations, and bare: workers are not
watched, what environments return is not checked, nor whether losses are finite, no state is copied between iterations,
and nothing is saved but at the start. Once with the tuned preset, whose iterations are 8,192 steps, and once with
iterations of 1,024 steps, for which the work of each iteration weighs more. Measured are environment steps per second
from the end of the first iteration to the end of the last, in fresh processes with the same seeds. The machine should
have nothing else to do. Writes results/reliability/price.json and price.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, about_machine

RESULTS = ROOT / "results" / "reliability"
WANTED = 0.95
BARE = "PPO_BENCHMARK_BARE"  # in the environment of a bare run and its workers
COMMON = ("--env_name=LunarLander-v3", "--eval_episodes=0", "--logger=none", "--report=False")
RUNS = {
    "preset": (),
    "short iterations": (
        "--preset=none",
        "--num_envs=8",
        "--num_steps=128",
        "--num_minibatches=4",
        "--num_epochs=4",
    ),
}


def strip() -> None:
    """Take the care out of the trainer, in this process."""
    import torch

    import ppo.envs.make
    from ppo.envs.episodes import OpenEpisodes
    from ppo.envs.pool import WorkerPool
    from ppo.envs.environment_slice import EnvironmentSlice
    from ppo.trainer import Training

    def command(self: Any, method: str, arguments: Any, _: Any) -> list[Any]:
        for worker, argument in zip(self.workers, arguments, strict=True):
            worker.send(method, argument)
        return [worker.connection.recv() for worker in self.workers]

    def first_snapshot(self: Any) -> Any:
        vars(self).setdefault("first", snapshot(self))
        return self.first

    def is_finite(self: Any) -> Any:
        return TRUE

    TRUE = torch.tensor(True)
    snapshot = Training.snapshot
    ppo.envs.make.CheckData = lambda env, is_strict: env
    EnvironmentSlice._beat = lambda self, call: None
    WorkerPool._command = command
    OpenEpisodes.update = lambda self, *rollout: []
    Training.snapshot = first_snapshot
    torch.Tensor.isfinite = is_finite


def run(flags: tuple[str, ...], steps: int, seed: int, is_bare: bool) -> float:
    """The steps per second of a run."""
    every = f"--checkpoint_every={10**6 if is_bare else 10}"
    with tempfile.TemporaryDirectory() as folder:
        program = (
            [sys.executable, "-m", "benchmarks.price", "--train"]
            if is_bare
            else [sys.executable, "main.py"]
        )
        command = [
            *program,
            *COMMON,
            *flags,
            every,
            f"--total_steps={steps}",
            f"--seed={seed}",
            f"--run_dir={folder}",
        ]
        subprocess.run(
            command, check=True, cwd=ROOT, env={**os.environ, **({BARE: "1"} if is_bare else {})}
        )
        lines = Path(folder, "metrics.csv").read_text().splitlines()
    rows = [
        dict(zip(lines[0].split(","), line.split(","), strict=True))
        for line in (lines[1], lines[-1])
    ]
    (first, first_at), (last, last_at) = ((int(row["step"]), float(row["seconds"])) for row in rows)
    return (last - first) / (last_at - first_at)


def begin(about: str, *packages: str) -> tuple[argparse.Namespace, dict[str, Any]]:
    """What a benchmark's command line gives, and its result before any run. about: its docstring."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=409_600, help="of each run")
    given = parser.parse_args()
    program = about.partition(" [")[0].partition(": ")[2]
    command = f"{program} --repetitions={given.repetitions} --steps={given.steps}"
    return given, {
        "command": command,
        **about_machine("torch", "gymnasium", "numpy", *packages),
        "runs": {},
    }


def heading(about: str, result: dict[str, Any], more: str = "") -> list[str]:
    """The lines above a benchmark's table. about: its docstring; more: what is said after the machine."""
    return [
        f"# {about.partition(':')[0]}\n",
        f"Written by `{result['command']}`; steps/s, medians.",
        about.split("\n\n")[1] + "\n",
        f"{result['cpu']}, {result['cores']} cores, load before {result['load_before']}{more}\n",
    ]


def table(result: dict[str, Any]) -> str:
    lines = [
        *heading(__doc__, result, f"; wanted: {WANTED}"),
        "| LunarLander-v3 | as it is | bare | ratio of medians | each pair |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in result["runs"].items():
        pairs = ", ".join(
            f"{x / y:.3f}" for x, y in zip(found["as_it_is"], found["bare"], strict=True)
        )
        speeds = f"{median(found['as_it_is']):,.0f} | {median(found['bare']):,.0f}"
        lines.append(f"| {name} | {speeds} | {found['ratio']:.3f} | {pairs} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given, result = begin(__doc__)
    for name, flags in RUNS.items():
        speeds: dict[str, list[float]] = {"as_it_is": [], "bare": []}
        for seed in range(1, given.repetitions + 1):
            for kind in list(speeds)[:: 1 if seed % 2 else -1]:  # neither is always the first
                speeds[kind].append(run(flags, given.steps, seed, kind == "bare"))
                print(
                    f"{name}, {seed} of {given.repetitions}, {kind}: {speeds[kind][-1]:,.0f} steps/s",
                    flush=True,
                )
        result["runs"][name] = {
            **speeds,
            "ratio": median(speeds["as_it_is"]) / median(speeds["bare"]),
        }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "price.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "price.md").write_text(table(result))
    print(f"\n{table(result)}")


if BARE in os.environ:
    strip()
if __name__ == "__main__":
    if "--train" in sys.argv:
        from main import main as train

        sys.exit(train(sys.argv[sys.argv.index("--train") + 1 :]))
    main()
