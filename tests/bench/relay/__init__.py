"""The driver of this project in the shape that a comparison with other queues asks for.

The folder is put beside the other queues' and found by its name; it may be a symbolic link.
"""
