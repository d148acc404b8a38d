"""Iterations on machines with more cores, calculated and simulated: python -m benchmarks.machines
[--envs=LunarLander-v3,...] [--cores=8,16,64] [--per_core=1,4]

Measured here, alone: the seconds of a rollout that one worker spends in its environments and in its
policy, for each number of environments that it may have. Calculated: an iteration takes that, since
workers do not wait for each other, and then the learner's time. Simulated: a real pool of as many
worker processes, which sleep for the measured time instead of computing, and a real learner, in one
process with at most two threads. Sleeping processes need no core, so that this machine can have 64
of them; what the simulation adds to the calculation is commands, replies and waking. Logging and
saving, some 1 ms, are left out.

Two ranks halve the learner's time, but for an all-reduce of each minibatch (docs/scaling.md).
"""

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.internals import measure_worker
from ppo.config.config import Config
from ppo.envs.worker import RolloutInfo, Worker

ITERATIONS = 6  # of a simulation, the first of which does not count


@dataclass(kw_only=True)
class SleepingWorker(Worker):
    """Sleep for the seconds that a rollout takes, and leave in it what was drawn at first."""

    seconds: float = 0.0

    def __post_init__(self) -> None:
        columns = slice(self.env_indices.start, self.env_indices.stop)
        generator = np.random.default_rng(self.env_indices.start)
        for tables in self.rollouts:
            for name in ("observations", "rewards"):
                table = tables[name].array[:, columns]
                table[:] = generator.standard_normal(table.shape)

    def run(self, method: str, *arguments: Any) -> RolloutInfo:
        time.sleep(self.seconds)
        return RolloutInfo([], [], [], {}, {}, {})

    def close(self) -> None:
        pass


def simulate(config: Config, spaces: Any, seconds: float) -> dict[str, float]:
    """Return the median seconds of collecting and learning with workers that sleep."""
    from benchmarks.machines import SleepingWorker  # not of __main__, which workers do not import
    from ppo.components import Components  # heavy, and 64 workers import this module

    parts = Components(config, spaces)
    parts.make_worker = partial(SleepingWorker, **parts.make_worker.keywords, seconds=seconds)
    found = []
    with parts.make_pool() as pool:
        for iteration in range(1, ITERATIONS + 1):
            start = time.perf_counter()
            info = pool.collect(iteration)
            collected = time.perf_counter()
            rollout = parts.receive(iteration, info)
            batch = parts.make_batch(rollout)
            parts.update_statistics(rollout)
            parts.learner.update(batch, iteration)
            parts.publish_weights()
            found.append((collected - start, time.perf_counter() - collected))
    collecting, learning = (median(each) for each in zip(*found[1:], strict=True))
    return {"collecting": collecting, "learning": learning}


def measure(env_name: str, num_workers: int, share: int) -> harness.Result:
    """Calculate and simulate an iteration of so many workers with as many environments each."""
    from ppo.config.resolve import resolve

    flags = {"env_name": env_name, "preset": "none", "total_steps": 10**9}
    alone = Config(**flags, num_envs=share, num_workers=1)
    parts = harness.in_fresh_process(measure_worker, alone, 2.0)
    config, spaces = resolve(Config(**flags, num_envs=share * num_workers, num_workers=num_workers))
    simulated = simulate(config, spaces, sum(parts.values()))
    calculated = sum(parts.values()) + simulated["learning"]
    return {
        "env_name": env_name,
        "cores": num_workers,
        "num_envs": config.num_envs,
        "calculated": config.rollout_size / calculated,
        "simulated": config.rollout_size / sum(simulated.values()),
        "learning": simulated["learning"] / sum(simulated.values()),
        "ranks_of_two": config.rollout_size / (sum(parts.values()) + simulated["learning"] / 2),
        "seconds": {**parts, **simulated},
    }


def main() -> None:
    parser = harness.make_parser(
        __doc__, envs="CartPole-v1,LunarLander-v3,BipedalWalker-v3", cores="8,16,64", per_core="1,4"
    )
    given = parser.parse_args()
    result = harness.describe()
    result["points"] = []
    for env_name in given.envs.split(","):
        for cores in map(int, given.cores.split(",")):
            for share in map(int, given.per_core.split(",")):
                result["points"].append(measure(env_name, cores, share))
                print(result["points"][-1], flush=True)
    harness.write_json("machines.json", result)
    rows = [
        f"{x['env_name']} | {x['cores']} | {x['num_envs']} | {x['calculated']:,.0f} | "
        f"{x['simulated']:,.0f} | {x['learning']:.0%} | {x['ranks_of_two']:,.0f}"
        for x in result["points"]
    ]
    head = (
        "environment | cores | environments | steps/s, calculated | simulated | of it learning | "
        "calculated for two ranks"
    )
    harness.write_page("machines.md", __doc__, harness.table(head, rows), result=result)


if __name__ == "__main__":
    main()
