"""Stands for a card company's service, which is busy at the first call for each payment.

It remembers the keys of the payments it has taken: the same key charges only once, so a job that
is run a second time does no harm. Real services offer the same ("idempotency key").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import documents

if TYPE_CHECKING:
    from decimal import Decimal


class GatewayBusy(Exception):
    """Try again later."""


def charge(amount: Decimal, *, key: str) -> str:
    """Charge once for each key and return the payment's reference; raises GatewayBusy."""
    calls = documents.place(f"payments/{key}.txt")
    if not calls.exists():
        documents.write(f"payments/{key}.txt", f"{amount} refused: busy\n")
        raise GatewayBusy(f"payment {key}: please try again")
    documents.write(f"payments/{key}.txt", f"{amount} paid\n")
    return f"PAY-{key}"
