"""Change settings of a running run."""

from ppo.config.config import Config
from ppo.config.flags import Flags, flag, parse_flags, pasted
from ppo.errors import ConfigError
from ppo.extras.live.changes import PENDING, read_changes
from ppo.run.folder import is_running
from ppo.run.reader import run_folder
from ppo.system.files import locked, write_json


class Set(Flags):
    """Change settings of a running run, from its next iteration."""

    run: str = flag("", "Folder of a run, or its name in runs/.", nargs=None)
    settings: list[str] = flag(
        (),
        "New values, such as learning_rate=1e-4 or entropy_coef=linear:0.01, whose schedule counts "
        "from the start of the run.",
        nargs="+",
    )

    def __call__(self) -> None:
        """Write the new values to the run's folder, where the run reads them.

        Raises ConfigError for a setting that cannot change, an invalid value, or a run that is not
        running, CheckpointError if another file is in the way."""
        given = parse_flags([f"--{setting}" for setting in self.settings], Config)
        known = Config.names(live=True)
        if fixed := given.keys() - {*known}:
            raise ConfigError(f"ppo set cannot change {min(fixed)}, but {', '.join(known)}")
        config = Config(**given)
        folder = run_folder(self.run)
        if not is_running(folder):
            resume = pasted(resume=folder)
            raise ConfigError(f"{folder} is not running: give the flags with {resume}")
        path = folder / PENDING
        asked = {name: getattr(config, name) for name in given}
        with locked(path):
            write_json(path, {**read_changes(path), **asked})
        print(f"{folder} takes these values from its next iteration on")
