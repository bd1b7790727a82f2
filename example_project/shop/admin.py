"""The shop in the admin."""

from __future__ import annotations

from django.contrib import admin

from .models import Order, OrderLine, Product


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "price")


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("number", "customer", "placed_at", "paid_at")
    inlines = (OrderLineInline,)
