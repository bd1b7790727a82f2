"""Settle and claim in one statement: what a busy child does all the time.

Its parts are those of ``settle`` and of ``claim``. What one of them cannot bear, or waits for, is
the other's fault too: after an error the two belong apart until a claim has gone well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from django_relay.outcomes import Ending

from .claim import CLAIMED, Claim, Request
from .endings import Settled, accepted, presented
from .settle import SETTLED, SETTLING

if TYPE_CHECKING:
    from django_relay.connection import Bookkeeping

# Locks: what both lock, whichever runs first. Neither waits for a row that is locked. The lease's
# insert alone waits where somebody's own SQL has inserted one for that job and not committed: until
# the time-out, and then the two go apart. Both see the tables as they were before it, so what an
# ending gives back is claimed by a later turn. The two answers stand in one table, one below the
# other.
TURN = """
WITH RECURSIVE {settling}, {claiming}
SELECT * FROM ({settled}) AS s FULL JOIN ({claimed}) AS c ON false
"""


@cache
def _statement(claiming: str) -> tuple[str, list[str]]:
    return _numbered(
        TURN.format(settling=SETTLING, claiming=claiming, settled=SETTLED, claimed=CLAIMED)
    )


def _numbered(statement: str) -> tuple[str, list[str]]:
    """Write $1, $2 for the named values of ``statement``; return their names in that order, too.

    psycopg looks for names in a long statement each time it is sent, in a numbered one never.
    """
    names: list[str] = []

    def number(named: re.Match[str]) -> str:
        if named[1] not in names:
            names.append(named[1])
        return f"${names.index(named[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", number, statement), names


def turn(
    connection: Bookkeeping, endings: Sequence[Ending], limit: int, **claiming: Any
) -> tuple[dict[str, Settled], Claim]:
    """Present ``endings`` and take up to ``limit`` jobs; see ``settle`` and ``claim``.

    What was not accepted is not in the answer: ask ``others`` about it, after what was claimed has
    been taken in hand. Raises psycopg.Error and UnicodeError, and has done neither then.
    """
    request = Request(limit=limit, **claiming)
    ctes, values = request.asked()
    statement, names = _statement(ctes)
    values |= presented(endings)
    with connection.cursor(numbered=True) as cursor:
        cursor.execute(statement, [values[name] for name in names])
        rows = cursor.fetchall()
    settled = accepted(row[:4] for row in rows if row[0] is not None)
    return settled, request.read([row[4:] for row in rows if row[4] is not None])
