"""Fixtures that every test may use; the server itself comes from tests/plugin.py."""
