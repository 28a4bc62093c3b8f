"""A font for tests, so that the watermark's own characters are drawn wherever tests run."""

from __future__ import annotations

from pathlib import Path


def write_font(file: Path, characters: str = "捷径") -> Path:
    """Each character is a full square; anything else is a small one, as a missing character is."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    def square(side: int):
        pen = TTGlyphPen(None)
        pen.moveTo((0, 0))
        for corner in ((0, side), (side, side), (side, 0)):
            pen.lineTo(corner)
        pen.closePath()
        return pen.glyph()

    names = {ord(c): f"uni{ord(c):04X}" for c in characters}
    order = [".notdef", *names.values()]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap(names)
    builder.setupGlyf({name: square(200 if name == ".notdef" else 1000) for name in order})
    builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=1000, usWinAscent=1000, usWinDescent=0)
    builder.setupPost()
    builder.save(file)
    return file
