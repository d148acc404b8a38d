"""Networks on images: their size, what they compute, in which precision, and acting by them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from ppo.models import MODELS
from ppo.models.actor import Actor
from ppo.models.actor_critic import FeedForward
from ppo.models.errors import ModelMismatch
from tests.running import make_network

IMAGES = spaces.Box(0, 255, (84, 84, 4), np.uint8)
SMALL = spaces.Box(0, 255, (40, 48, 3), np.uint8)  # height and width differ
DISCRETE, CONTINUOUS = spaces.Discrete(6), spaces.Box(-1, 1, (2,))

torch.set_num_threads(1)  # as in training: to start others would take longer than these tests

IMAGE_MODELS = [name for name, entry in MODELS.items() if entry.reads == "images"]
NAMES = pytest.mark.parametrize("name", IMAGE_MODELS)
SHARING = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])
PRECISIONS = pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])


def make_cnn(
    name: str = "cnn",
    observation_space: spaces.Box = SMALL,
    action_space: spaces.Space = DISCRETE,
    share_trunk: bool = True,
    bfloat16: bool = False,
    seed: int = 0,
    **values: Any,
) -> FeedForward:
    return make_network(
        observation_space,
        action_space,
        seed,
        bfloat16,
        model=name,
        share_trunk=share_trunk,
        **values,
    )


def random_images(number: int) -> Tensor:
    """Each channel of each as bright as none other: else all would look the same to a network."""
    random = np.random.default_rng(0)
    brightest = random.integers(1, 256, size=(number, 1, 1, SMALL.shape[2]))
    return torch.from_numpy(
        (random.random((number, *SMALL.shape)) * (brightest + 1)).astype(np.uint8)
    )


def disturbed(model: FeedForward) -> FeedForward:
    """Move weights as training does: biases are not zero then, and policies not nearly uniform."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def convolution(before: int, after: int, size: int) -> int:
    return before * after * size * size + after


NATURE = convolution(4, 32, 8) + convolution(32, 64, 4)
IMPALA = sum(
    convolution(before, width, 3) + 4 * convolution(width, width, 3)
    for before, width in ((4, 16), (16, 32), (32, 32))
)


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        ("cnn", 1_684_128),
        ("cnn_small", NATURE + convolution(64, 32, 3) + (32 * 7 * 7 + 1) * 512),
        ("impala", IMPALA + (32 * 11 * 11 + 1) * 256),  # 84 pixels become 42, 21, 11
    ],
)
def test_trunks_on_four_images_of_84_pixels_have_the_papers_size(
    name: str, num_parameters: int
) -> None:
    trunk = make_cnn(name, IMAGES, hidden_size=MODELS[name].hidden_size).policy_trunk
    assert sum(parameter.numel() for parameter in trunk.parameters()) == num_parameters


@NAMES
def test_outputs_have_one_row_for_each_image(name: str) -> None:
    distribution, values = make_cnn(name, action_space=CONTINUOUS)(random_images(5))
    assert values.shape == distribution.entropy().shape == (5,)
    assert distribution.mode().shape == (5, 2)


Layer = Callable[..., Tensor]


def nature(images: Tensor, convolve: Layer) -> Tensor:
    """The convolutions of Mnih et al. 2015."""
    for stride in (4, 2, 1):
        images = convolve(images, stride=stride).relu()
    return images


def impala(images: Tensor, convolve: Layer) -> Tensor:
    """Those of Espeholt et al. 2018."""
    for _ in range(3):
        images = functional.max_pool2d(convolve(images, padding=1), 3, stride=2, padding=1)
        for _ in range(2):
            images = images + convolve(convolve(images.relu(), padding=1).relu(), padding=1)
    return images.relu()


def transcript(
    convolutions: Callable[[Tensor, Layer], Tensor], model: FeedForward, trunk: str, images: Tensor
) -> Tensor:
    """Compute a trunk's features of images, written out in float64."""
    tensors = iter([p.double() for name, p in model.named_parameters() if name.startswith(trunk)])

    def convolve(inputs: Tensor, **options: int) -> Tensor:
        return functional.conv2d(inputs, next(tensors), next(tensors), **options)

    features = (
        convolutions(images.double().permute(0, 3, 1, 2) / 255, convolve)
        .permute(0, 2, 3, 1)
        .flatten(1)
    )
    return functional.linear(features, next(tensors), next(tensors)).relu()


