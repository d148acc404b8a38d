"""Commands of the command line, one module each, imported when the command is run.

Most modules, such as evaluate, have a subclass of Flags (Evaluate), and calling an instance of it
runs the command. Modules train and tune have a function of the command line's arguments instead.
"""

# A line for --help.
COMMANDS = {
    "train": "Train; the same as no command.",
    "check": "Look at an environment before training on it, and recommend flags.",
    "evaluate": "Play whole episodes with a saved policy and print its mean return.",
    "export": "Write a policy as an ONNX file that maps an observation to an action.",
    "plot": "Draw learning curves of runs; those that differ by their seed only become one curve.",
    "render": "Replay an episode of a run's training and make a video of it.",
    "set": "Change coefficients of a run that is going on.",
    "tune": "Search for flags by which an environment is learned better, or sooner.",
    "report": "Write a report of a run, or a comparison of several, as a single HTML page.",
    "runs": "List the runs in a folder, and what they have come to.",
}
