"""Commands of the command line: a module each, imported when the command is run."""

from typing import NamedTuple


class Command(NamedTuple):
    """Import path of a subclass of Flags whose instances run when called, and a line for --help."""

    path: str
    about: str


COMMANDS = {
    "train": Command(
        "ppo.commands.train:train",
        "Train; the same as no command.",
    ),
    "check": Command(
        "ppo.commands.check:Check",
        "Look at an environment before training on it, and recommend flags.",
    ),
    "evaluate": Command(
        "ppo.commands.evaluate:Evaluate",
        "Play whole episodes with a saved policy and print its mean return.",
    ),
    "export": Command(
        "ppo.commands.export:Export",
        "Write a policy as an ONNX file that maps an observation to an action.",
    ),
    "plot": Command(
        "ppo.commands.plot:Plot",
        "Draw learning curves of runs; those that differ by their seed only become one curve.",
    ),
    "render": Command(
        "ppo.commands.render:Render",
        "Replay an episode of a run's training and make a video of it.",
    ),
    "report": Command(
        "ppo.commands.report:Report",
        "Write a report of a run as a single HTML page.",
    ),
}
