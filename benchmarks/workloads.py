"""Training speed on other workloads: python -m benchmarks.throughput --workloads=robotics,memory
[--repetitions=5] [--threads=1,2] [--quick]

- robotics: HalfCheetah, large networks, observations and rewards normalised by both; and the same
  with ours by --precision=bfloat16, which needs a processor that multiplies it
- sb3-defaults: HalfCheetah by all defaults of Stable-Baselines3, one environment
- small-batches: LunarLander, many gradient steps of 64 rows
- memory: CartPole without velocities, an LSTM; the peer is RecurrentPPO of SB3-Contrib, with one
  LSTM for policy and value as ours has. Our layers of 2 x 64 come before it, SB3's 2 x 64 each for
  policy and value after it

Both trainers do the same work with the same numbers of networks, rows and steps; settings that are
not shown are those of the comparison above. Ours is main.py in a fresh process, with a worker
process per core as far as there are environments; SB3 is run in a fresh process on environments
that cannot render, once for each number of torch threads, of which the fastest counts. They take
turns. Measured is, as above, from the end of the first iteration to the end of the last. The limit,
where the network is an mlp, is that of as many cores as have environments, and of a thread each for
policy and value where ours takes one, from 512 rows on.
"""

import shlex
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from benchmarks import harness, limits
from benchmarks.trainers import OURS, learn_by_sb3, measured, plain_maker, run_ours
from ppo.config.config import Config
from ppo.config.flags import parse_flags

QUICK_STEPS = 10_000  # of a run with --quick, and at least three iterations


