"""Strategies that lie on purpose, and an honest one beside them. Each lie has a test in `test_planted_faults.py`."""
