"""What the files in policies/ play: python -m benchmarks.policies [--names=CartPole-v1]
[--episodes=100] [--quick]

Evaluates each by `ppo evaluate` with --seed=1000, beside the return in its card in
policies/policies.json, which is of other episodes. Writes results/policies.md."""

import json
import re
import subprocess

from benchmarks import harness

NAME = "policies"
FOLDER = harness.ROOT / "policies"
SEED = 1000
QUICK = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3")


def evaluate(name: str, episodes: int) -> harness.Result:
    """Return the mean, and half of its 95 % interval. Raises SystemExit if it fails."""
    path = FOLDER / f"{name}.safetensors"
    flags = harness.command_of({"episodes": episodes, "seed": SEED})
    command = [*harness.MAIN, "evaluate", str(path), *flags]
    done = subprocess.run(command, cwd=harness.ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{path} could not be evaluated")
    names, values = [re.split(" {2,}", line) for line in done.stdout.splitlines()]
    found = dict(zip(names, values, strict=True))
    mean, std = [float(found[name].replace(",", "")) for name in ("return", "std")]
    return {"mean": mean, "interval": 1.96 * std / (episodes - 1) ** 0.5, "episodes": episodes}


def show(results: harness.Result, cards: harness.Result) -> str:
    rows = []
    for name, found in results.items():
        card = cards[name]
        mean = f"{found['mean']:,.1f} +- {found['interval']:,.1f}"
        rows.append(f"{name} | {mean} | {found['episodes']} | {card['mean']:,.1f}")
    return harness.table("policy | return, 95 % interval | episodes | card", rows)


def main() -> None:
    parser = harness.make_parser(__doc__, names="", episodes=100)
    given = parser.parse_args()
    cards = json.loads((FOLDER / "policies.json").read_text())
    names = harness.chosen(parser, given.names, cards)
    if given.quick:
        names = [x for x in names if x in QUICK]
    results = {} if given.quick else harness.read(NAME)
    for name in names:
        found = evaluate(name, 2 if given.quick else given.episodes)
        results[name] = {**harness.describe(), **found}
        print(f"{name}: {found}", flush=True)
        if not given.quick:
            harness.write(NAME, __doc__, results, show(results, cards))
    print(f"\n{show(results, cards)}")


if __name__ == "__main__":
    main()
