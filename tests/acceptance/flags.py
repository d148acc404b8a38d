"""What is answered to odd values of each flag, to wrong command lines and to right ones."""

import re
import shutil
import sys
import threading
from pathlib import Path

from tests.acceptance.tree import Done, Tree

FLAG_NAMES = """
    config env_name env_kwargs num_envs wrapper max_episode_steps eval_env
    normalize_observations normalize_rewards clip_rewards image screen_size frame_stack frame_skip
    end_on_life_loss total_steps seed learning_rate num_steps num_epochs num_minibatches batch_size
    gamma gae_lambda clip_coef clip_value_coef normalize_advantages entropy_coef value_coef
    max_grad_norm target_kl learner callback model hidden_size num_layers activation
    share_trunk log_std_init name run_dir resume eval_every eval_episodes
    checkpoint_every logger num_workers threads device precision inference init_from freeze
    critic_warmup teacher teacher_coef use_sde sde_sample_freq policy_keys value_keys preset
    step_timeout stop_when patience max_time video_every
"""
FLAGS = FLAG_NAMES.split()
VALUES = ("", "text", "-1", "0", "1e99", "nan", "none", "1,2")
ENDS = {"total_steps": "--max_time=1s", "num_epochs": "--target_kl=1e-9 --learning_rate=0.1"}
OF_RUNS = ("resume", "init_from", "teacher")  # flags that may end with the exit code of a file
FUNCTION = '--env_name=gymnasium:make --env_kwargs={"id":"CartPole-v1"}'
RUNS = {  # finished ones, by their folders
    "done": "",
    "class": "--env_name=gymnasium.envs.classic_control:CartPoleEnv",
    "function": FUNCTION,
    "callback": "--callback=ppo:Callback",
    "moved": "--env_name=moved.py:Mine",
}
FILES = {
    "base.json": '{"env_name": "CartPole-v1", "preset": "none", "num_envs": 2, "num_steps": 16, '
    '"num_workers": 0, "total_steps": 64, "eval_episodes": 1, "logger": "none"}',
    "right.toml": "env_name = 'CartPole-v1'\ntotal_steps = 0\neval_episodes = 0\ngamma = 0.5\n",
    "unknown.toml": "hidden_sise = 3",
    "wrong.json": '{"gamma": "much"}',
    "mine.py": "class Thing: pass",
    "raises.py": "raise ValueError('not today')",
    "moved.py": "from gymnasium.envs.classic_control import CartPoleEnv as Mine\n"
    "open(__file__ + '.was_imported', 'w')\n",
    "save.py": "from ppo import load_policy\n"
    "for name in ('done', 'function'): load_policy(name).save(f'{name}.safetensors')\n",
}
# Flags of training that are refused by name.
REFUSED = """
    num_envs use_sde end_on_life_loss env_name=gone.py:Env env_name=mine.py:Missing
    env_name=mine.py:Thing wrapper=mine:Thing model=mine:Thing model=mpl model=cnn
    learner=nowhere:Thing callback=mine:Thing callback=ppo:Missing
    device=cuda:99 logger=wandbb preset=CartPole-v7 total_steps=31 num_workers=3 num_minibatches=33
    stop_when=return>>1 max_time=90 run_dir=done run_dir=mine.py resume=auto
    resume=nothing config=gone.toml config=mine.py gamma=1.1
"""
# Other wrong command lines, and what is in the one line that is the answer.
WRONG = {f"train --{text}": text.partition("=")[0] for text in REFUSED.split()} | {
    "train --hidden_sise=32": "hidden_size",
    "evalute done": "evaluate",
    "train CartPole-v1 rubbish": "rubbish",
    "train --gamma=0.5 --gamma=0.6": "gamma",
    "train --env_name=CartPole-v7": "CartPole-v1",
    "train --env_name=raises:Env": "raises today",
    'train --env_kwargs={"color":1}': "color",
    "train --model=lstm --num_minibatches=3": "num_minibatches num_envs",
    "train --normalize_rewards --clip_rewards": "normalize_rewards clip_rewards",
    "train --config=unknown.toml": "hidden_size",
    "train --config=wrong.json": "gamma",
    "evaluate": "",
    "evaluate gone": "gone",
    "evaluate function": "--env_name=gymnasium:make",
    "evaluate function.safetensors": "--env_name=gymnasium:make",
    "evaluate .": "moved.py",
    "runs --folder=gone": "folder gone",
    "--resume=done --hidden_size=32": "hidden_size",
    "--resume=function --total_steps=96": "--env_name=gymnasium:make",
    "--resume=callback --total_steps=96": "--callback=ppo:Callback",
}
# Right ones, and what is in their output or, where they train, in config.json.
RIGHT = {
    "--help": "--env_name",
    "--help=all": "--clip_coef",
    "python -m ppo --version": ".",
    "evaluate --help": "--episodes",
    "CartPole-v1 --config=right.toml": '"gamma": 0.5',
    "train --num_steps 32 --clip_rewards": '"num_steps": 32, "clip_rewards": true',
    "train --env=Acrobot-v1 --total_timesteps=32": '"env_name": "Acrobot-v1", "total_steps": 32',
    "train --env_id=CartPole-v1 --lr=0.5 --lam=0.9": '"learning_rate": 0.5, "gae_lambda": 0.9',
    "train --ent_coef=0.1 --vf_coef=0.2": '"entropy_coef": 0.1, "value_coef": 0.2',
    "train --clip_range=0.3": '"clip_coef": 0.3',
    "evaluate done done.safetensors": "return",
    "evaluate class": "return",
    f"evaluate function {FUNCTION}": "return",
    "--resume=class --total_steps=96": "",
    "--resume=callback --total_steps=96 --callback=ppo:Callback": "",
}
CASES = [*FLAGS, *WRONG, *RIGHT]
MARKS = {
    "--help=all": "it has flags that version 3 drops",
    "eval_env": "the line names --env_name",
    "init_from": "the line does not name the flag",
    **dict.fromkeys(("entropy_coef", "value_coef"), "exit code 1, as losses are infinite"),
    "train --gamma=0.5 --gamma=0.6": "the last one counts",
    "eval_episodes": "it evaluates for ever",
    "num_epochs": "it draws the minibatches of all epochs first",
    **dict.fromkeys(("evaluate class", "--resume=class --total_steps=96"), "asks for the class"),
}
MAKING = threading.Lock()


