"""Ways to guess the next tokens."""
