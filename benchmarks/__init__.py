"""Each module is a command, python -m benchmarks.NAME, whose --help says what it measures, but for
harness, which all of them share. What they are made of is in parts: the work and how
Stable-Baselines3 does it (workloads, zoo), where the time of an iteration goes (limits), and faults
of files and signals (fault_files); environments has those that they train on.
"""