def run(tree: Tree, line: str, cwd: Path) -> Done:
    """Run a command line; where it trains, base.json has what it does not give."""
    words = line.split()
    if words[0] == "python":
        return tree.start(words[3:], cwd, program=(sys.executable, "-m", "ppo")).wait()
    if words[0] in ("train", "CartPole-v1"):
        words += tree.arguments([] if "--config" in line else ["--config=base.json"])
    elif words[0].startswith("--"):
        words = tree.arguments(words)
    elif words[-1] == ".":
        cwd /= "moved"
    return tree.run(words, cwd, script=tree.folder / "main.py", timeout=10)


def finished(tree: Tree, folder: Path) -> Path:
    """Return a folder with files and finished runs, which is made once."""
    with MAKING:
        if not folder.exists():
            folder.mkdir(parents=True)
            for name, text in FILES.items():
                (folder / name).write_text(text)
            for name, flags in RUNS.items():
                done = run(tree, f"train {flags} --run_dir={name}", folder)
                assert done.code == 0, done.err
            tree.run([], folder, script="save.py")
            (folder / "moved.py").rename(folder / "moved/moved.py")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the contents of a folder's files but locks and compiled modules."""
    return {x: x.read_bytes() for x in folder.rglob("*.*") if x.is_file() and x.suffix != ".pyc"}


def judge(done: Done, codes: set[int], words: str = "") -> list[str]:
    """Say what is wrong with an answer. Exit code 1: code of the user has raised."""
    problems = [f"left: {x}" for x in done.left]
    if done.code not in codes:
        problems.append(f"exit code {done.code}, not in {codes}: {done.err}")
    if done.code != 1 and (done.err.count("\n") > 1 or "Traceback" in done.err + done.out):
        problems.append(f"more than a line: {done.err}")
    missing = [word for word in words.split() if done.code and word not in done.last]
    return problems + [f"{word} is not named: {done.err}" for word in missing]


def check_values(flag: str, tree: Tree, folder: Path) -> list[str]:
    """Try odd values of a flag, in a folder each; ENDS has what ends runs of very many steps."""
    problems = []
    for number, value in enumerate(VALUES):
        cwd = folder / str(number)
        cwd.mkdir()
        (cwd / "base.json").write_text(FILES["base.json"])
        done = run(tree, f"train {ENDS.get(flag, '')} --{flag}={value}", cwd)
        found = judge(done, {0, 2, 3} if flag in OF_RUNS else {0, 2}, flag)
        if done.code and len(contents(cwd)) > 1:
            found.append("files are left")
        problems += [f"{value!r}: {x}" for x in found]
    return problems


def check_line(line: str, tree: Tree, folder: Path) -> list[str]:
    """Check the answer to a command line."""
    good = finished(tree, folder.parent / "finished")
    shutil.copytree(good, folder, symlinks=True, dirs_exist_ok=True)
    before = contents(folder)
    done = run(tree, line, folder)
    if line in WRONG:
        codes = {2} if line.startswith("train") else {2, 3}
        codes |= {1} if "raises" in line else set()
        return judge(done, codes, WRONG[line]) + ["files differ"] * (contents(folder) != before)
    made = [path.read_text() for path in folder.glob("runs/*/config.json")]
    missing = [x for x in RIGHT[line].split(", ") if x not in "".join([done.out, *made])]
    if line == "--help=all":
        missing += {*re.findall(r"^ +--(\w+)", done.out, re.MULTILINE)} - {"version"} ^ {*FLAGS}
    return judge(done, {0}) + [f"not in both: {x}" for x in missing]


def check(name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    check_it = check_values if name in FLAGS else check_line
    return "; ".join(check_it(name, tree, folder))
