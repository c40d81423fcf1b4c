"""The only home of transformers, accelerate and huggingface_hub."""
