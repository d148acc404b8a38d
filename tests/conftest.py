"""What all tests share."""

import torch
from hypothesis import settings

settings.register_profile("tests", deadline=None, max_examples=40)
settings.load_profile("tests")
torch.set_num_threads(1)  # as in training: to start others would take longer than these tests
