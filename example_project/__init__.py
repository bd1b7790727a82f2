"""A small shop whose tasks a newcomer copies, and the demo: ``python3 -m example_project``."""
