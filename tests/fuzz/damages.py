"""Strategies for what can be in a file: a good one with changes, or anything at all."""

from __future__ import annotations

import re
import struct

from hypothesis import strategies as st

WORDS = [
    b"null", b"-1", b"1e999", b"NaN", b"true", b"[]", b"{}", b'""', b"\x00", b"\xff\xfe", b"9" * 30,
    b"__tensor__", b"__items__", b"../../x", b"|O", b"<f8", b'"', b",", b"\n", b"[" * 2000, b"F64",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """Good bytes after a few changes: flips, cuts, doubled or swapped parts, words put in."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        end = min(len(data), at + draw(st.integers(1, 64)))
        way = draw(st.sampled_from(["flip", "cut", "remove", "double", "word", "token", "size"]))
        if way == "flip":
            data[at] ^= draw(st.integers(1, 255))
        elif way == "cut":
            del data[at:]
        elif way == "remove":
            del data[at:end]
        elif way == "double":
            data[at:at] = data[at:end]
        elif way == "word":
            data[at:end] = draw(st.sampled_from(WORDS))
        elif way == "token":
            data = bytearray(_token_replaced(draw, bytes(data)))
        else:
            number = draw(st.sampled_from([0, 1, 2**31, 2**63 - 1, 2**64 - 1]))
            data[at : at + 8] = struct.pack("<Q", number)
    return bytes(data)


def _token_replaced(draw: st.DrawFn, data: bytes) -> bytes:
    """One word or number of a text replaced, so that what is around it stays well formed."""
    tokens = list(re.finditer(rb"[A-Za-z_]+|-?\d+(\.\d+)?", data))
    if not tokens:
        return data
    token = draw(st.sampled_from(tokens[:400]))
    return data[: token.start()] + draw(st.sampled_from(WORDS)) + data[token.end() :]


def contents(good: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(damaged(good), damaged(good), damaged(good), st.binary(max_size=200))
