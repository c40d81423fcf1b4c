"""What is about to run, in three lines."""

from spec_cli.ui.header import header

MODEL = {
    "id": "org/model",
    "revision": "0123456789abcdef",
    "source": "hub",
    "sha256": None,
    "dtype": "bfloat16",
    "device": "cpu",
}
SETTINGS = {
    "num_draft_tokens": "auto",
    "verify": "coupled",
    "ctx_size": 8192,
    "temperature": 0.7,
    "top_k": 40,
    "top_p": 1.0,
    "min_p": 0.05,
    "seed": 7,
    "max_tokens": 512,
}


def test_draft_model_and_sampling() -> None:
    """Both models with their commits, and the sampling settings that do something."""
    text = header(MODEL, {"kind": "draft_model", **MODEL, "id": "org/small"}, SETTINGS)

    assert text.splitlines() == [
        "target  org/model (hub, 0123456789ab) · bfloat16 · cpu",
        "draft   org/small (hub, 0123456789ab) · k auto · verify coupled",
        "run     ctx 8,192 · temp 0.7 · top-k 40 · min-p 0.05 · seed 7 · up to 512 tokens",
    ]


def test_greedy_without_speculation() -> None:
    """Greedy has no seed and no other sampling settings; --plain is ASCII."""
    settings = SETTINGS | {"temperature": 0.0}
    packaged = MODEL | {"source": "pypi", "revision": None, "sha256": "b179c9523d0e6a0f98a3"}

    text = header(packaged, None, settings, is_plain=True)

    assert text.splitlines() == [
        "target  org/model (pypi, sha256 b179c9523d0e) | bfloat16 | cpu",
        "draft   none: speculation is off",
        "run     ctx 8,192 | temp 0 | up to 512 tokens",
    ]


def test_seeds_of_their_own() -> None:
    """Several prompts without a seed each draw one."""
    text = header(MODEL, None, SETTINGS | {"seed": None})

    assert "seed drawn for each" in text
