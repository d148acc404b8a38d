"""What logging costs: python -m benchmarks.loggers [--repetitions=5] [--steps=409600]

Trains LunarLander by its tuned preset, in turn without any logger but metrics.csv, which is always
written; with the console and TensorBoard; and with histograms too, every 10 iterations. Measured
are environment steps per second from the end of the first iteration to the end of the last, in
fresh processes with the same seeds. The machine should have nothing else to do. Writes
results/logging/loggers.json and README.md.
"""

from functools import partial
from statistics import median

from benchmarks import harness

FLAGS = "--env_name=LunarLander-v3 --eval_episodes=0 --report=False --checkpoint_every=10"
KINDS = {
    "none": "--logger=none",
    "console, TensorBoard": "--logger=console,tensorboard --histogram_every=none",
    "and histograms": "--logger=console,tensorboard",
}
WANTED = {"none": "", "console, TensorBoard": 0.95, "and histograms": 0.9}


def speed(kind: str, steps: int, seed: int) -> float:
    flags = f"{FLAGS} {KINDS[kind]} --total_steps={steps} --seed={seed}"
    return harness.train(flags, stdout=None).steps_per_second


def main() -> None:
    given = harness.make_parser(__doc__, repetitions=5, steps=409_600).parse_args()
    result = harness.describe("tensorboard")
    variants = {kind: partial(speed, kind, given.steps) for kind in KINDS}
    result["runs"] = harness.alternate(variants, range(1, given.repetitions + 1))
    harness.write_json("logging/loggers.json", result)
    rows = []
    for kind, speeds in result["runs"].items():
        shares = harness.ratios(speeds, result["runs"]["none"])
        pairs = harness.each(shares["of_pairs"], ".3f")
        share = f"{shares['of_medians']:.3f} | {WANTED[kind]} | {pairs}"
        rows.append(f"{kind} | {median(speeds):,.0f} | {share}")
    head = "LunarLander-v3 | steps/s, median | as a share of none | wanted | each"
    harness.write_page("logging/README.md", __doc__, harness.table(head, rows), result=result)


if __name__ == "__main__":
    main()
