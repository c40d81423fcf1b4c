"""Layers that attend to the keys and values of an earlier layer (Gemma 3n, Gemma 4)."""

from transformers import PreTrainedModel


def redirect_shared_layers(model: PreTrainedModel) -> None:
    """Let each layer that stores no keys of its own find those it reads: by the index it bears.

    Such a layer reads what the last storing layer of its type stored. Its index serves nothing
    else, in transformers' own caches either.
    """
    config = model.config.get_text_config(decoder=True)
    modes = getattr(config, "kv_sharing_modes", None) or ()
    sources = {config.layer_types[i]: i for i, mode in enumerate(modes) if mode == "store"}
    for module in model.modules():
        if getattr(module, "is_kv_shared_layer", False):
            module.layer_idx = sources[config.layer_types[module.layer_idx]]
