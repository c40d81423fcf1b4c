import gguf
import pytest

from spec_cli.core.errors import ModelUnavailableError
from spec_cli.models.gguf_header import read_gguf_header
from tests.models.model_folders import write_gguf


@pytest.fixture
def path(tmp_path):
    return write_gguf(tmp_path / "tiny.gguf")


def test_header_is_read(path):
    """Settings and size agree with the gguf package's own reader."""
    header = read_gguf_header(path)
    reader = gguf.GGUFReader(path)

    assert header.settings["general.architecture"] == "llama"
    assert header.settings["tokenizer.ggml.eos_token_id"] == 2
    assert header.settings["llama.rope.freq_base"] == 10000.0
    assert "tokenizer.ggml.tokens" not in header.settings
    assert header.num_parameters == sum(int(tensor.n_elements) for tensor in reader.tensors)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.9])
def test_cut_file_is_named(path, share):
    """A file cut anywhere before its last tensor is an error with its name."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])

    with pytest.raises(ModelUnavailableError, match=r"tiny\.gguf"):
        read_gguf_header(path)


def test_other_files_are_refused(path):
    """Foreign bytes, a foreign version and a missing file are errors."""
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(ModelUnavailableError, match="version"):
        read_gguf_header(path)
    path.write_bytes(b"PK" * 100)
    with pytest.raises(ModelUnavailableError, match="begin with GGUF"):
        read_gguf_header(path)
    with pytest.raises(ModelUnavailableError, match="missing"):
        read_gguf_header(path.with_name("nope.gguf"))


def test_damaged_length_asks_for_no_memory(path):
    """A length that no real file has is an error before anything is read."""
    content = bytearray(path.read_bytes())
    content[24:32] = b"\xff" * 7 + b"\x00"
    path.write_bytes(content)

    with pytest.raises(ModelUnavailableError, match="not plausible"):
        read_gguf_header(path)
