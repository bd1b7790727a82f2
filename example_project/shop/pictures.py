"""Draws the shop's pictures with Pillow; knows nothing of tasks."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from .models import Product

PAPER = (620, 877)  # a page of A4 at 75 dots an inch


def photo(product: Product, *, size: int = 1200) -> Image.Image:
    """Return the picture of a product, as large as a camera would make it."""
    image = Image.radial_gradient("L").resize((size, size))
    tinted = Image.merge("RGB", (image, image, image))
    tinted = Image.blend(tinted, Image.new("RGB", (size, size), product.colour), 0.6)
    draw = ImageDraw.Draw(tinted)
    draw.text((size // 2, size // 2), product.name, "white", _font(size // 10), anchor="mm")
    return tinted


def page(product: Product, number: int) -> Image.Image:
    """Return one page of the catalogue."""
    paper = Image.new("RGB", PAPER, "white")
    paper.paste(photo(product, size=500), (60, 80))
    draw = ImageDraw.Draw(paper)
    draw.text((60, 620), f"{product.name}, {product.price}", "black", _font(36))
    draw.text((PAPER[0] // 2, 840), str(number), "gray", _font(18), anchor="mm")
    return paper


def encoded(image: Image.Image, kind: str, *more: Image.Image) -> bytes:
    """Return the file's content; ``more`` are further pages, for kinds that have pages."""
    out = io.BytesIO()
    image.save(out, kind, **({"save_all": True, "append_images": more} if more else {}))
    return out.getvalue()


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
