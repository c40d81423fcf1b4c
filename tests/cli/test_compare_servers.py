"""What `compare --endpoint` writes down of its command line."""

import pytest

from spec_cli.cli.compare_servers import without_key


@pytest.mark.parametrize(
    "words",
    [
        ["--endpoint", "http://a", "--api-key", "secret", "--rate", "1"],
        ["--endpoint", "http://a", "--api-key=secret", "--rate", "1"],
        ["--api-key", "--api-key", "--endpoint", "http://a", "--rate", "1"],
    ],
)
def test_key_is_not_written(words):
    """A report tells its command without the key, in either way of giving it."""
    assert without_key(words) == ["--endpoint", "http://a", "--rate", "1"]
