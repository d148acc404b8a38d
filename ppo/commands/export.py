"""Export a policy to ONNX."""

from ppo.commands.shared import PolicyCommand, new_file
from ppo.config.flags import flag
from ppo.run.checkpoint import find_checkpoint


class Export(PolicyCommand):
    """Export a policy, with the preprocessing of observations and actions, to an ONNX file."""

    output: str = flag("", "New .onnx file.", nargs=None)

    def __call__(self) -> None:
        """Write the file, and print the largest difference between its actions and the policy's.

        Raises as ppo.policy.export.export and Evaluate do."""
        path = new_file("", self.output, (".onnx",))
        policy = self.load(find_checkpoint(self.run), precision="float32")
        from ppo.policy.export import export  # heavy

        difference = export(policy, path)
        print(f"{path}: its actions differ from the policy's by {difference:.1g} at most")
