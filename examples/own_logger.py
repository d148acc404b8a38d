"""Write a logger: keep the metrics of all runs in one SQLite database, to compare runs by queries.

python main.py CartPole-v1 --callback='examples.own_logger:Database(path="metrics.db")'

sqlite3 metrics.db "select run, max(value) from metrics where name='episode_return_mean' group by 1"
"""

import sqlite3

from ppo.loggers import Logger
from ppo.policy import Evaluation
from ppo.run import Run

TABLE = "create table if not exists metrics (run text, iteration int, name text, value real)"


class Database(Logger):
    """Insert a row for each metric of each iteration. Since the base class is Logger rather than
    Callback, training continues without it if it raises."""

    def __init__(self, path: str = "metrics.db") -> None:
        self.path = path

    def on_start(self, run: Run) -> None:
        self.connection = sqlite3.connect(self.path)
        self.name = str(run.folder.path)
        with self.connection:
            self.connection.execute(TABLE)
            # A resumed run repeats the iterations after its last checkpoint.
            query = "delete from metrics where run = ? and iteration > ?"
            self.connection.execute(query, (self.name, run.iteration))

    def on_iteration(self, run: Run) -> None:
        self.insert(run, {name: x for name, x in run.metrics.items() if x is not None})

    def on_evaluation(self, run: Run, result: Evaluation) -> None:
        if result.mean is not None:
            self.insert(run, {"evaluation_return_mean": result.mean})

    def on_end(self, run: Run) -> None:
        self.connection.close()

    def insert(self, run: Run, metrics: dict[str, float]) -> None:
        rows = [(self.name, run.iteration, *metric) for metric in metrics.items()]
        with self.connection:
            self.connection.executemany("insert into metrics values (?, ?, ?, ?)", rows)
