"""What a gradient step of an MLP takes: python -m benchmarks.arithmetic [--sizes=64,256]

Milliseconds of the parts of a step, and of whole steps, for policy and value with two hidden layers
of each size and minibatches of each number of rows, 17 observed numbers and 6 actions. A product is
that of a minibatch and the weights between the hidden layers, of which a step has six: for each
network forwards, for the gradient of the inputs, and for that of the weights, which is shown apart
(right). Speeds are those of the forward one. tanh, bias and slope are passes of a layer, of which a
step has four each. "bfloat16" rounds factors only; torch's autocast is bfloat16 throughout. The
variants take turns; each number is the least, since whatever else runs can only add to it. Writes
results/arithmetic.md.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.internals import gradient_steps

ROUNDS = 5
SECONDS = 0.1  # for each variant in each round, and at least:
REPETITIONS = 3

Variants = dict[str, Callable[[], Any]]


def with_torch(threads: int, precision: str, function: Callable[..., Any], *given: Any) -> Any:
    """Call a function with so many threads of torch, which multiplies in this precision."""
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("medium" if precision == "bfloat16" else "highest")
    return function(*given)


def least(variants: Variants) -> dict[str, float]:
    """Measure the milliseconds of each variant, round by round."""
    found = dict.fromkeys(variants, math.inf)
    for _ in range(ROUNDS):
        for name, function in variants.items():
            function()  # threads of the variant before still wait for work, busily
            times = []
            end = time.perf_counter() + SECONDS
            while len(times) < REPETITIONS or time.perf_counter() < end:
                start = time.perf_counter()
                function()
                times.append(1000 * (time.perf_counter() - start))
            found[name] = min(found[name], *times)
    return found


def parts(size: int, rows: int) -> tuple[Variants, Variants]:
    """Return the products of a step, and its passes."""
    draw = np.random.default_rng(0).standard_normal
    inputs, outputs = (draw((rows, size), np.float32) for _ in range(2))
    weights, gradient = (draw((size, size), np.float32) for _ in range(2))
    products: Variants = {}
    for name, left, right, out in (
        ("forwards", inputs, weights.T, outputs.copy()),
        ("weights", outputs.T, inputs, gradient),
    ):
        products[f"numpy, {name}"] = partial(np.matmul, left, right, out=out)
        tensors = [torch.from_numpy(each) for each in (left, right, out)]
        multiply = partial(torch.mm, *tensors[:2], out=tensors[2])
        for threads, precision in ((1, "float32"), (2, "float32"), (1, "bfloat16")):
            variant = f"torch {threads}, {precision}, {name}"
            products[variant] = partial(with_torch, threads, precision, multiply)
    small = 0.01 * outputs
    scratch = outputs.copy()

    def slope() -> None:
        np.multiply(small, small, out=scratch)
        np.subtract(1, scratch, out=scratch)
        np.multiply(scratch, small, out=scratch)

    passes: Variants = {
        "tanh": lambda: np.tanh(outputs, out=scratch),
        "tanh by torch": partial(with_torch, 1, "", torch.tanh, torch.from_numpy(outputs)),
        "bias": lambda: np.add(small, weights[0], out=scratch),
        "slope": slope,
    }
    return products, passes


def whole(size: int, rows: int) -> Variants:
    """Return the variants of a whole step."""
    by_numpy, rounded, by_torch = gradient_steps(size, rows)

    def autocast() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            by_torch()

    return {
        "numpy, 1 thread": partial(by_numpy, 10**15),
        "numpy, 2 threads": partial(by_numpy, 0),
        "bfloat16, 1 thread": partial(with_torch, 1, "bfloat16", rounded, 10**15),
        "bfloat16, 2 threads": partial(with_torch, 1, "bfloat16", rounded, 0),
        "torch, 1 thread": partial(with_torch, 1, "float32", by_torch),
        "torch, 2 threads": partial(with_torch, 2, "float32", by_torch),
        "torch autocast, 1 thread": partial(with_torch, 1, "float32", autocast),
        "torch autocast, 2 threads": partial(with_torch, 2, "float32", autocast),
    }


def measure(size: int, rows: int) -> list[dict[str, float]]:
    """Measure products, passes and whole steps."""
    return [least(variants) for variants in (*parts(size, rows), whole(size, rows))]


def row_of(size: int, rows: int, found: dict[str, float]) -> str:
    return " | ".join([str(size), f"{rows:,}", *(f"{time:.3f}" for time in found.values())])


def main() -> None:
    parser = harness.make_parser(__doc__, sizes="64,128,256,512,1024", rows="256,512,2048,16384")
    given = parser.parse_args()
    result = harness.describe()
    tables: list[list[str]] = [[], [], []]
    for size in map(int, given.sizes.split(",")):
        for rows in map(int, given.rows.split(",")):
            measured = harness.in_fresh_process(measure, size, rows)
            for table, found in zip(tables, measured, strict=True):
                table[:1] = [f"units | rows | {' | '.join(found)}"]
                table.append(row_of(size, rows, found))
                print(row_of(size, rows, found), flush=True)
    written = [harness.table(heading, rows) for heading, *rows in tables]
    harness.write_page("arithmetic.md", __doc__, *written, result=result)


if __name__ == "__main__":
    main()
