"""What is shown: made of core's nouns alone, printed by whoever asks for it."""
