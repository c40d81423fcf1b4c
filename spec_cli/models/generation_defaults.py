"""What a model's authors recommend for generation, from generation_config.json."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spec_cli.models.checkpoint import ModelFiles, read_json
from spec_cli.models.compat import as_id_set, config_end_ids

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

HONOURED = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")

# Fields that choose no tokens.
_BOOKKEEPING = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "cache_implementation",
        "decoder_start_token_id",
        "eos_token_id",
        "pad_token_id",
        "return_dict_in_generate",
        "transformers_version",
        "use_cache",
    }
)
# Values that switch a field off, where that is neither zero, false nor empty.
_NEUTRAL: dict[str, float] = {
    "encoder_repetition_penalty": 1,
    "length_penalty": 1,
    "max_length": 20,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "typical_p": 1,
}


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Recommended settings of one model.

    Attributes:
        honoured: Sampling fields that are set, by name.
        ignored: Names of other fields set to something that would change the text.
        end_token_ids: Ids that end an answer.
    """

    honoured: dict[str, Any]
    ignored: tuple[str, ...]
    end_token_ids: frozenset[int]


def read_generation_defaults(files: ModelFiles, config: "PreTrainedConfig") -> GenerationDefaults:
    """Read a folder's recommendations; a model without the file recommends nothing.

    End tokens are those of the config and of the file together: chat models often name the token
    that ends a turn only in the file.

    Raises:
        ModelUnavailableError: The file is there and is broken.
    """
    path = files.path / "generation_config.json"
    raw = read_json(path) if files.gguf_file is None and path.is_file() else {}
    return GenerationDefaults(
        honoured={name: raw[name] for name in HONOURED if raw.get(name) is not None},
        ignored=tuple(sorted(name for name, value in raw.items() if _changes_text(name, value))),
        end_token_ids=as_id_set(raw.get("eos_token_id")) | config_end_ids(config),
    )


def _changes_text(name: str, value: object) -> bool:
    if name in HONOURED or name in _BOOKKEEPING or name.startswith("output_"):
        return False
    return bool(value) and value != _NEUTRAL.get(name)
