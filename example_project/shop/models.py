"""What the shop sells and who ordered it. Nothing here knows of tasks."""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.db.models import F, Sum
from django.db.models.functions import Now


class Product(models.Model):
    name = models.CharField(max_length=80, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    colour = models.CharField(max_length=7, default="#336699", help_text="of its picture")

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    customer = models.CharField(max_length=80)
    email = models.EmailField()
    placed_at = models.DateTimeField(db_default=Now())
    paid_at = models.DateTimeField(null=True, blank=True)
    products = models.ManyToManyField(Product, through="OrderLine")

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"

    @property
    def number(self) -> str:
        return f"{self.pk:05d}"

    def total(self) -> Decimal:
        summed = self.lines.aggregate(total=Sum(F("quantity") * F("product__price")))["total"]
        return summed or Decimal(0)


class OrderLine(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    def total(self) -> Decimal:
        return self.quantity * self.product.price
