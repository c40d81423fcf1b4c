import subprocess
import sys

import httpx2
import pytest
from huggingface_hub import errors

from spec_cli.core.errors import ModelUnavailableError, UsageError
from spec_cli.core.progress import Stage
from spec_cli.models.hub import find_model, split_revision
from tests.models.model_folders import ignore, save_model, write_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Recorder:
    """A download that hands out a prepared folder and remembers what was asked."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []

    def __call__(self, repo, revision, cache_dir, report):
        self.asked.append((repo, revision))
        return self.folder


def failing(error):
    def download(repo, revision, cache_dir, report):
        raise error

    return download


def answer(status):
    return httpx2.Response(status, request=httpx2.Request("GET", "https://huggingface.co"))


@pytest.fixture
def online(monkeypatch):
    """The hub is open, for downloads that never reach it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")


@pytest.fixture
def snapshot(tmp_path):
    return save_model(tmp_path / "snapshots" / COMMIT)


def cached(tmp_path, snapshot):
    """The snapshot in a cache folder with the hub's own layout."""
    repo = tmp_path / "cache" / "models--some--model"
    (repo / "snapshots").mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    snapshot.rename(repo / "snapshots" / COMMIT)
    return tmp_path / "cache"


def test_local_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    """A folder is found by its path, and a relative one like a hub name wins over the hub."""
    folder = save_model(tmp_path / "some" / "model")
    monkeypatch.chdir(tmp_path)

    by_path = find_model(str(folder), report=ignore)
    by_name = find_model("some/model", report=ignore)

    assert (by_path.path, by_path.source, by_path.revision) == (folder, "local", None)
    assert (by_name.path, by_name.name) == (folder, "some/model")


def test_gguf_file_is_taken_as_it_is(tmp_path):
    """A .gguf file becomes its folder and its name."""
    found = find_model(str(write_gguf(tmp_path / "tiny.gguf")), report=ignore)

    assert (found.path, found.gguf_file, found.source) == (tmp_path, "tiny.gguf", "gguf")


@pytest.mark.parametrize("name", ["./nope", "/nope/model", "~/nope", "nope.gguf", "a/b/c"])
def test_d05_missing_path_is_named(name):
    """A path that does not exist is an error with that path, not a question to the hub."""
    with pytest.raises(ModelUnavailableError, match=f"{name} does not exist"):
        find_model(name, report=ignore)


def test_other_files_are_refused(tmp_path):
    """A file that is no GGUF file is refused."""
    (tmp_path / "weights.bin").write_bytes(b"x")

    with pytest.raises(UsageError, match="unknown kind"):
        find_model(str(tmp_path / "weights.bin"), report=ignore)


def test_local_folder_has_no_revision(tmp_path):
    """A revision of a local folder is a contradiction."""
    with pytest.raises(UsageError, match="no revision"):
        find_model(str(save_model(tmp_path / "m")), revision="main", report=ignore)


@pytest.mark.parametrize(
    ("name", "revision", "expected"),
    [
        ("org/name", None, ("org/name", None)),
        ("org/name", "v1", ("org/name", "v1")),
        ("org/name@v1", None, ("org/name", "v1")),
        ("org/name@v1", "v1", ("org/name", "v1")),
        ("gpt2@refs/pr/1", None, ("gpt2", "refs/pr/1")),
    ],
)
def test_revision_in_the_name(name, revision, expected):
    """A revision comes from the name or from the option, or from both if they agree."""
    assert split_revision(name, revision) == expected


@pytest.mark.parametrize("name", ["", "org/", "a b", "org/name@", "-x", "org/na*me"])
def test_malformed_names_are_refused(name):
    """What can be no name is refused before the hub is asked."""
    with pytest.raises(UsageError, match="not the name"):
        split_revision(name, None)


def test_contradictory_revisions_are_refused():
    """Two different revisions are an error that names both."""
    with pytest.raises(UsageError, match=r"v1.*v2"):
        find_model("org/name@v1", revision="v2", report=ignore)


def test_o04_revisions_stay_apart(online, snapshot):
    """Each of two models is fetched at its own revision, and one without is fetched at none."""
    download = Recorder(snapshot)

    find_model("org/target", revision="A", report=ignore, download=download)
    find_model("org/draft", revision="B", report=ignore, download=download)
    find_model("org/draft", report=ignore, download=download)

    assert download.asked == [("org/target", "A"), ("org/draft", "B"), ("org/draft", None)]


