"""Tools that work on runs and policies from outside: the trainer runs without this folder."""

from ppo.commands import Command

COMMANDS = {
    "check": Command(
        "ppo.tools.check:Check",
        "Check an environment before training, and recommend flags.",
        takes_environment=True,
    ),
    "tune": Command(
        "ppo.tools.tune.command:tune", "Tune hyperparameters with Optuna.", takes_environment=True
    ),
    "runs": Command("ppo.tools.overview:Runs", "List runs and their results, the newest last."),
    "plot": Command(
        "ppo.tools.plots:Plot",
        "Plot learning curves, one for all seeds of the same settings.",
    ),
    "report": Command(
        "ppo.tools.report:Report",
        "Write an HTML page about a run, or one that compares several.",
    ),
    "export": Command(
        "ppo.tools.export:Export",
        "Export a policy, with its preprocessing, to an ONNX file.",
    ),
}
