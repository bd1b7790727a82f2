"""The shop's addresses."""

from __future__ import annotations

from django.urls import path

from . import views

app_name = "shop"
urlpatterns = [
    path("", views.front, name="front"),
    path("order/", views.place_order, name="order"),
    path("results/<path:path>", views.result, name="result"),
]
