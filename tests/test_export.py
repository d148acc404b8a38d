"""ONNX files in onnxruntime against the policies that they were made of."""

import json
import sys

import cv2
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from ppo.cli import main
from ppo.errors import PPOError
from ppo.extras.export import export
from ppo.models import make_actor_of, make_model
from ppo.models.actor_critic import named_tensors
from ppo.policy import Policy
from tests.running import disturb, make_spaces, train
from tests.worlds import Constant

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
FAR = Box(999_990, 1_000_010, (2,), np.float64)
NEAR = Box(-1, 1, (2,), np.float64)
BOUNDS = Box(np.float32([[-1000], [0]]), np.float32([[1000], [4]]))
PARTS = Dict(arm=Box(-1, 1, (2,)), goal=MultiDiscrete([2, 3], start=[1, 0]))
CAMERA = Dict(camera=Box(0, 255, (60, 50, 3), np.uint8), far=FAR)
CASES = {
    "masks": (FAR, MultiDiscrete([3, 2], start=[1, -1]), {"has_masks": True}),
    "bounds": (FAR, BOUNDS, {}),
    "gSDE": (FAR, BOUNDS, {"use_sde": True}),
    "whole numbers": (NEAR, Box(0, 255, (2,), np.uint8), {"normalize_observations": False}),
    "stacked parts": (PARTS, Discrete(3, start=5), {"frame_stack": 2}),
    "image, lstm": (CAMERA, Box(-2, 2, (2,)), {"model": "lstm", "screen_size": 36}),
}


def make_policy(observes, acts, **flags):
    spaces = make_spaces(observes, acts, **{"hidden_size": 16, "precision": "float32", **flags})
    model = disturb(make_model(spaces), 0.05)
    state = {f"model.{name}": x.detach().numpy() for name, x in named_tensors(model).items()}
    shape = spaces.layout.tables["observations"].shape
    mean = 1e6 if FAR in (observes, *getattr(observes, "values", list)()) else 0.0
    statistics = {"mean": np.full(shape, mean), "variance": np.full(shape, 2.0), "count": 9.0}
    state |= {f"normalize_observation.{name}": x for name, x in statistics.items()}
    state |= {"env_attributes": {}, "config": spaces.config.to_json()}
    return Policy(spaces, state, make_actor_of(model, spaces))


def one_hot(choice, size):
    return np.eye(size)[choice]


def inputs_of(name, episode, mask):
    """Return by hand what a file reads after the observations of an episode."""
    if name == "stacked parts":
        both = [episode[0], *episode][-2:]
        rows = [(*x["arm"], *one_hot(x["goal"][0] - 1, 2), *one_hot(x["goal"][1], 3)) for x in both]
        return {"observations": np.float64(rows).ravel()}
    if name == "image, lstm":
        images = [cv2.cvtColor(x["camera"], cv2.COLOR_RGB2GRAY) for x in episode]
        small = [cv2.resize(x, (36, 36), interpolation=cv2.INTER_AREA) for x in images]
        stack = np.stack([*[small[0]] * 3, *small][-4:], -1)
        return {"observations": episode[-1]["far"], "images.camera": stack}
    found = {"observations": episode[-1]}
    if name == "masks":  # both choices have three columns
        found["action_mask"] = np.array([*mask, False], np.bool_)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_file_acts_as_its_policy_from_what_the_environment_returns(name, tmp_path):
    observes, acts, flags = CASES[name]
    policy = make_policy(observes, acts, **flags)
    assert export(policy, tmp_path / "x.onnx") <= 1e-6
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"))
    assert {x.shape[0] for x in session.get_inputs()} == {"batch"}
    observes.seed(1)
    episode, actions = [], []
    state = np.zeros((1, 32), np.float32)
    for mask in ([1, 0, 1, 1, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0]):
        episode.append(observes.sample())
        inputs = {x: y[None] for x, y in inputs_of(name, episode, mask).items()}
        if "lstm" in name:
            inputs["state"] = state
        action, *states = session.run(None, inputs)
        state = states[0] if states else state
        info = {"action_mask": np.array(mask, np.int8)}
        expected = np.asarray(policy.predict(episode[-1], info=info))
        np.testing.assert_allclose(action[0], expected, atol=1e-3 if acts is BOUNDS else 1e-6)
        assert action[0].shape == acts.shape
        assert action.dtype == acts.dtype
        actions.append(action[0].ravel())
    if isinstance(acts, Box):
        assert np.ptp(actions, 0).max() > 0, "the observations do not count"


def test_a_file_tells_how_its_inputs_are_made(tmp_path):
    observes, acts, flags = CASES["image, lstm"]
    export(make_policy(observes, acts, **flags), tmp_path / "x.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"))
    about = json.loads(session.get_modelmeta().custom_metadata_map["ppo"])
    far, camera = about["observations"]
    assert (far["path"], far["input"], far["stack"]) == (["far"], "observations", 1)
    assert (camera["path"], camera["input"], camera["stack"]) == (["camera"], "images.camera", 4)
    assert (camera["to_gray"], camera["size"]) == (True, [36, 36])
    assert about["config"]["model"] == "lstm"
    assert about["actions"] == {"Box": [-2.0, 2.0, [2], "float32"]}


def test_a_file_that_acts_otherwise_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("ppo.extras.export.CLIP", 0.1)
    with pytest.raises(PPOError, match="differ"):
        export(make_policy(*CASES["bounds"][:2]), tmp_path / "x.onnx")
    assert not [*tmp_path.iterdir()]


def test_the_command_names_what_is_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(Constant, tmp_path / "run", 1)
    assert main(["export", "run", "--env_name=tests.worlds:Constant"]) == 0
    assert "policy.onnx: its actions differ from the policy's by" in capsys.readouterr().out
    wrong = {
        "run": "--output=policy.onnx",  # it is there
        "run --output=x.pt": "--output=x.pt",
        "run gone/x.onnx": "gone/x.onnx",
        "gone x.onnx": "gone",
        "": "ppo export",
    }
    for words, named in wrong.items():
        assert main(["export", *words.split()]) in (2, 3)
        line = capsys.readouterr().err
        assert named in line
        assert line.count("\n") == 1
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", "run", "y.onnx"]) == 2
    assert "pip install onnxscript onnxruntime" in capsys.readouterr().err
