"""Pretrained policies: python -m benchmarks.policies [NAME ...] [--seeds=3] [--episodes=100]
[--again]

Trains each environment of a dozen by its preset with several seeds, by plain commands of main.py,
and keeps the policy of the seed whose evaluation at the end of its run is best, by itself: weights,
statistics of observations and settings, without optimizer and open episodes. Its return is that of
other games, whose seeds follow --seed=1000, so that choosing the best seed does not raise it.

An environment whose card is of the present commit of the trainer is left alone; --again makes it
again. The runs are in runs/policies/; stopped, the command goes on where it was. Writes
policies/NAME.safetensors, the cards in policies/policies.json, and policies/README.md.
"""

import hashlib
import json
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks import harness
from ppo import load_policy

FOLDER = harness.ROOT / "policies"
RUNS = harness.ROOT / "runs" / "policies"
SEED_OF_GAMES = 1000
# By the preset of the environment, or of its family; what the preset does not say is given here.
ENVIRONMENTS = {
    "CartPole-v1": "",
    "Acrobot-v1": "",
    "MountainCar-v0": "--total_steps=500000",
    "MountainCarContinuous-v0": "",
    "Pendulum-v1": "",
    "LunarLander-v3": "",
    "LunarLanderContinuous-v3": "",
    "BipedalWalker-v3": "",
    "HalfCheetah-v5": "--total_steps=1000000",
    "Hopper-v5": "",
    "Walker2d-v5": "--total_steps=1000000",
    # Half the size of cnn; its preset's ten million steps are for any game of Atari.
    "PongNoFrameskip-v4": "--model=cnn_small --stop_when='solved>=18'",
}


def flags_of(name: str, seed: int) -> str:
    return " ".join([f"--env_name={name}", *filter(None, [ENVIRONMENTS[name]]), f"--seed={seed}"])


def run_of(name: str, seed: int, commit: str) -> Path:
    return RUNS / commit / f"{name}-s{seed}"


def trainer_commit() -> str:
    """Return the last commit that changed the trainer, -dirty if it has been changed since."""
    commit = harness.git("log", "-1", "--format=%H", "--", *harness.TRAINER)
    return commit + "-dirty" * bool(harness.git("status", "--porcelain", "--", *harness.TRAINER))


def read_cards() -> dict[str, harness.Result]:
    """Read the cards, by the names of environments; empty if there are none yet."""
    path = FOLDER / "policies.json"
    return json.loads(path.read_text()) if path.exists() else {}


def make_policy(name: str, seeds: int, episodes: int, commit: str) -> harness.Result:
    """Train with each seed, save the best policy, and return its card."""
    more = f"--eval_episodes={episodes} --logger=none --report=False --resume=auto"
    runs = {}
    for seed in range(1, seeds + 1):
        found = harness.train_in(run_of(name, seed, commit), f"{flags_of(name, seed)} {more}")
        runs[seed] = found.summary
        print(f"{name}, seed {seed}: {found.summary['evaluation']['mean']:.1f}", flush=True)
    best = max(runs, key=lambda seed: runs[seed]["evaluation"]["mean"])
    path = FOLDER / f"{name}.safetensors"
    load_policy(run_of(name, best, commit) / "checkpoints" / "last.safetensors").save(path)
    games = evaluate(path, episodes)
    content = path.read_bytes()
    return {
        "command": f"python main.py {flags_of(name, best)}",
        "seed": best,
        "of_seeds": seeds,
        "steps": runs[best]["steps"],
        "episodes": episodes,
        "mean": games["mean"],
        "std": games["std"],
        "commit": commit,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def evaluate(policy: Path, episodes: int) -> harness.Result:
    """Play games by `ppo evaluate`; return what it writes of them."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "evaluation.json")
        flags = f"--episodes={episodes} --seed={SEED_OF_GAMES} --output={output}"
        command = [*harness.MAIN, "evaluate", str(policy), *shlex.split(flags)]
        subprocess.run(command, cwd=harness.ROOT, check=True)
        (found,) = json.loads(output.read_text())
    return found


def write_cards(cards: dict[str, harness.Result]) -> None:
    """Write the cards as JSON and as a page, in the order of ENVIRONMENTS."""
    cards = {name: cards[name] for name in ENVIRONMENTS if name in cards}
    (FOLDER / "policies.json").write_text(json.dumps(cards, indent=2) + "\n")
    rows = []
    for name, card in cards.items():
        cells = [
            f"[{name}]({name}.safetensors)",
            f"{card['mean']:,.1f} +/- {card['std']:.1f}",
            f"{card['steps']:,}",
            str(card["of_seeds"]),
            f"`{card['command']}`",
            f"{card['bytes'] / 1000:,.0f} kB",
            card["commit"][:10],
            card["sha256"][:16],
        ]
        rows.append(" | ".join(cells))
    page = PAGE.format(
        cards=harness.table(
            "policy | return | steps | best of | trained by | size | commit | SHA-256", rows
        ),
        seed=SEED_OF_GAMES,
    )
    (FOLDER / "README.md").write_text(page)


PAGE = """# Pretrained policies

Written by `python -m benchmarks.policies`: of each environment, the best of some seeds by the tuned
values.

```
ppo evaluate policies/LunarLander-v3.safetensors --render=human
ppo --env_name=LunarLander-v3 --init_from=policies/LunarLander-v3.safetensors
```

```python
from ppo import load_policy

policy = load_policy("policies/LunarLander-v3.safetensors")
```

A file has the weights, the statistics of observations and the settings of a policy, without
optimizer and open episodes, and a digest of all this: a file of which a byte has been changed is
refused.

- return: mean and standard deviation of 100 games by the most likely actions, `ppo evaluate
  policies/NAME.safetensors --seed={seed}`. The seed of the training was chosen by other games.
- commit: the last one before that changed the trainer. There, with the same versions of packages,
  the command gives the same weights.
- SHA-256: the first 16 digits; [policies.json](policies.json) has all, and the numbers in full.

{cards}
"""


def main() -> None:
    parser = harness.make_parser(__doc__, seeds=3, episodes=100)
    names = f"of {', '.join(ENVIRONMENTS)}"
    parser.add_argument("names", nargs="*", default=[*ENVIRONMENTS], metavar="NAME", help=names)
    parser.add_argument("--again", action="store_true", help="also those that are there already")
    given = parser.parse_args()
    if unknown := {*given.names} - ENVIRONMENTS.keys():
        parser.error(f"give {names}, not {', '.join(sorted(unknown))}")
    commit = trainer_commit()
    for name in given.names:
        if read_cards().get(name, {}).get("commit") == commit and not given.again:
            print(f"{name} is there already, made by {commit}")
            continue
        if given.again:
            for seed in range(1, given.seeds + 1):
                shutil.rmtree(run_of(name, seed, commit), ignore_errors=True)
        card = make_policy(name, given.seeds, given.episodes, commit)
        write_cards({**read_cards(), name: card})
    print((FOLDER / "README.md").read_text())


if __name__ == "__main__":
    main()
