"""Plot learning curves."""

from ppo.analysis.plots import draw
from ppo.commands.shared import new_file
from ppo.config.config import run_folder
from ppo.config.flags import Flags, flag
from ppo.run.reader import read_run


class Plot(Flags):
    """Plot the learning curves of runs, those of several seeds with a 95 % interval."""

    runs: list[str] = flag((), "The folders of runs, or their names in runs/.", nargs="+")
    output: str = flag("curves.png", "New .png or .svg file.")

    def __call__(self) -> None:
        """Draw the picture. Raises ConfigError for a folder that is no run or a file that is
        unsuitable, OSError if writing fails."""
        path = new_file("--output=", self.output, (".png", ".svg"))
        draw([read_run(run_folder(name)) for name in self.runs], path)
        print(f"picture: {self.output}")
