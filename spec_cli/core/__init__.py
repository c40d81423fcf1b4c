"""The nouns of speculative decoding. Standard library only."""
