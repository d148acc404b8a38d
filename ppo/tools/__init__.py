"""Tools that work on runs and policies from outside: the trainer runs without this folder."""

from ppo.commands import Command

COMMANDS = {
    "check": Command(
        "ppo.tools.check:Check",
        "Look at an environment before training on it, and recommend flags.",
        takes_environment=True,
    ),
    "tune": Command(
        "ppo.tools.tune.command:tune", "Tune hyperparameters with Optuna.", takes_environment=True
    ),
    "runs": Command("ppo.tools.overview:Runs", "List runs and their results."),
    "plot": Command(
        "ppo.tools.plots:Plot",
        "Draw learning curves of runs; those that differ by their seed only become one curve.",
    ),
    "report": Command(
        "ppo.tools.report:Report",
        "Write a report of a run, or a comparison of several, as a single HTML page.",
    ),
    "render": Command(
        "ppo.tools.render:Render", "Replay an episode of a run's training and make a video of it."
    ),
    "export": Command(
        "ppo.tools.export:Export",
        "Write a policy as an ONNX file that maps an observation to an action.",
    ),
}
