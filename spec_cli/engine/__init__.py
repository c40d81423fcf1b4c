"""The loop: schedule, propose, forward, verify, commit."""
