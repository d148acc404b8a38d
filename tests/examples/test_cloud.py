"""The files of examples/cloud: what they start, goes on where it was stopped."""

import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from ppo.config.config import Config
from ppo.config.flags import parse_flags
from tests.running import ROOT, metrics, num_rows, start, wait_until

CLOUD = ROOT / "examples" / "cloud"
SMALL = ("--preset=none", "--num_envs=4", "--num_steps=64", "--eval_episodes=2", "--report=False")


def content(name: str) -> Any:
    return yaml.safe_load((CLOUD / name).read_text())


def job() -> Any:
    """The container of the Kubernetes Job."""
    (container,) = content("kubernetes.yaml")["spec"]["template"]["spec"]["containers"]
    return container


def test_the_flags_of_both_files_are_those_of_a_run_that_resumes_itself() -> None:
    *_, words = content("skypilot.yaml")["run"].partition("main.py ")
    for flags in (job()["args"], shlex.split(words)):
        config = Config(**parse_flags(flags, Config))
        assert (config.resume, Path(str(config.run_dir)).parent) == ("auto", Path("/runs"))


def test_what_the_job_mounts_is_there() -> None:
    spec = content("kubernetes.yaml")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in job()["volumeMounts"]}
    assert {*mounts} == {volume["name"] for volume in spec["volumes"]}
    assert "/runs" in mounts.values()
    assert "/runs" in content("skypilot.yaml")["file_mounts"]
    rules = content("kubernetes.yaml")["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["containerName"] == job()["name"]
    assert 128 + signal.SIGTERM not in rules[0]["onExitCodes"]["values"]


@pytest.mark.slow
def test_a_pod_that_is_evicted_is_followed_by_one_that_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "lunarlander"
    args = [arg.replace("/runs/lunarlander", str(folder)) for arg in job()["args"]]
    flags = [*args, *SMALL, "--total_steps=5120"]
    with start(*flags) as pod:
        wait_until(lambda: num_rows(folder) > 2, pod)
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(60) == 128 + signal.SIGTERM
    before = metrics(folder)
    assert 2 < len(before) < 20
    with start(*flags) as pod:
        assert pod.wait(120) == 0
    after = metrics(folder)
    assert (len(after), after[: len(before)]) == (20, before)
