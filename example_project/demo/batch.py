"""What the demo enqueues, and what it expects of each job."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction

from example_project.shop import documents, tasks
from example_project.shop.models import Order, Product

PRODUCTS = [
    ("Teapot", "24.90", "#2f6f6f"),
    ("Lantern", "39.00", "#8a5a1f"),
    ("Blanket", "59.50", "#7a3e55"),
    ("Clock", "74.00", "#3d4f7c"),
    ("Bread tin", "18.20", "#5c6b2f"),
    ("Stool", "89.00", "#6b3f2a"),
]
CUSTOMERS = ["Ada", "Grace", "Edsger", "Barbara", "Tony", "Leslie", "Niklaus", "Frances"]
AHEAD = timedelta(seconds=6)


@dataclass
class Batch:
    """The jobs of one run by id, and which of them play a part."""

    names: dict[int, str] = field(default_factory=dict)
    files: dict[int, list[str]] = field(default_factory=dict)
    long: int = 0  # the one whose worker is killed
    flaky: int = 0  # fails first and is retried
    later: int = 0  # must not start before its time

    def add(self, result: object, name: str, *files: str) -> int:
        job = int(result.id)  # type: ignore[attr-defined]
        self.names[job] = name
        self.files[job] = list(files)
        return job

    def under_way(self) -> bool:
        """Whether the long job has a third of its pages."""
        return documents.place("catalogue/page-04.png").exists()


def enqueue() -> Batch:
    """Seed the shop, forget the results of the last run, and enqueue all in one transaction."""
    for directory in settings.RESULTS.iterdir():
        if directory.is_dir():
            shutil.rmtree(directory)
    batch = Batch()
    with transaction.atomic():
        products = _products()
        orders = [_order(number, products) for number in range(len(CUSTOMERS))]
        _enqueue(batch, products, orders)
    return batch


def _enqueue(batch: Batch, products: list[Product], orders: list[Order]) -> None:
    batch.long = batch.add(tasks.print_catalogue.enqueue(), "catalogue", "catalogue/catalogue.pdf")
    batch.flaky = batch.add(tasks.charge_card.enqueue(orders[0].pk), f"payment {orders[0].pk}")
    later = tasks.send_reminder.using(run_after=AHEAD).enqueue(orders[0].pk)
    batch.later = batch.add(later, f"reminder {orders[0].pk}", f"mails/{orders[0].number}.eml")
    for order in orders:
        name = f"receipts/{order.number}.html"
        batch.add(tasks.render_receipt.enqueue(order.pk), f"receipt {order.pk}", name)
    for product in products:
        name = f"thumbnails/{product.pk}.jpg"
        batch.add(tasks.make_thumbnail.enqueue(product.pk), f"thumbnail {product.pk}", name)
    with connection.cursor() as cursor:
        cursor.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
        day = cursor.fetchone()[0].isoformat()
    batch.add(
        tasks.daily_report.enqueue(day), "report", f"reports/{day}.csv", f"reports/{day}.html"
    )


def _products() -> list[Product]:
    return [
        Product.objects.get_or_create(name=name, defaults={"price": price, "colour": colour})[0]
        for name, price, colour in PRODUCTS
    ]


def _order(number: int, products: list[Product]) -> Order:
    customer = CUSTOMERS[number]
    order = Order.objects.create(customer=customer, email=f"{customer.lower()}@example.com")
    for step in range(1 + number % 3):
        order.lines.create(product=products[(number + step) % len(products)], quantity=1 + step)
    return order
