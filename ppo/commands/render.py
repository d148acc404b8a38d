"""Make a video of an episode of a run's training."""

from typing import Literal

from ppo.commands.shared import VIDEOS, PolicyCommand, folder_of, new_file
from ppo.config.flags import flag
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.errors import CheckpointError
from ppo.run.checkpoint import find_checkpoint
from ppo.run.highlights import EPISODES, find_episode, video_path


class Render(PolicyCommand):
    """Replay an episode by its seed and actions, and make a video of it."""

    episode: Literal["best", "median", "worst"] = flag(
        "best", "Which episode to replay, by its return."
    )
    video: str | None = flag(
        None, "New .mp4 or .gif file; none is one in the run's videos/, kept for the next time."
    )

    def __call__(self) -> None:
        """Make the video, unless the run has it already, and print its path.

        Raises ConfigError if there is no such episode or the video cannot be written,
        CheckpointError if it is not of the run's environment, NotRepeated if the replay has another
        return or length, and as Evaluate does."""
        path = find_checkpoint(self.run)
        folder = folder_of(path)
        episode = find_episode(folder, self.episode)
        video = video_path(folder, episode)
        if self.video or not video.is_file():
            video = new_file("--video=", self.video or video, VIDEOS)
            policy = self.load(path)
            try:
                policy.isolated("the video", policy.replay, episode, video)
            except (CheckpointError, EnvironmentUnavailable, WorkerError) as error:
                if isinstance(error, WorkerError) and not episode["attributes"]:
                    raise  # nothing in the file is to blame
                raise CheckpointError(
                    f"the {self.episode} episode of {folder / EPISODES} cannot be replayed "
                    f"({error}): give another by --episode"
                ) from error
        print(
            f"{self.episode} episode: return {episode['episode_return']:.6g} in "
            f"{episode['episode_length']} steps, until step {episode['step']:,} of training\n"
            f"video: {video}"
        )
