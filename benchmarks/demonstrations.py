"""Demonstrations: python -m benchmarks.demonstrations [--seeds=5] [--envs=...]

For each environment a policy is trained, with its tuned preset and seed 100, and recorded in 20 and
in 5 other episodes. Then, with each seed from 1 on: one run only clones the 20 episodes; two train
for ten iterations after that, without --critic_warmup and with five iterations of it; one clones
the 5 episodes and trains until it is solved; one trains from zero until it is solved. Each is
evaluated in 100 deterministic episodes. Solved, by --stop_when: the mean return of such an
evaluation reaches the goal; for Reach, the arm of examples/own_project, nine of ten training
episodes succeed. A run that is not solved after all of its steps counts with these, a lower bound.
The ratio is that of the medians of steps, warm to zero.

"squashed" is the same with --squash_actions=True, for the recorded policy and all runs. Writes
results/demonstrations/README.md and demonstrations.json after each run: the same command at the
same commit continues what was interrupted. HalfCheetah needs MuJoCo (the extra bench).
"""

import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import harness

RESULTS = "demonstrations/demonstrations.json"
MANY = 20  # episodes, for cloning alone
FEW = 5  # episodes, for a warm start
EXPERT_SEED = 100
WARMUPS = (0, 5)  # iterations of --critic_warmup, of ten
QUIET = "--logger=none --report=False"


class Case(NamedTuple):
    """What is measured: the flags of all runs, --env_name first, and what counts as solved."""

    flags: str
    goal: str = "solved"

    def squashed(self) -> "Case":
        return self._replace(flags=f"{self.flags} --squash_actions=True")


REACH = Case(
    "--env_name=examples/own_project/envs/my_env.py:Reach --learning_rate=1e-3 "
    "--total_steps=102400",
    "env/success_rate>0.9",
)
CHEETAH = Case("--env_name=HalfCheetah-v5", "solved>=4000")
CASES = {
    "LunarLander-v3": Case("--env_name=LunarLander-v3"),
    "Reach": REACH,
    "Reach squashed": REACH.squashed(),
    "HalfCheetah-v5": CHEETAH,
    "HalfCheetah-v5 squashed": CHEETAH.squashed(),
}
# Which ends in seconds, to try this program: not among the default --envs.
TRIAL = {"CartPole-v1": Case("--env_name=CartPole-v1 --total_steps=100000")}


def record(run: Path, env_name: str, episodes: int, path: Path) -> None:
    """Record episodes of a run's policy. env_name: repeated, as a run's folder names no code."""
    command = [*harness.MAIN, "evaluate", str(run), env_name, f"--episodes={episodes}"]
    command += [f"--record={path}", f"--seed={EXPERT_SEED + episodes}"]
    subprocess.run(command, cwd=harness.ROOT, check=True)


def train_expert(case: Case, folder: Path) -> harness.Result:
    """Train and record the policy that is cloned; return its evaluation."""
    flags = f"{case.flags} {QUIET} --seed={EXPERT_SEED} --eval_episodes=100"
    run = harness.train_in(folder / "expert", flags)
    for episodes in (MANY, FEW):
        record(folder / "expert", case.flags.split()[0], episodes, folder / f"{episodes}.npz")
    return {"evaluation": run.summary["evaluation"]["mean"], "steps": run.summary["steps"]}


def run_seed(case: Case, folder: Path, seed: int) -> harness.Result:
    """Clone, begin warm, and begin from zero, with a seed."""
    flags = f"{case.flags} {QUIET} --seed={seed} --eval_episodes=100"
    many = f"{flags} --demonstrations={folder / f'{MANY}.npz'}"
    cloned = harness.train(f"{many} --total_steps=0")
    found: harness.Result = {"cloned": cloned.summary["evaluation"]["mean"]}
    for warmup in WARMUPS:
        run = harness.train(f"{many} --critic_warmup={warmup} --stop_when='iteration>=10'")
        found[f"warmup {warmup}"] = run.summary["evaluation"]["mean"]
    for name, more in (("warm", f"--demonstrations={folder / f'{FEW}.npz'}"), ("zero", "")):
        run = harness.train(f"{flags} --stop_when='{case.goal}' {more}")
        found[name] = {
            "steps": run.summary["steps"],
            "solved": bool(run.summary["stopped"]),
            "seconds": round(run.seconds, 1),
            "evaluation": run.summary["evaluation"]["mean"],
        }
    return found


def measure(name: str, seeds: int, about: harness.Result) -> None:
    """Run a case with all seeds, and write what is found after each."""
    case = (CASES | TRIAL)[name]
    before = harness.read_json(RESULTS).get(name, {})
    is_same = before.get("commit") == about["commit"]
    result = {**about, **case._asdict(), "runs": before.get("runs", []) if is_same else []}
    with tempfile.TemporaryDirectory() as folder:
        while len(result["runs"]) < seeds:
            if not any(Path(folder).iterdir()):
                result["expert"] = train_expert(case, Path(folder))
            found = run_seed(case, Path(folder), len(result["runs"]) + 1)
            result["runs"].append(found)
            print(f"{name}, {len(result['runs'])} of {seeds}: {found}", flush=True)
            harness.write_json(RESULTS, {**harness.read_json(RESULTS), name: result})


def show(results: dict[str, harness.Result]) -> list[str]:
    """Write a table of all results, and what each was measured on."""
    rows = []
    machines = []
    for name, result in results.items():
        runs = result["runs"]
        cells = [name, f"{result['expert']['evaluation']:,.1f}"]
        for kind in ("cloned", *(f"warmup {warmup}" for warmup in WARMUPS)):
            cells.append(harness.each((run[kind] for run in runs), ",.1f"))
        steps = {kind: [run[kind]["steps"] for run in runs] for kind in ("warm", "zero")}
        for kind in steps:
            shown = [
                f"{run[kind]['steps']:,}" if run[kind]["solved"] else f"> {run[kind]['steps']:,}"
                for run in runs
            ]
            cells.append(", ".join(shown))
        cells.append(f"{median(steps['warm']) / median(steps['zero']):.2f}")
        rows.append(" | ".join(cells))
        machines.append(f"- {name}: `{result['flags']}`, {harness.machine(result)}")
    head = (
        f"name | recorded policy | cloned from {MANY} episodes, each seed | ten iterations later | "
        "the same with critic warm-up | steps until solved, "
        f"warm from {FEW} episodes | from zero | ratio"
    )
    return [harness.table(head, rows), "\n".join(machines)]


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=5, envs=",".join(CASES))
    given = parser.parse_args()
    names = given.envs.split(",")
    if unknown := {*names} - (CASES | TRIAL).keys():
        parser.error(f"--envs: unknown {', '.join(unknown)}; give some of {', '.join(CASES)}")
    for name in names:
        measure(name, given.seeds, harness.describe())
    harness.write_page("demonstrations/README.md", __doc__, *show(harness.read_json(RESULTS)))


if __name__ == "__main__":
    main()
