"""Runs that are killed by kill -9 and resumed, compared with one that was not killed."""

import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.acceptance.tree import Done, Tree, end_marked, rows, summary, tensors, without_times

EVERY = 4  # iterations between checkpoints
QUIET = f"--preset=none --logger=none --seed=5 --checkpoint_every={EVERY} --num_epochs=2"
STEPS = f"{QUIET} --num_steps=16 --num_minibatches=2 --total_steps=2560"
ALONE = f"{STEPS} --num_envs=4 --num_workers=0 --eval_episodes=0"  # 40 iterations
SMALL = f"{STEPS} --num_envs=4 --num_workers=1 --eval_episodes=2"
PIXELS = (  # 20 iterations
    f"{QUIET} --num_steps=16 --num_minibatches=1 --total_steps=640 --num_envs=2 --num_workers=0"
    " --eval_episodes=0 --screen_size=40 --hidden_size=16 --precision=float32"
)
CARTPOLE = f"--env_name=CartPole-v1 {SMALL}"
SLIPPERY = f"--env_name=resumable:Slippery {SMALL} --callback=resumable:Harder"
OWN_LOSS = f"{SLIPPERY} --learner=resumable:Penalized"
VECTOR = '--env_name=worlds:together --env_kwargs={"world":"Cue","mode":"NextStep","length":9}'
IMAGE = f'--env_name=worlds:Echo --env_kwargs={{"shows":"dict","length":9}} {PIXELS}'
GAME = (
    f"--env_name=BreakoutNoFrameskip-v4 {PIXELS} --model=cnn --frame_stack=2"
    " --max_episode_steps=60 --end_on_life_loss=True --clip_rewards=True"
)
ADAPTIVE = f"{CARTPOLE} --learning_rate=adaptive:1e-3 --target_kl=0.01"
STACKED = f"--env_name=Pendulum-v1 {SMALL} --frame_stack=3 --frame_skip=2"
EVALUATED = f"{SLIPPERY} --eval_env=resumable:Evaluated --eval_every=5"
ROWS = "rows"  # killed from outside when it has some rows
AGAIN = "again"  # resumed by the same command with --resume=auto, else by --resume=FOLDER


class Row(NamedTuple):
    """flags: OTHER is a run that is trained before; kills: ROWS, or phases of resumable.py; how:
    AGAIN or ""; program: that trains, main.py by default."""

    flags: str
    kills: tuple[str, ...] = (ROWS,)
    how: str = ""
    program: str = ""


CASES = {
    "numbers": Row(f"{CARTPOLE} --eval_every=7", (ROWS, ROWS), AGAIN),
    "memory": Row(f"{CARTPOLE} --model=lstm --hidden_size=16"),
    "image and numbers": Row(IMAGE, how=AGAIN),
    "game": Row(GAME),
    "masks": Row(f"--env_name=worlds:Masked {ALONE}", how=AGAIN),
    "vector": Row(f"{VECTOR} {SMALL}"),
    "team": Row(f"--env_name=worlds:Team {STEPS} --num_envs=6", how=AGAIN),
    "curriculum": Row(SLIPPERY, (ROWS, ROWS)),
    "two callbacks of a class": Row(SMALL, how=AGAIN, program="resumable.py"),
    "own loss": Row(OWN_LOSS),
    "teacher": Row(f"{CARTPOLE} --teacher=OTHER", how=AGAIN),
    "critic warm-up": Row(f"{CARTPOLE} --init_from=OTHER --critic_warmup=20"),
    "adaptive": Row(ADAPTIVE, how=AGAIN),
    "stacked": Row(STACKED),
    "two ranks": Row(f"--env_name=CartPole-v1 {ALONE}", how=AGAIN, program="torchrun"),
    "in collecting": Row(SLIPPERY, ("collect:999",), AGAIN),
    "in learning": Row(OWN_LOSS, ("loss:66",)),
    "after an iteration": Row(SLIPPERY, ("iteration:18",), AGAIN),
    "as a checkpoint is made": Row(SLIPPERY, ("checkpoint:3",)),
    "as a checkpoint gets its name": Row(SLIPPERY, ("rename last.safetensors:4",), AGAIN),
    "in an evaluation": Row(EVALUATED, ("evaluate:200",)),
    "after the last evaluation": Row(SLIPPERY, ("evaluated:1",)),
    "as rows are rewritten": Row(SLIPPERY, ("rename metrics.csv:3",), AGAIN),
    "as a resumed run rewrites them": Row(OWN_LOSS, ("loss:66", "rename metrics.csv:1")),
}
NOT_EXACT = ("vector", "team")  # new episodes begin, and a sentence says so


