import pytest

from spec_cli.core.errors import ModelUnavailableError
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.generation_defaults import read_generation_defaults
from tests.models.model_folders import edit_json, llama_config


def read(folder, config=None, **fields):
    if fields:
        edit_json(folder / "generation_config.json", **fields)
    return read_generation_defaults(ModelFiles("m", folder), config or llama_config())


@pytest.mark.parametrize(
    ("in_config", "in_file", "expected"),
    [
        (2, None, {2}),
        (2, 5, {2, 5}),
        (2, [2, 5], {2, 5}),
        ([2, 3], [5], {2, 3, 5}),
        (None, [5], {5}),
        (None, None, set()),
    ],
)
def test_t06_end_tokens_are_the_union(tmp_path, in_config, in_file, expected):
    """End tokens of the config and of the file count together, each one or several."""
    found = read(tmp_path, llama_config(eos_token_id=in_config), eos_token_id=in_file)

    assert found.end_token_ids == expected


def test_honoured_fields_are_kept(tmp_path):
    """Recommended sampling is returned as it stands; unset fields are not invented."""
    found = read(tmp_path, do_sample=True, temperature=0.6, top_k=20, top_p=0.95, min_p=None)

    assert found.honoured == {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert found.ignored == ()


def test_other_fields_are_named(tmp_path):
    """Fields that would change the text and are not honoured are named; neutral ones are not."""
    found = read(
        tmp_path,
        no_repeat_ngram_size=3,
        typical_p=0.9,
        num_beams=1,
        length_penalty=1.0,
        max_length=20,
        suppress_tokens=None,
        output_scores=True,
        pad_token_id=7,
        transformers_version="5.24.0",
    )

    assert found.ignored == ("no_repeat_ngram_size", "typical_p")


def test_no_file_recommends_nothing(tmp_path):
    """A folder without the file has the config's end token and no recommendation."""
    found = read(tmp_path)

    assert (found.honoured, found.ignored, found.end_token_ids) == ({}, (), {2})


def test_broken_file_is_named(tmp_path):
    """A file that is no JSON is an error with its path, not a model that runs on."""
    (tmp_path / "generation_config.json").write_text("{")

    with pytest.raises(ModelUnavailableError, match=r"generation_config\.json"):
        read(tmp_path)
