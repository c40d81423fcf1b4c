import pytest
import torch

from spec_cli.core.errors import InsufficientMemoryError
from spec_cli.models import memory

CPU = torch.device("cpu")


def container(folder, *, limit, used, cached):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 7\n")
    return folder


def test_free_memory_is_plausible():
    """This machine has some memory free, and less than a petabyte."""
    free = memory.free_memory(CPU)

    assert free is not None
    assert 10**7 < free < 10**15


def test_container_limit_counts(tmp_path):
    """A container's limit leaves what is neither used nor cache; no limit is unknown."""
    limited = container(tmp_path, limit=1000, used=700, cached=100)
    assert memory._left_in_container(limited) == 400

    unlimited = container(tmp_path, limit="max", used=700, cached=100)
    assert memory._left_in_container(unlimited) is None
    assert memory._left_in_container(tmp_path / "no cgroups") is None


def test_smaller_amount_wins(monkeypatch):
    """Free is what both the machine and the container leave; unknown to both is unknown."""
    monkeypatch.setattr(memory, "_available_by_meminfo", lambda: 500)
    monkeypatch.setattr(memory, "_left_in_container", lambda: 300)
    assert memory.free_memory(CPU) == 300

    monkeypatch.setattr(memory, "_available_by_meminfo", lambda: None)
    monkeypatch.setattr(memory, "_left_in_container", lambda: None)
    assert memory.free_memory(CPU) is None


def test_refusal_has_the_numbers(monkeypatch):
    """Too little memory is an error with both amounts and the hint; enough is silent."""
    monkeypatch.setattr(memory, "free_memory", lambda device: 8_100_000_000)

    memory.require_memory("the weights", 8_100_000_000, CPU, hint="x")
    with pytest.raises(InsufficientMemoryError, match=r"need 9\.8 GB, free 8\.1 GB") as caught:
        memory.require_memory("the weights", 9_800_000_000, CPU, hint="-m smaller")
    assert caught.value.hint == "-m smaller"
    assert caught.value.exit_code == 5


def test_unknown_memory_refuses_nothing(monkeypatch):
    """Where the system does not tell, nothing is refused beforehand."""
    monkeypatch.setattr(memory, "free_memory", lambda device: None)

    memory.require_memory("the weights", 10**18, CPU, hint="x")
