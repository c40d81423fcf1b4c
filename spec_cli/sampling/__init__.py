"""Distributions and their verification: pure functions on tensors."""
