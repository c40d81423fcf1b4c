"""Measurement as a library: workloads, arms, load, statistics and proof."""
