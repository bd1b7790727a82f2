"""A small shop: orders come in, and everything that takes time is a task."""
