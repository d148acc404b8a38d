"""Cores, devices and memory that a run may use."""

import os
from pathlib import Path

import pytest
import torch

from ppo.errors import ConfigError
from ppo.system import hardware
from ppo.system.hardware import (
    available_cores,
    check_memory,
    find_device,
    has_bfloat16,
    within_gpu_memory,
)


def test_auto_is_a_gpu_for_images_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda size, device: None)
    for has_cuda, expected in ((False, ["cpu", "cpu"]), (True, ["cpu", "cuda"])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda x=has_cuda: x)
        assert [find_device("auto", images) for images in (False, True)] == expected


def test_a_device_that_does_not_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--device=cuda:99 cannot be used \(.+\): give --device"):
        find_device("cuda:99", False)


def test_the_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setattr(hardware, "CONTAINER", tmp_path)
    machine = hardware.physical_memory()
    for words, cores in (("max 100000", 6), ("250000 100000", 2), ("50000 100000", 1)):
        (tmp_path / "cpu.max").write_text(f"{words}\n")
        assert available_cores() == cores
    with monkeypatch.context() as patch:
        (tmp_path / "cpu.max").write_text("max 100000\n")
        patch.setattr(hardware, "sharing", 4)  # processes that learn together
        assert available_cores() == 1
    for word, memory in (("max", machine), ("4096", 4096)):
        (tmp_path / "memory.max").write_text(f"{word}\n")
        assert hardware.physical_memory() == memory


def test_a_run_that_needs_more_memory_than_there_is_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "physical_memory", lambda: 8 * 2**30)
    check_memory("num_envs", 8 * 2**30)
    with pytest.raises(
        ConfigError,
        match="--num_envs must be lower: the run would need 9 GiB, this machine has 8",
    ):
        check_memory("num_envs", 9 * 2**30)


def test_bfloat16_is_for_processors_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_avx512, has_amx in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda x=has_avx512: x)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda x=has_amx: x)
        assert has_bfloat16("cpu") == (has_avx512 or has_amx)
        assert not has_bfloat16("mps")


def test_a_gpus_memory_that_does_not_suffice_is_said_with_the_flags() -> None:
    said = "CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 8 GiB"
    meant = r"suffice \(CUDA out of memory. Tried to allocate 9.00 GiB\): give more --num_min"
    with pytest.raises(ConfigError, match=meant), within_gpu_memory():
        raise torch.OutOfMemoryError(said)
    with pytest.raises(RuntimeError, match="another"), within_gpu_memory():
        raise RuntimeError("another error")


def test_processes_that_learn_together_share_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert available_cores() == 6
    monkeypatch.setattr(hardware, "sharing", 4)
    assert available_cores() == 1
    monkeypatch.setattr(hardware, "sharing", 8)
    assert available_cores() == 1
