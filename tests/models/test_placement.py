import pytest
import torch

from spec_cli.core.errors import UsageError
from spec_cli.models import placement
from spec_cli.models.placement import cpu_has_native_bf16, resolve_device, resolve_dtype
from tests.models.model_folders import llama_config

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


@pytest.fixture
def emulated_bf16(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


def test_cpu_is_found():
    """The CPU can be asked for by name, and is what `auto` falls back to."""
    assert resolve_device("cpu") == CPU
    if not torch.cuda.is_available():
        assert resolve_device("auto") == CPU


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mps", "not tested|nothing here was tested"),
        ("tpu", "unknown"),
        ("cuda:x", "unknown"),
        ("cuda:", "unknown"),
        ("", "unknown"),
    ],
)
def test_other_devices_are_refused(name, message):
    """A device that is unknown or untested is refused by name."""
    with pytest.raises(UsageError, match=message):
        resolve_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_missing_gpu_is_refused():
    """A GPU asked for where there is none is an error, not a silent CPU."""
    with pytest.raises(UsageError, match="no CUDA"):
        resolve_device("cuda:1")


def test_missing_index_is_refused(monkeypatch):
    """A GPU's number past the last one is an error with their count."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="2 GPUs"):
        resolve_device("cuda:2")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("float32", "fp32"), torch.float32),
        (("bfloat16", "bf16"), torch.bfloat16),
        (("float16", "fp16"), torch.float16),
    ],
)
def test_dtype_by_name(names, expected):
    """Long and short names mean the same on every device, without a notice."""
    for name in names:
        for device in (CPU, CUDA):
            assert resolve_dtype(name, device, llama_config()) == (expected, None)


def test_unknown_dtype_is_refused():
    """An unknown format is refused by name."""
    with pytest.raises(UsageError, match="int4"):
        resolve_dtype("int4", CPU, llama_config())


def test_auto_on_a_gpu_is_the_checkpoints():
    """On a GPU `auto` keeps the checkpoint's format."""
    for stored in (torch.float16, torch.bfloat16):
        assert resolve_dtype("auto", CUDA, llama_config(dtype=stored)) == (stored, None)
    assert resolve_dtype("auto", CUDA, llama_config()) == (torch.float32, None)


def test_auto_on_a_cpu_without_bf16(emulated_bf16):
    """On a CPU that emulates bf16 `auto` is fp32, whatever the checkpoint has."""
    assert not cpu_has_native_bf16()
    config = llama_config(dtype=torch.bfloat16)
    assert resolve_dtype("auto", CPU, config, num_parameters=1000) == (torch.float32, None)


def test_auto_on_a_cpu_with_bf16(monkeypatch):
    """On a CPU with bf16 in hardware `auto` is bf16."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)

    assert resolve_dtype("auto", CPU, llama_config()) == (torch.bfloat16, None)


@pytest.mark.parametrize(
    ("free", "expected"), [(399, torch.bfloat16), (400, torch.float32), (199, torch.float32)]
)
def test_auto_goes_by_memory(emulated_bf16, monkeypatch, free, expected):
    """`auto` takes bf16, and says why, only where that makes the weights fit."""
    monkeypatch.setattr(placement, "free_memory", lambda device: free)

    dtype, notice = resolve_dtype("auto", CPU, llama_config(), num_parameters=100)

    assert dtype == expected
    assert (notice is not None) == (expected == torch.bfloat16)
