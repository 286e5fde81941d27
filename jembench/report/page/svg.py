"""SVG as matplotlib writes it, made a part of a page."""

from __future__ import annotations

import base64
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from PIL import Image

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_SHAPES = {"path", "use", "rect", "circle", "ellipse", "polygon", "polyline", "line", "text", "tspan", "image"}
_KEPT = _SHAPES | {"svg", "g", "defs", "clipPath", "pattern", "linearGradient", "radialGradient", "stop"}
_TO_ID = re.compile(r"""(?<=url\(#)[^)]+|(?<=href="#)[^"]+""")
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_PNG = "data:image/png;base64,"
_QUALITY = 90  # of JPEG, without subsampling of colours


def inline(svg: str, title: str) -> str:
    """A figure as a part of a page: shapes, text and pictures alone, without styles, scripts and links.

    Its ids are those of no other figure.

    Args:
        svg: as matplotlib writes it.
        title: for readers who do not see it.
    """
    root = ElementTree.fromstring(svg)
    prefix = f"f{zlib.crc32(f'{title} {svg}'.encode()):08x}"
    new_ids = {name: f"{prefix}-{number}" for number, name in enumerate(_TO_ID.findall(svg))}
    _clean(root, new_ids)
    kept = {name: root.get(name, "") for name in ("viewBox",)}
    root.attrib.clear()
    root.attrib |= {**kept, "role": "img", "aria-label": " ".join(title.split())}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, new_ids: Mapping[str, str]) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(_attributes(element.attrib, new_ids))
    element.tail = None
    if element.tag not in ("text", "tspan"):
        element.text = None
    for child in list(element):
        if isinstance(child.tag, str) and child.tag.removeprefix(_SVG) in _KEPT:
            _clean(child, new_ids)
        else:
            element.remove(child)


def _attributes(given: Mapping[str, str], new_ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The attributes that draw; a style becomes attributes, which a page's policy allows."""
    for name, value in given.items():
        if name == "style":
            declared = (part.partition(":") for part in value.split(";"))
            yield from _attributes({key.strip(): text.strip() for key, _, text in declared if text}, new_ids)
        elif name == "id":
            if value in new_ids:
                yield name, new_ids[value]
        elif name == _LINK:
            if value.startswith("#"):
                yield "href", f"#{new_ids[value[1:]]}"
            elif value.startswith(_PNG):
                yield "href", smaller(value)
        elif name in ("d", "x", "y", "points"):
            yield name, " ".join(_DECIMALS.sub(r"\1", value).split())
        elif name == "font":  # of matplotlib before 3.10
            yield "font-size", next((part for part in value.split() if part.endswith("px")), "8px")
        elif not name.startswith(("on", "{", "font-family")):
            yield name, _TO_ID.sub(lambda found: new_ids[found[0]], value)


def smaller(uri: str) -> str:
    """A PNG that matplotlib wrote, without pixels that only repeat their neighbours, or as JPEG if that is smaller."""
    from PIL import Image

    given = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(_PNG))), formats=["PNG"])
    if given.mode == "RGBA" and given.getchannel("A").getextrema() != (255, 255):
        return uri  # what is behind it shows
    image = given.convert("RGB")
    image = next(filter(None, (_reduced(image, step) for step in (8, 4, 2))), image)
    found = []
    for form, options in (("png", {"optimize": True}), ("jpeg", {"quality": _QUALITY, "subsampling": 0})):
        stream = io.BytesIO()
        image.save(stream, form, **options)
        found.append(f"data:image/{form};base64,{base64.b64encode(stream.getvalue()).decode()}")
    return min(found, key=len)


def _reduced(image: Image.Image, step: int) -> Image.Image | None:
    """One pixel for each square of ``step`` x ``step`` pixels; None if one of them is not of one colour."""
    from PIL.Image import Resampling

    if image.width % step or image.height % step:
        return None
    reduced = image.resize((image.width // step, image.height // step), Resampling.NEAREST)
    return reduced if reduced.resize(image.size, Resampling.NEAREST) == image else None
