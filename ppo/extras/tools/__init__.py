"""Tools that work on runs and policies from outside: seeds, report, plots, list, search, check and
export."""

from ppo.extensions import Command, Extension

EXTENSION = Extension(
    flags=("ppo.extras.tools.flags:ReportFlags", "ppo.extras.tools.flags:SeedsFlags"),
    callbacks="ppo.extras.tools.run:make_callbacks",
    launch="ppo.extras.tools.run:launch",
    commands={
        "check": Command(
            "ppo.extras.tools.check:Check",
            "Check an environment before training, and recommend flags.",
            takes_environment=True,
        ),
        "tune": Command(
            "ppo.extras.tools.tune.command:tune",
            "Tune hyperparameters with Optuna.",
            takes_environment=True,
        ),
        "runs": Command(
            "ppo.extras.tools.summary_table:Runs", "List runs and their results, the newest last."
        ),
        "plot": Command(
            "ppo.extras.tools.plots:Plot",
            "Plot learning curves, one for all seeds of the same settings.",
        ),
        "report": Command(
            "ppo.extras.tools.report:Report",
            "Write an HTML page about a run, or one that compares several.",
        ),
        "export": Command(
            "ppo.extras.tools.export:Export",
            "Export a policy, with its preprocessing, to an ONNX file.",
        ),
    },
)
