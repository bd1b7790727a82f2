"""The shop's tasks, written to be copied.

Three habits make them good ones. They take ids, not objects, and read what they need when they
run. They can be run twice without harm, since a job whose worker died is run again: files are
replaced whole, payments carry a key, rows are set and not counted up. And they return something
small that JSON can hold.
"""

from __future__ import annotations

import csv
import io
import time
from datetime import date, timedelta

from django.db.models.functions import Now
from django.template.loader import render_to_string

from django_relay import Backoff, Fail, RelayContext, task

from . import documents, gateway, pictures
from .models import Order, Product


@task()
def render_receipt(order_id: int) -> str:
    """The plain kind: read, make a file, return its name."""
    order = Order.objects.get(pk=order_id)
    lines = order.lines.select_related("product").order_by("pk")
    html = render_to_string("shop/receipt.html", {"order": order, "lines": lines})
    return documents.write(f"receipts/{order.number}.html", html)


@task(priority=-10)
def make_thumbnail(product_id: int) -> str:
    """Work that can wait: whatever has a higher priority goes first."""
    product = Product.objects.get(pk=product_id)
    picture = pictures.photo(product)
    picture.thumbnail((160, 160))
    return documents.write(f"thumbnails/{product.pk}.jpg", pictures.encoded(picture, "JPEG"))


@task(takes_context=True, max_attempts=5, backoff=Backoff(base=timedelta(seconds=1)))
def charge_card(context: RelayContext, order_id: int) -> str:
    """The kind that may fail: an exception is enough to be tried again, later and later.

    The job's id is the same at every attempt, and therefore the key that keeps us from charging
    twice. Fail ends the job at once, where trying again would be no use.
    """
    order = Order.objects.get(pk=order_id)
    if not order.total():
        raise Fail("the order is empty")
    reference = gateway.charge(order.total(), key=context.task_result.id)
    Order.objects.filter(pk=order_id).update(paid_at=Now())
    return reference


@task(queue_name="mail")
def send_reminder(order_id: int) -> str:
    """Enqueue it with ``send_reminder.using(run_after=timedelta(days=3)).enqueue(order.pk)``."""
    order = Order.objects.get(pk=order_id)
    text = f"To: {order.email}\nSubject: How do you like it?\n\nDear {order.customer}, ...\n"
    return documents.write(f"mails/{order.number}.eml", text)


@task()
def daily_report(day: str) -> list[str]:
    """A time goes in as text: arguments are JSON."""
    orders = Order.objects.filter(placed_at__date=date.fromisoformat(day)).order_by("pk")
    rows = [(order.number, order.customer, order.total()) for order in orders]
    table = io.StringIO()
    csv.writer(table).writerows([("order", "customer", "total"), *rows])
    html = render_to_string("shop/report.html", {"day": day, "rows": rows})
    return [
        documents.write(f"reports/{day}.csv", table.getvalue()),
        documents.write(f"reports/{day}.html", html),
    ]


@task(takes_context=True)
def print_catalogue(context: RelayContext) -> str:
    """A long one, which asks after every page whether it should go on.

    ``checkpoint()`` raises when the job was cancelled or its lease was lost to another worker, so
    that no time is spent on what nobody will accept.
    """
    pages = []
    for number in range(1, 13):
        product = Product.objects.order_by("pk")[(number - 1) % Product.objects.count()]
        pages.append(pictures.page(product, number))
        documents.write(f"catalogue/page-{number:02d}.png", pictures.encoded(pages[-1], "PNG"))
        time.sleep(0.2)  # the printer is slow
        context.checkpoint()
    return documents.write("catalogue/catalogue.pdf", pictures.encoded(pages[0], "PDF", *pages[1:]))