@SHARING
@pytest.mark.parametrize(
    ("name", "convolutions"),
    [("cnn", nature), ("cnn_small", nature), ("impala", impala)],
    ids=IMAGE_MODELS,
)
def test_outputs_are_those_of_the_papers_layers_on_pixels_up_to_1(
    name: str, convolutions: Callable[[Tensor, Layer], Tensor], share_trunk: bool
) -> None:
    model, images = disturbed(make_cnn(name, share_trunk=share_trunk)), random_images(5)
    distribution, values = model(images)
    features = transcript(convolutions, model, "policy_trunk", images)
    logits = functional.linear(features, *(p.double() for p in model.policy_head.parameters()))
    assert_close(distribution.logits, logits.float().unsqueeze(1), atol=1e-5, rtol=1e-5)
    features = features if share_trunk else transcript(convolutions, model, "value_trunk", images)
    expected = functional.linear(features, *(p.double() for p in model.value_head.parameters()))[
        :, 0
    ]
    assert_close(values, expected.float(), atol=1e-5, rtol=1e-5)


def test_separate_trunks_start_from_different_weights() -> None:
    model = make_cnn(share_trunk=False)
    assert not torch.equal(model.policy_trunk.layers[0].weight, model.value_trunk.layers[0].weight)


@NAMES
def test_initial_weights_are_orthogonal_with_the_gain_of_their_layer(name: str) -> None:
    gains = {
        "policy_trunk": math.sqrt(2),
        "value_trunk": math.sqrt(2),
        "policy_head": 0.01,
        "value_head": 1,
    }
    model = make_cnn(name, share_trunk=False)
    for layer, parameter in model.named_parameters():
        if layer.endswith("weight"):
            matrix = parameter.flatten(1)
            rows = matrix if len(matrix) <= matrix.shape[1] else matrix.T
            assert_close(
                rows @ rows.T,
                gains[layer.split(".")[0]] ** 2 * torch.eye(len(rows)),
                atol=1e-5,
                rtol=0,
            )
        else:
            assert not parameter.any()


@NAMES
def test_outputs_in_bfloat16_are_nearly_those_in_float32(name: str) -> None:
    images = random_images(10)
    (exact_distribution, exact_values), (distribution, values) = (
        make_cnn(name, bfloat16=bfloat16)(images) for bfloat16 in (False, True)
    )
    for output, exact in ((distribution.logits, exact_distribution.logits), (values, exact_values)):
        assert output.dtype == torch.float32
        assert 0 < (output - exact).abs().max() < 0.02 * exact.abs().max()


@NAMES
def test_weights_and_gradients_are_float32_where_the_trunk_computes_in_bfloat16(name: str) -> None:
    exact, model = (make_cnn(name, bfloat16=bfloat16) for bfloat16 in (False, True))
    for each in (exact, model):
        distribution, values = each(random_images(10))
        (values.sum() + distribution.logits.square().sum()).backward()
    for of_model, of_exact in zip(model.parameters(), exact.parameters(), strict=True):
        assert of_model.dtype == of_model.grad.dtype == torch.float32
        assert torch.equal(of_model, of_exact)
        similarity = functional.cosine_similarity(
            of_model.grad.flatten(), of_exact.grad.flatten(), dim=0
        )
        assert similarity > 0.95


def assert_near(output: Tensor, expected: Tensor, bfloat16: bool) -> None:
    tolerance = (0.002 if bfloat16 else 1e-5) * expected.abs().max().item()
    assert_close(output, expected, atol=tolerance, rtol=0)


def weights_of(model: FeedForward) -> np.ndarray:
    return parameters_to_vector(model.parameters()).detach().numpy()


@NAMES
@PRECISIONS
def test_the_actor_acts_as_the_learners_model_does_and_records_its_features(
    name: str, bfloat16: bool
) -> None:
    arguments = name, SMALL, CONTINUOUS, True, bfloat16
    model, images = disturbed(make_cnn(*arguments)), random_images(20)
    other = make_cnn(*arguments, seed=1)
    weights, features = weights_of(other).copy(), np.zeros((20, 64), np.float32)
    actor = Actor(other, weights)
    weights[:] = weights_of(model)
    actor.refresh()
    actions = actor(images.numpy(), None, features=features)
    distribution, values = model(images)
    assert_near(torch.from_numpy(actions), distribution.mean, bfloat16)
    assert_near(model.value_head(torch.from_numpy(features))[:, 0], values, bfloat16)


def test_the_actor_leaves_the_learners_weights_alone() -> None:
    weights = weights_of(make_cnn(bfloat16=True, seed=1)).copy()
    before = weights.copy()
    Actor(make_cnn(bfloat16=True), weights)(random_images(2).numpy(), None)
    np.testing.assert_array_equal(weights, before)


@pytest.mark.parametrize("name", ["cnn", "cnn_small"])
def test_images_too_small_for_the_model_are_answered_with_the_flag_to_change(name: str) -> None:
    with pytest.raises(ModelMismatch, match="--screen_size"):
        make_cnn(name, spaces.Box(0, 255, (16, 16, 4), np.uint8))
