"""Tests against a real PostgreSQL: every transition, race, plan and refusal."""
