"""How many tokens to draft. Knows neither torch nor models."""
