import json

import pytest
import sentencepiece

from spec_cli.core.errors import ModelUnavailableError, UntrustedCodeError
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.compat import check_pair, tokenizer_view
from spec_cli.models.model_config import read_config
from spec_cli.models.tokenizer_files import load_tokenizer
from tests.models.model_folders import edit_json, llama_config, save_tokenizer, write_gguf

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "a draft model guesses tokens and the target checks them",
]


def files(folder):
    return ModelFiles(name="some/model", path=folder)


@pytest.fixture
def model_only(tmp_path):
    """A folder with tokenizer.model and no tokenizer.json, as older Llamas have."""
    pytest.importorskip("google.protobuf", reason="tokenizer.model is read with protobuf")
    folder = tmp_path / "sentencepiece"
    llama_config(vocab_size=320, pad_token_id=None).save_pretrained(folder)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    fields = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(fields | {"tokenizer_class": "LlamaTokenizer"})
    )
    return folder


def test_d03_tokenizer_model_alone_fits_its_conversion(model_only, tmp_path):
    """A folder with only tokenizer.model fits one with the tokenizer.json made of it."""
    tokenizer = load_tokenizer(files(model_only))
    other = tmp_path / "converted"
    llama_config(vocab_size=300, bos_token_id=0, pad_token_id=1).save_pretrained(other)
    tokenizer.save_pretrained(other)
    assert not (other / "tokenizer.model").exists()
    converted = load_tokenizer(files(other))

    report = check_pair(
        tokenizer_view("target", converted, read_config(files(other))),
        tokenizer_view("draft", tokenizer, read_config(files(model_only))),
    )

    assert report.tokenizer_ids == 300
    assert report.never_propose == tuple(range(300, 320))
    assert converted.encode("the fox é") == tokenizer.encode("the fox é")


def test_gguf_tokenizer_splits_as_in_training(tmp_path):
    """Spaces before a number stay one token, because digits are set apart before all else."""
    write_gguf(tmp_path / "tiny.gguf")
    tokenizer = load_tokenizer(ModelFiles("tiny", tmp_path, gguf_file="tiny.gguf"))

    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.decode(tokenizer.encode("a  12 b")) == "a  12 b"


def test_gguf_tokenizer_keeps_special_tokens_and_template(tmp_path):
    """Control tokens stay whole, the end token is known, and the chat template works."""
    write_gguf(tmp_path / "tiny.gguf")
    tokenizer = load_tokenizer(ModelFiles("tiny", tmp_path, gguf_file="tiny.gguf"))

    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)

    assert rendered == "<|im_start|>hi"
    assert tokenizer.encode(rendered)[0] == 1
    assert tokenizer.eos_token_id == 2


def test_template_of_the_processor_is_read(tmp_path):
    """The chat template of an older multimodal folder is found; the tokenizer's own goes first."""
    save_tokenizer(tmp_path)
    edit_json(tmp_path / "chat_template.json", chat_template="of the processor")
    assert load_tokenizer(files(tmp_path)).chat_template == "of the processor"

    (tmp_path / "chat_template.jinja").write_text("of the tokenizer")
    assert load_tokenizer(files(tmp_path)).chat_template == "of the tokenizer"

    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text("{")
    with pytest.raises(ModelUnavailableError, match=r"chat_template\.json"):
        load_tokenizer(files(tmp_path))


def test_o01_tokenizer_code_is_not_run(tmp_path):
    """Code that a tokenizer brings does not run without permission."""
    save_tokenizer(tmp_path)
    marker = tmp_path / "marker"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Tokenizer: pass\n")
    edit_json(
        tmp_path / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.Tokenizer", None]},
        tokenizer_class="Tokenizer",
    )

    with pytest.raises(UntrustedCodeError):
        load_tokenizer(files(tmp_path))
    assert not marker.exists()


@pytest.mark.parametrize("text", [None, "{"], ids=["missing", "broken"])
def test_d05_bad_tokenizer_names_the_folder(tmp_path, text):
    """A tokenizer that is missing or broken is an error with the folder."""
    llama_config().save_pretrained(tmp_path)
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)

    with pytest.raises(ModelUnavailableError, match=str(tmp_path)):
        load_tokenizer(files(tmp_path))