class Workload(NamedTuple):
    """Work that both trainers do. Other settings are OURS and SB3 of benchmarks.trainers."""

    env_name: str
    num_envs: int
    num_steps: int
    batch_size: int  # rows of a minibatch
    num_epochs: int
    steps: int  # of a run, rounded down to whole iterations
    network: str  # in words
    flags: str  # of main.py
    settings: dict[str, Any]  # of Stable-Baselines3, which mean the same
    normalizes: bool = False  # observations and rewards
    has_limit: bool = True  # the network is an mlp, whose operations benchmarks.limits counts

    @property
    def rollout_size(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def own_flags(self) -> str:
        """Return the flags of main.py, but for environment, steps and seed."""
        num_workers = min(self.num_envs, harness.num_cores())
        sizes = {
            "num_envs": self.num_envs,
            "num_steps": self.num_steps,
            "num_minibatches": self.rollout_size // self.batch_size,
            "num_epochs": self.num_epochs,
            "num_workers": num_workers,
            "normalize_observations": self.normalizes,
            "normalize_rewards": self.normalizes,
        }
        given = " ".join(f"--{name}={value}" for name, value in sizes.items())
        return f"{OURS} {given} {self.flags}"

    @property
    def sb3_settings(self) -> dict[str, Any]:
        """Return the arguments of PPO, but for those of benchmarks.trainers.SB3."""
        return {
            "n_steps": self.num_steps,
            "batch_size": self.batch_size,
            "n_epochs": self.num_epochs,
            **self.settings,
        }


ROBOTICS = Workload(
    "HalfCheetah-v5",
    num_envs=16,
    num_steps=512,
    batch_size=512,
    num_epochs=10,
    steps=81_920,
    network="2 x 256",
    flags="--hidden_size=256",
    settings={"policy_kwargs": {"net_arch": [256, 256]}},
    normalizes=True,
)
WORKLOADS = {
    "robotics": ROBOTICS,
    "robotics-bfloat16": ROBOTICS._replace(
        network="2 x 256, ours in bfloat16", flags="--hidden_size=256 --precision=bfloat16"
    ),
    "sb3-defaults": Workload(
        "HalfCheetah-v5",
        num_envs=1,
        num_steps=2048,
        batch_size=64,
        num_epochs=10,
        steps=20_480,
        network="2 x 64",
        flags=(
            "--learning_rate=3e-4 --clip_coef=0.2 --clip_value_coef=none --entropy_coef=0"
            " --value_coef=1"
        ),
        settings={
            "learning_rate": 3e-4,
            "clip_range": 0.2,
            "clip_range_vf": None,
            "ent_coef": 0.0,
            "vf_coef": 0.5,
        },
    ),
    "small-batches": Workload(
        "LunarLander-v3",
        num_envs=8,
        num_steps=256,
        batch_size=64,
        num_epochs=10,
        steps=40_960,
        network="2 x 64",
        flags="",
        settings={},
    ),
    "memory": Workload(
        "examples.own_environment:HiddenVelocity",
        num_envs=8,
        num_steps=128,
        batch_size=2 * 128,  # two environments
        num_epochs=4,
        steps=40_960,
        network="LSTM of 128",
        flags="--model=lstm --hidden_size=128 --share_trunk=True",
        settings={
            "policy": "MlpLstmPolicy",
            "policy_kwargs": {
                "lstm_hidden_size": 128,
                "shared_lstm": True,
                "enable_critic_lstm": False,
            },
        },
        has_limit=False,
    ),
}


def run_peer(name: str, steps: int, num_threads: int, seed: int) -> harness.Result:
    """Measure steps per second and the last mean return of Stable-Baselines3, in this process."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    workload = WORKLOADS[name]
    maker = plain_maker(workload.env_name)
    envs: Any = make_vec_env(maker, workload.num_envs, vec_env_cls=DummyVecEnv)
    if workload.normalizes:
        envs = VecNormalize(envs)
    found = learn_by_sb3(envs, steps, num_threads, seed=seed, **workload.sb3_settings)
    return measured(found, steps)


def steps_of(workload: Workload, is_quick: bool) -> int:
    """Count the steps of a run: at least three whole iterations."""
    steps = QUICK_STEPS if is_quick else workload.steps
    return max(3, steps // workload.rollout_size) * workload.rollout_size


def measure(
    name: str, flags: str, threads: list[int], repetitions: int, is_quick: bool
) -> harness.Result:
    """Run both trainers with the same seeds; return speeds, and ratios of ours to the best peer.

    flags: more of main.py; threads: numbers of torch threads of Stable-Baselines3.
    """
    workload = WORKLOADS[name]
    flags = f"{workload.own_flags} {flags}"
    steps = steps_of(workload, is_quick)
    variants = {"ours": partial(run_ours, workload.env_name, steps, flags)}
    for num_threads in threads:
        peer = partial(harness.in_fresh_process, run_peer, name, steps, num_threads)
        variants[f"SB3, torch threads: {num_threads}"] = peer
    runs = harness.alternate(variants, range(1, repetitions + 1), name)
    result = {
        "env_name": workload.env_name,
        "steps": steps,
        "ours": f"python main.py --env_name={workload.env_name} --seed=SEED {flags}",
        "sb3": workload.sb3_settings,
        **compare(runs),
        "runs": runs,
    }
    if workload.has_limit and not is_quick:
        config = Config(**parse_flags(shlex.split(flags), Config), env_name=workload.env_name)
        speed = result["medians"]["ours"]
        result["limit"] = limits.limit(config, harness.num_cores(), speed)
    return result


def compare(runs: dict[str, list[harness.Result]]) -> harness.Result:
    """Return median speeds, the name of the fastest peer, and ratios of ours to it."""
    speeds = {name: [run["steps_per_second"] for run in found] for name, found in runs.items()}
    medians = {name: median(values) for name, values in speeds.items()}
    peers = [name for name in runs if name != "ours"]
    best = max(peers, key=medians.__getitem__)
    return {
        "medians": medians,
        "best_peer": best,
        "ratios": harness.ratios(speeds["ours"], speeds[best]),
    }


def show(results: dict[str, harness.Result]) -> str:
    """Write a table with a row for each workload, by name."""
    rows = []
    for name, result in results.items():
        workload = WORKLOADS[name]
        medians = result["medians"]
        peers = [f"{medians[peer]:,.0f}" for peer in medians if peer != "ours"]
        ratios = result["ratios"]
        cells = [
            f"{name}, {workload.env_name.rpartition(':')[2]}",
            f"{workload.num_envs} x {workload.num_steps}",
            f"{workload.num_epochs} x {workload.batch_size}",
            workload.network,
            f"{medians['ours']:,.0f}",
            " / ".join(peers),
            f"{ratios['of_medians']:.2f}",
            harness.each(ratios["of_pairs"]),
            f"{result['limit']['distance']:.2f}" if "limit" in result else "",
        ]
        rows.append(" | ".join(cells))
    head = "workload | environments x steps | epochs x rows | network | ours, steps/s"
    head += " | SB3 by torch threads, steps/s | x the better one | each | limit / measured"
    return harness.table(head, rows)
