"""Train with several seeds, in runs side by side, and summarise them."""

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

from ppo.commands.policy_flags import interval_text
from ppo.config.config import Config
from ppo.config.flags import Settings, command_line
from ppo.errors import ConfigError
from ppo.extras.tools.flags import SeedsFlags
from ppo.extras.tools.groups import read_groups
from ppo.extras.tools.parallel_runs import Job, run_jobs, start_run, wait_for
from ppo.extras.tools.plots import draw
from ppo.extras.tools.result import result_of
from ppo.extras.tools.summary_table import number
from ppo.run.intervals import confidence_interval, interquartile_mean
from ppo.run.reader import CONFIG, RUN_SUMMARY, SUMMARY, read_content
from ppo.system.files import folder_name
from ppo.system.hardware import available_cores
from ppo.system.output import discard, readable


def train_seeds(given: Settings, config: Config, num_workers: int) -> None:
    """Train with successive seeds, each in a process; then draw and print the results.

    As many run at once as there are cores for. given: the flags of the command line, which each
    process gets, too; num_workers: of each run. Raises ConfigError if the folder is not empty,
    --resume names a run, or a seed is too large; RunFailed if a run fails; CheckpointError if its
    summary.json is damaged; Interrupted after a signal.
    """
    num_seeds = SeedsFlags.of(config).seeds
    name = config.name or f"{config.env_name}-{num_seeds}seeds-{datetime.now():%Y%m%d-%H%M%S-%f}"
    parent = Path(config.run_dir or f"runs/{folder_name(name)}")
    if config.is_resumed:
        raise ConfigError("--resume and --seeds: give one of them, or --resume=auto")
    if any(parent.glob("*")) and config.resume is None:
        raise ConfigError(
            f"the folder {parent} is not empty, and no run is overwritten: choose another by "
            "--run_dir"
        )
    replace(config, seed=config.seed + num_seeds - 1)  # raises if it is too large
    cores = available_cores()
    folders = {seed: parent / f"s{seed}" for seed in range(config.seed, config.seed + num_seeds)}
    jobs = [
        _train_seed(
            folder,
            {
                **given,
                "seeds": 1,
                "seed": seed,
                "run_dir": folder,
                "name": f"{name}-s{seed}",
                "num_workers": num_workers,  # the same for all of them
            },
        )
        for seed, folder in folders.items()
    ]
    at_once = max(1, cores // max(1, num_workers))
    resume = command_line(**{**given, "run_dir": parent, "resume": "auto"})
    run_jobs(jobs, at_once, f"stopped the runs of all seeds: {resume} continues")
    _print_table([*folders.values()])
    if not config.iterations:  # they have cloned only
        return
    draw(read_groups(map(str, folders.values())), parent / "curves.png")
    print(f"picture: {parent / 'curves.png'}")


def _train_seed(folder: Path, flags: Settings) -> Job:
    """Print the folder of a seed's run, start it, and wait for it. Raises RunFailed."""
    try:
        print(f"seed {flags['seed']}: {folder}", flush=True)
    except OSError:  # nobody reads the output any more
        discard(sys.stdout)
    yield from wait_for(start_run(flags), folder)


def _print_table(folders: list[Path]) -> None:
    """Print returns and seconds of each run ("-": no episode ended), and interquartile means."""
    summaries = [read_content(folder / SUMMARY, RUN_SUMMARY) for folder in folders]
    configs = [read_content(folder / "config.json", CONFIG) for folder in folders]
    results = [result_of(*run) or {} for run in zip(folders, configs, strict=True)]
    rows = [
        [summary.get("mean_return"), result.get("mean"), summary["seconds"]]
        for summary, result in zip(summaries, results, strict=True)
    ]
    table = np.array(rows, float)
    print("\nseed   last 100   evaluation   seconds")
    for summary, row in zip(summaries, table, strict=True):
        last, evaluation = map(number, row[:2])
        print(f"{summary['seed']:<6} {last:<10} {evaluation:<12} {row[2]:.0f}")
    for label, values in zip(("last 100", "evaluation"), table.T, strict=False):
        if np.isfinite(values).all():
            interval = interval_text(confidence_interval(values, interquartile_mean))
            print(f"{label}: interquartile mean {readable(interquartile_mean(values))}{interval}")
