"""Settle and claim in one round trip and one transaction: what a busy child does all the time.

Both statements are those of ``settle`` and ``claim``, in that order, which is the lock order. What
one of them cannot bear undoes both, and then they are sent one after the other as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg import Error

from django_relay.outcomes import Ending

from .claim import Claim, Request, claim
from .settle import Settled, accepted, is_about_data, present, settle

if TYPE_CHECKING:
    from django_relay.connection import Bookkeeping


def turn(
    connection: Bookkeeping, endings: Sequence[Ending], limit: int, **claiming: Any
) -> tuple[dict[str, Settled], Claim]:
    """Present ``endings`` and take up to ``limit`` jobs; see ``settle`` and ``claim``.

    Where both went together, what was not accepted is not in the answer: ask ``others`` about it,
    after what was claimed has been taken in hand.
    """
    if connection.pipelines:
        try:
            request = Request(limit=limit, **claiming)
            with connection.together(lambda cursor: present(cursor, endings), request.send) as (
                first,
                second,
            ):
                return accepted(first), request.read(second)
        except (Error, UnicodeError) as error:
            if not is_about_data(error):
                raise
    return settle(connection, endings), claim(connection, limit, **claiming)