def test_download_is_reported_and_pinned(online, snapshot):
    """A download is announced, and the commit that came is in the result."""
    stages: list[Stage] = []

    found = find_model("org/name", report=stages.append, download=Recorder(snapshot))

    assert (found.source, found.revision, found.path) == ("hub", COMMIT, snapshot)
    assert [(stage.stage, stage.what) for stage in stages] == [("download", "org/name")]


def test_o02_incomplete_download_is_refused(online, snapshot):
    """A snapshot without its weights is refused."""
    (snapshot / "model.safetensors").unlink()

    with pytest.raises(ModelUnavailableError, match="org/name is incomplete"):
        find_model("org/name", report=ignore, download=Recorder(snapshot))


@pytest.mark.parametrize("by_environment", [True, False])
def test_offline_uses_the_cache(tmp_path, snapshot, monkeypatch, by_environment):
    """Offline, a cached model is found and nothing is downloaded."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if by_environment else "0")
    cache = cached(tmp_path, snapshot)
    download = Recorder(snapshot)

    found = find_model(
        "some/model", offline=not by_environment, cache_dir=cache, report=ignore, download=download
    )

    assert (found.revision, found.source, download.asked) == (COMMIT, "hub", [])


def test_offline_and_not_cached(tmp_path):
    """Offline, a model that is not cached is an error that names it and the way out."""
    with pytest.raises(ModelUnavailableError, match=r"some/model is not in the cache") as caught:
        find_model("some/model", offline=True, cache_dir=tmp_path, report=ignore)

    assert "--offline" in str(caught.value.hint)


def test_offline_and_half_cached(tmp_path, snapshot):
    """Offline, a stopped download is called incomplete."""
    (snapshot / "model.safetensors").unlink()

    with pytest.raises(ModelUnavailableError, match="incomplete"):
        find_model("some/model", offline=True, cache_dir=cached(tmp_path, snapshot), report=ignore)


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (errors.GatedRepoError("x", response=answer(403)), "org/name is gated", "hf auth login"),
        (errors.RepositoryNotFoundError("x", response=answer(404)), "not on the hub", "Check"),
        (errors.RevisionNotFoundError("x", response=answer(404)), "no revision v1", "Branches"),
        (errors.HfHubHTTPError("x", response=answer(401)), "refuses access", "hf auth login"),
        (errors.HfHubHTTPError("x", response=answer(500)), "HTTP 500", "later"),
        (httpx2.ConnectError("Name or service not known"), "not known", "network"),
        (OSError(28, "No space left on device"), "No space left", "folder"),
    ],
)
def test_failed_downloads_have_one_message(online, error, message, hint):
    """Each way to fail is one error of exit code 3 with the model's name, a reason and a hint."""
    with pytest.raises(ModelUnavailableError, match=message) as caught:
        find_model("org/name", revision="v1", report=ignore, download=failing(error))

    assert "org/name" in str(caught.value)
    assert hint in str(caught.value.hint)


def test_cached_copy_without_connection(online, tmp_path, snapshot):
    """Without a connection a cached model is used and that is said; a refusal is still an error."""
    cache = cached(tmp_path, snapshot)
    stages: list[Stage] = []

    found = find_model(
        "some/model",
        cache_dir=cache,
        report=stages.append,
        download=failing(httpx2.ConnectError("no route")),
    )

    assert found.revision == COMMIT
    assert "cached copy" in stages[-1].what
    gated = failing(errors.GatedRepoError("x", response=answer(403)))
    with pytest.raises(ModelUnavailableError, match="gated"):
        find_model("some/model", cache_dir=cache, report=ignore, download=gated)


def test_real_download_without_network(monkeypatch, tmp_path):
    """The hub's own client, kept from the network, ends in our error as well."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    with pytest.raises(ModelUnavailableError, match="org/name"):
        find_model("org/name", cache_dir=tmp_path / "cache", report=ignore)


def test_module_is_light():
    """Finding a model loads neither torch nor transformers nor the hub's library."""
    code = (
        "import sys, spec_cli.models.hub;"
        "print({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