def train(row: Row, tree: Tree, flags: str, folder: Path, kill: str = "", count: int = 0) -> Done:
    """Train to the end, to a phase, or, in a fresh process, until killed/ has some rows."""
    arguments = tree.arguments(flags)
    main = tree.folder / "main.py"
    script = Path(__file__).with_name("environments") / row.program if row.program else main
    if row.program == "torchrun":
        script = Path(sys.executable).with_name("torchrun")
        arguments = ["--standalone", "--nproc_per_node=2", str(main), *arguments]
    if kill != ROWS:
        return tree.run(arguments, folder, script=script, env={"KILL": kill} if kill else {})
    program = (sys.executable, str(script))
    process = tree.start(arguments, folder, program=program, env={"OMP_NUM_THREADS": "1"})
    process.wait_for_rows(folder / "killed", count)
    process.process.kill()
    if row.program == "torchrun":
        end_marked(process.mark, seconds=0)
    return process.wait()


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    row = CASES[name]
    flags = row.flags
    if "OTHER" in flags:
        flags = flags.replace("OTHER", "other")
        tree.run(f"{CARTPOLE} --run_dir=other", folder)
    first = f"{flags} --run_dir=killed"
    own = (word for word in flags.split() if "resumable:" in word or "worlds:" in word)
    again = f"--resume=killed {' '.join(own)}"
    if row.how == AGAIN:
        first = again = f"{first} --resume=auto"
    done = train(row, tree, f"{flags} --run_dir=whole", folder)
    problems = [*about_end(done, 0)]
    whole, killed = folder / "whole", folder / "killed"
    draw = random.Random(name)
    count = 0
    for number, kill in enumerate((*row.kills, "")):
        before = rows(killed)
        count += draw.randint(9, 14)  # so that there is a checkpoint
        done = train(row, tree, again if number else first, folder, kill, count)
        problems += [*about_end(done, -signal.SIGKILL if kill else 0)]
        problems += [*about_loss(before, rows(killed))]
    if name in NOT_EXACT:
        numbers = [row["iteration"] for row in rows(killed)]
        if numbers != [row["iteration"] for row in rows(whole)]:
            problems.append(f"it has rows {', '.join(numbers)}")
        if len(before) < len(numbers) and "not exact" not in done.out + done.err:
            problems.append(f"no sentence says that it is not exact: {done.out}{done.err}")
    else:
        problems += [*differences(whole, killed)]
    return "; ".join(problems)


def about_end(done: Done, code: int) -> Iterator[str]:
    """Say what is wrong with the end of a command."""
    if done.code != code or "Traceback" in done.err:
        yield f"exit code {done.code} instead of {code}: {done.err}"
    if done.left:
        yield f"it leaves {', '.join(done.left)}"


def about_loss(before: list[dict[str, str]], after: list[dict[str, str]]) -> Iterator[str]:
    """Say whether a resumed run has lost too many iterations: rows that it has kept have the same
    seconds as before."""
    pairs = zip(before, after, strict=False)
    lost = len(before) - sum(row["seconds"] == other["seconds"] for row, other in pairs)
    if lost > 2 * EVERY:  # the newest checkpoint may not have been whole yet
        yield f"{lost} of {len(before)} iterations were lost"


def differences(whole: Path, killed: Path) -> Iterator[str]:
    """Say what differs between two runs."""
    one, other = tensors(whole), tensors(killed)
    both = one.keys() & other.keys()
    names = [*(one.keys() ^ other.keys())]
    names += [x for x in both if one[x].tobytes() != other[x].tobytes()]
    if names:
        yield f"tensors {', '.join(sorted(names))} differ"
    table, other_table = without_times(whole), without_times(killed)
    if len(table) != len(other_table):
        yield f"it has {len(other_table)} rows instead of {len(table)}"
    for row, other_row in zip(table, other_table, strict=False):
        if columns := [x for x in row if row[x] != other_row.get(x)]:
            yield f"row {row['iteration']} differs in {', '.join(columns)}"
            break
    if summary(whole)["evaluation"] != summary(killed)["evaluation"]:
        yield "the evaluation differs"
