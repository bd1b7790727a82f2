"""What happened to a job, or in an experiment, as one JSON document that outlives the database.

A recording names its format and version, the software and the machine in general words; times are
milliseconds since the first job was enqueued; leases have letters in place of tokens, and workers
numbers in place of host names. Arguments and results are left out.
"""

from .document import (
    FORMAT,
    LABEL,
    VERSION,
    Mark,
    Moment,
    NotARecording,
    RecordedJob,
    Recording,
    Sight,
    dump,
    load,
)
from .history import COUNTED, Glimpse, letter, letter_of, look, machine, record, software, summary

__all__ = [
    "COUNTED",
    "FORMAT",
    "LABEL",
    "VERSION",
    "Glimpse",
    "Mark",
    "Moment",
    "NotARecording",
    "RecordedJob",
    "Recording",
    "Sight",
    "dump",
    "letter",
    "letter_of",
    "load",
    "look",
    "machine",
    "record",
    "software",
    "summary",
]
