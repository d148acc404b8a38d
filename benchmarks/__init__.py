"""Benchmarks: each module but harness is a command, python -m benchmarks.NAME [--quick], whose
--help says what it measures. parts has what they share: callbacks, and Stable-Baselines3."""
