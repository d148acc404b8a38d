"""Colours: python -m benchmarks.colors [--seeds=2] [--envs=...] [--steps=0] [--episodes=20]

What --image=gray and --image=color come to, with everything else by the tuned values of the
environment or of its family; Starpilot's are those of its authors (Cobbe et al., Leveraging
Procedural Generation, 2020), but for the network. Each environment is trained in both ways with
each seed from 1 on, one run after another; --steps replaces the numbers of steps below.

- evaluation: the mean return of --episodes deterministic episodes after training, for each seed
- last 100: the mean return of the last 100 episodes of training, for each seed

Writes results/colors/README.md and colors.json after each run: the same command at the same commit
continues what was interrupted. CarRacing draws only the frames that frame skip shows. EnvPool is
the extra envpool; its Procgen games need Qt 5 (apt install libqt5gui5). Crafter is the package
crafter, whose worlds numba makes eight times faster.
"""

from benchmarks import harness

RESULTS = "colors/colors.json"
WAYS = ("gray", "color")
CASES = {  # flags of both ways, and steps
    "CarRacing-v3": (
        "--env_name=benchmarks.car_racing_env:CarRacing --preset=CarRacing-v3 "
        "--max_episode_steps=1000",
        200_000,
    ),
    "StarpilotEasy-v0": (
        "--env_name=EnvPool/StarpilotEasy-v0 --num_envs=64 --num_steps=256 --batch_size=2048 "
        "--num_epochs=3 --learning_rate=5e-4 --gamma=0.999 --gae_lambda=0.95 --entropy_coef=0.01 "
        "--normalize_rewards --screen_size=64 --frame_stack=1",
        1_000_000,
    ),
    "Crafter": ("--env_name=benchmarks.crafter_env:Crafter --num_envs=32", 1_000_000),
}
QUIET = "--logger=none --report=False"


def train(flags: str, way: str, seed: int) -> harness.Result:
    """Train one seed; return what is kept of it."""
    summary = harness.train(f"{flags} {QUIET} --image={way} --seed={seed}").summary
    found = {name: summary[name] for name in ("steps", "mean_return")}
    return {**found, "evaluation": summary["evaluation"]["mean"]}


def measure(name: str, flags: str, seeds: int) -> None:
    """Train an environment with all seeds, and write what is found after each run."""
    about = {**harness.describe(), "flags": flags}
    before = harness.read_json(RESULTS).get(name, {})
    is_same = all(before.get(key) == about[key] for key in ("commit", "flags"))
    result = {**about, **{way: before.get(way, []) if is_same else [] for way in WAYS}}
    for seed in range(1, seeds + 1):
        for way in WAYS:
            if len(result[way]) < seed:
                result[way].append(train(flags, way, seed))
                print(f"{name}, {way}, {seed} of {seeds}: {result[way][-1]}", flush=True)
                harness.write_json(RESULTS, {**harness.read_json(RESULTS), name: result})


def show(results: dict[str, harness.Result]) -> list[str]:
    """Write a table of all results, and what each was measured on."""
    rows = []
    for name, result in results.items():
        for way in WAYS:
            runs = result[way]
            cells = [name, way, f"{runs[0]['steps']:,}"]
            for kind in ("evaluation", "mean_return"):
                values = [run[kind] for run in runs]
                cells.append(", ".join("-" if x is None else f"{x:,.1f}" for x in values))
            rows.append(" | ".join(cells))
    table = harness.table("environment | image | steps | evaluation | last 100", rows)
    about = [f"- {name}: `{x['flags']}`, {harness.machine(x)}" for name, x in results.items()]
    return [table, "\n".join(about)]


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=2, envs=",".join(CASES), steps=0, episodes=20)
    given = parser.parse_args()
    names = given.envs.split(",")
    if unknown := {*names} - CASES.keys():
        parser.error(f"--envs: unknown {', '.join(unknown)}; give some of {', '.join(CASES)}")
    for name in names:
        flags, steps = CASES[name]
        flags += f" --total_steps={given.steps or steps} --eval_episodes={given.episodes}"
        measure(name, flags, given.seeds)
    harness.write_page("colors/README.md", __doc__, *show(harness.read_json(RESULTS)))


if __name__ == "__main__":
    main()
