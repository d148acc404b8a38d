"""What the trainer promises, asked of any tree: python -m tests.acceptance --tree=FOLDER."""
