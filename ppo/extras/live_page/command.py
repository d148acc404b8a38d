"""Show runs on a page while they learn."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from ppo.config.flags import Flags, flag
from ppo.errors import ConfigError
from ppo.extras.live_page.folders import find_runs
from ppo.extras.live_page.server import PageServer
from ppo.extras.tools.groups import RUNS
from ppo.run.reader import run_folder

PORT = 8770
Port = Annotated[int, ("low", 1), ("high", 65535)]


class Watch(Flags):
    """Show runs while they learn, on a page for browsers of this machine."""

    runs: list[str] = flag((), RUNS, nargs="+")
    port: Port | None = flag(
        None, f"Port of the page; none: {PORT}, or if that is in use another that is free."
    )

    def __call__(self) -> None:
        """Serve the page until Ctrl-C. Raises ConfigError for a folder without a run, or a port
        that cannot be used."""
        folders = [run_folder(name) for name in self.runs]
        for folder in folders:
            if not any(True for _ in find_runs(folder)):
                raise ConfigError(f"{folder}: there is no run in it: give a run's folder")
        with suppress(KeyboardInterrupt), self._open(folders) as server:
            print(f"page: http://127.0.0.1:{server.server_port}/", flush=True)
            server.serve_forever()

    def _open(self, folders: Sequence[Path]) -> PageServer:
        for port in [self.port] if self.port else [PORT, 0]:
            try:
                return PageServer(folders, port)
            except OSError as error:
                reason = error.strerror
        raise ConfigError(f"--port={self.port or PORT} cannot be used ({reason}): give another")
