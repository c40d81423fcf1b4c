"""Tests, in the folders of the package they test; shared fakes are in `tests.fakes`."""
