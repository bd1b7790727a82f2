"""The shop's one page: place an order, and look at what the tasks have made."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST
from django.views.static import serve

from . import documents, tasks
from .models import Order, Product

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse, HttpResponseBase


def front(request: HttpRequest) -> HttpResponse:
    orders = Order.objects.order_by("-pk")[:10]
    return render(request, "shop/front.html", {"orders": orders, "results": documents.listing()})


@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """Order and jobs are one transaction: there is never the one without the others."""
    with transaction.atomic():
        order = Order.objects.create(customer="You", email="you@example.com")
        for product in Product.objects.order_by("?")[:2]:
            order.lines.create(product=product)
        tasks.charge_card.enqueue(order.pk)
        tasks.render_receipt.enqueue(order.pk)
        tasks.send_reminder.using(run_after=timedelta(seconds=10)).enqueue(order.pk)
    messages.success(request, f"Order {order.number} is placed; its receipt is being made.")
    return redirect("shop:front")


def result(request: HttpRequest, path: str) -> HttpResponseBase:
    return serve(request, path, document_root=settings.RESULTS)
