"""Measurements of this project: ``python -m tests.bench NAME``, and a driver beside other queues.

Nothing here is a test, and nothing asserts speed: each command prints what it found as JSON.
``docs/explanation/performance.md`` says what is measured and how it is repeated.
"""
