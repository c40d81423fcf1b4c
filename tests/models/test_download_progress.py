from concurrent.futures import ThreadPoolExecutor

from huggingface_hub.utils.tqdm import _create_progress_bar, hf_thread_map

from spec_cli.core.progress import Stage
from spec_cli.models.download_progress import progress_class


def test_bytes_are_reported(capsys):
    """The library's bar of written bytes becomes reports, and nothing is drawn."""
    stages: list[Stage] = []
    bars = progress_class("org/name", stages.append)

    bar = _create_progress_bar(
        cls=bars, log_level=0, name="x", desc="Reconstructing", total=0, unit="B", unit_scale=True
    )
    bar.total = (bar.total or 0) + 100
    bar.refresh()
    bar.update(40)
    bar.update(60)
    bar.set_description("Reconstruction complete")
    bar.close()

    assert stages == [
        Stage("download", "org/name", 40, 100),
        Stage("download", "org/name", 100, 100),
    ]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_other_bars_are_not_reported():
    """Counts of files and of bytes on the wire would make the figures jump; they are not told."""
    stages: list[Stage] = []
    bars = progress_class("org/name", stages.append)

    wire = _create_progress_bar(cls=bars, log_level=0, desc="Downloading bytes", total=9, unit="B")
    wire.update(9)
    doubled = hf_thread_map(lambda n: 2 * n, [1, 2, 3], desc="Fetching 3 files", tqdm_class=bars)

    assert doubled == [2, 4, 6]
    assert list(bars([1, 2])) == [1, 2]
    assert stages == []


def test_threads_lose_no_bytes():
    """Bytes counted by several threads at once all count."""
    stages: list[Stage] = []
    bar = progress_class("org/name", stages.append)(unit="B", total=4000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bar.update(1), range(4000)))

    assert max(stage.done or 0 for stage in stages) == 4000
