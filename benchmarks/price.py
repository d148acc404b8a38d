"""What being careful costs: python -m benchmarks.price [--repetitions=5] [--steps=409600]

Trains LunarLander by main.py, in turn as it is with a checkpoint every 10 iterations, and bare:
workers are not watched, what environments return is not checked, nor whether losses are finite, no
state is copied between iterations, and nothing is saved but at the start. Once with the tuned
preset, whose iterations are 8,192 steps, and once with iterations of 1,024 steps, for which the
work of each iteration weighs more. Measured are environment steps per second from the end of the
first iteration to the end of the last, in fresh processes with the same seeds. The machine should
have nothing else to do. Writes results/reliability/price.json and price.md.
"""

import sys
from functools import partial
from statistics import median

from benchmarks import harness

WANTED = 0.95
KINDS = {
    "as_it_is": (harness.MAIN, 10),
    "bare": ((sys.executable, "-m", "benchmarks.internals"), 10**6),
}
RUNS = {
    "preset": "",
    "short iterations": (
        "--preset=none --num_envs=8 --num_steps=128 --num_minibatches=4 --num_epochs=4"
    ),
}


def speed(name: str, kind: str, steps: int, seed: int) -> float:
    program, every = KINDS[kind]
    flags = f"--env_name=LunarLander-v3 {harness.QUIET} {RUNS[name]} --checkpoint_every={every}"
    flags += f" --total_steps={steps} --seed={seed}"
    return harness.train(flags, program=program).steps_per_second


def main() -> None:
    given = harness.make_parser(__doc__, repetitions=5, steps=409_600).parse_args()
    result = {**harness.describe(), "runs": {}}
    rows = []
    for name in RUNS:
        variants = {kind: partial(speed, name, kind, given.steps) for kind in KINDS}
        speeds = harness.alternate(variants, range(1, given.repetitions + 1), name)
        found = harness.ratios(speeds["as_it_is"], speeds["bare"])
        result["runs"][name] = {**speeds, "ratio": found["of_medians"]}
        medians = " | ".join(f"{median(values):,.0f}" for values in speeds.values())
        pairs = harness.each(found["of_pairs"], ".3f")
        rows.append(f"{name} | {medians} | {found['of_medians']:.3f} | {pairs}")
    harness.write_json("reliability/price.json", result)
    head = "LunarLander-v3, median steps/s | as it is | bare | ratio of medians | each pair"
    parts = [harness.table(head, rows), f"Wanted is a ratio of at least {WANTED}."]
    harness.write_page("reliability/price.md", __doc__, *parts, result=result)


if __name__ == "__main__":
    main()
