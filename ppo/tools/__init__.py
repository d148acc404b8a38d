"""Tools that work on runs and policies from outside: the trainer runs without this folder."""

from ppo.commands import Command

COMMANDS = {
    "check": Command(
        "ppo.tools.check:Check",
        "Check an environment before training on it, and recommend flags.",
        takes_environment=True,
    ),
    "tune": Command(
        "ppo.tools.tune.command:tune", "Tune hyperparameters with Optuna.", takes_environment=True
    ),
    "runs": Command("ppo.tools.overview:Runs", "List runs and their results."),
    "plot": Command(
        "ppo.tools.plots:Plot",
        "Plot learning curves of runs; runs that differ only by seed become one curve.",
    ),
    "report": Command(
        "ppo.tools.report:Report",
        "Write a report of a run, or a comparison of several, as one HTML page.",
    ),
    "render": Command("ppo.tools.render:Render", "Make a video of an episode of a run's training."),
    "export": Command(
        "ppo.tools.export:Export",
        "Export a policy as an ONNX file that maps observations to actions.",
    ),
}
