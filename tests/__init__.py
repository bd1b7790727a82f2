"""The tests: ``python3 -m tests [arguments of pytest]``, or plain ``pytest``."""
