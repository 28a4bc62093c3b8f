"""Faults of image files: each lies among good pictures, which must come through untouched."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import miniatures
from faults.case import QUICK, Place, fault
from sebra.loading.decode import load_images
from sebra.samples import picture
from sebra.samples.open import open_samples
from sebra.samples.table import ImageArray
from sebra_tools.data_check import describe

GROUP = "image files"
Make = Callable[[Path], object]


def among_good(place: Place, make: Make, name: str) -> tuple[dict[str, str], np.ndarray | None]:
    """Reasons of what was set aside, and the pixels of the odd picture if it was read.

    The good pictures are compared with what they are without the odd one, and `data check` must
    say the same as a run.
    """
    alone = open_samples(str(place.pets()))
    _, expected = load_images(alone, 32)
    make(place / "pets" / "cat" / name)
    samples = open_samples(str(place / "pets"))
    kept, images = load_images(samples, 32)
    faults = {f.id: f.reason for f in kept.faults}
    checked = describe(samples, deep=True)["faults"]
    assert {f["id"]: f["reason"] for f in checked} == faults
    rows = {str(i): images.pixels[images.rows[k]] for k, i in enumerate(kept.ids.tolist())}
    for k, good in enumerate(alone.ids.tolist()):
        np.testing.assert_array_equal(rows[good], expected.pixels[k])
    odd = [pixels for i, pixels in rows.items() if i not in set(alone.ids.tolist())]
    return faults, odd[0] if odd else None


def set_aside(name: str, make: Make, file: str, reason: str, slow: bool = False) -> None:
    @fault(GROUP, name, f"set aside: {reason}", slow)
    def check(place: Place) -> str:
        faults, pixels = among_good(place, make, file)
        assert pixels is None
        assert list(faults) == [f"cat/{file}"]
        assert reason in faults[f"cat/{file}"], faults
        return f"set aside: {place.plain(faults[f'cat/{file}'])}"


def read(name: str, make: Make, file: str, looks: str, test: Callable[[np.ndarray], bool]) -> None:
    @fault(GROUP, name, f"read, {looks}")
    def check(place: Place) -> str:
        faults, pixels = among_good(place, make, file)
        assert faults == {}
        assert pixels is not None
        assert test(pixels.astype(int)), pixels
        return f"read, {looks}"


def half(path: Path) -> None:
    miniatures.picture(1, (64, 64)).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG of 8-bit grey with any size in its header."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(data)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def broken_checksum(path: Path) -> None:
    miniatures.picture(1).save(path)
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(bytes(data))


def sparse(path: Path) -> None:
    miniatures.picture(1).save(path)
    os.truncate(path, picture.MAX_BYTES + 1)


def float_with_nan(path: Path) -> None:
    Image.fromarray(np.full((8, 8), np.nan, dtype=np.float32)).save(path)


POSTSCRIPT = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n(out) (w) file closefile\n"

set_aside("truncated JPEG", half, "x.jpg", "truncated")
set_aside("truncated PNG", half, "x.png", "truncated")
set_aside("truncated WebP", half, "x.webp", "")
set_aside("damaged checksum in a PNG", broken_checksum, "x.png", "")
set_aside("empty file", lambda p: p.touch(), "x.png", "empty file")
set_aside("text named like an image", lambda p: p.write_text("hello"), "x.jpg", "not a readable")
set_aside("noise named like an image", lambda p: p.write_bytes(os.urandom(999)), "x.bmp", "not a")
set_aside("PostScript named .png", lambda p: p.write_text(POSTSCRIPT), "x.png", "not a readable")
set_aside("a header only", lambda p: p.write_bytes(png(32, 32)), "x.png", "")
set_aside(
    "121-megapixel bomb", lambda p: p.write_bytes(png(11000, 11000)), "x.png", "image too large"
)
set_aside(
    "3,600-megapixel bomb", lambda p: p.write_bytes(png(60000, 60000)), "x.png", "image too large"
)
set_aside("file of more than 1 GiB", sparse, "x.png", "file too large")
set_aside("pixels that are NaN", float_with_nan, "x.tif", "NaN or infinite")
set_aside("broken link", lambda p: p.symlink_to("nowhere"), "x.png", "link to a file that is not")
set_aside("link to itself", lambda p: p.symlink_to(p.name), "x.png", "cannot be read")
set_aside("named pipe", os.mkfifo, "x.png", "not a plain file")


def grey16(path: Path) -> None:
    Image.fromarray(np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)).save(path)


def palette(path: Path) -> None:
    image = Image.new("P", (32, 32), 1)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.paste(0, (0, 0, 32, 16))
    image.save(path, transparency=1)


def animated(path: Path) -> None:
    frames = [Image.new("RGB", (32, 32), c) for c in ("red", "blue", "lime")]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def rotated(path: Path) -> None:
    image = Image.new("RGB", (32, 32), "black")
    image.paste("white", (0, 0, 32, 16))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it a quarter to the right
    image.save(path, exif=exif, quality=95)


def red(size: tuple[int, int] = (9, 9), kind: str | None = None) -> Make:
    """Writes a red picture."""
    return lambda path: Image.new("RGB", size, "red").save(path, kind)


def cmyk(path: Path) -> None:
    Image.new("CMYK", (32, 32), (0, 255, 255, 0)).save(path)


def is_red(p: np.ndarray) -> bool:
    return bool((p[..., 0] > 200).all() and (p[..., 1:] < 60).all())


def is_ramp(p: np.ndarray) -> bool:
    return bool(p[0, 0, 0] < 3 and p[-1, -1, 0] > 252)


def is_red_over_white(p: np.ndarray) -> bool:
    return is_red(p[:15]) and bool((p[17:] == 255).all())


def is_turned(p: np.ndarray) -> bool:
    return bool((p[:, 20:] > 200).all() and (p[:, :12] < 60).all())


read("CMYK", cmyk, "x.jpg", "red", is_red)
read("16-bit grey", grey16, "x.png", "black to white", is_ramp)
read("palette with transparency", palette, "x.png", "red over white", is_red_over_white)
read("animated GIF", animated, "x.gif", "its first frame", is_red)
read("EXIF rotation", rotated, "x.jpg", "upright", is_turned)
read("one pixel", red((1, 1)), "x.png", "red", is_red)
read("1 x 20,000 pixels", red((20000, 1)), "x.png", "red", is_red)
read("PNG named .jpg", red(kind="PNG"), "x.jpg", "red", is_red)
read("name of 255 bytes", red(), "ä" * 125 + "x.png", "red", is_red)


@fault(GROUP, "folder named like an image", "not a sample")
def folder_named_like_an_image(place: Place) -> str:
    faults, pixels = among_good(place, lambda p: p.mkdir(), "x.png")
    assert (faults, pixels) == ({}, None)
    return "not a sample"


@fault(GROUP, "folder where a table names an image", "set aside: a folder")
def folder_in_a_manifest(place: Place) -> str:
    file = miniatures.manifest(place.path)
    (place / "images" / "0.png").unlink()
    (place / "images" / "0.png").mkdir()
    kept, _ = load_images(open_samples(str(file)), 32)
    assert [f.reason for f in kept.faults] == ["a folder, not an image"]
    return "set aside: a folder, not an image"


@fault(GROUP, "hidden files and thumbnails of the system", "not samples")
def hidden_files(place: Place) -> str:
    before = len(open_samples(str(place.pets())))
    for name in (".DS_Store", "Thumbs.db", "._000.png", "desktop.ini"):
        (place / "pets" / "cat" / name).write_bytes(b"x")
    assert len(open_samples(str(place / "pets"))) == before
    return "not samples"


@fault(GROUP, "no permission to read", "set aside: no permission to read the file")
def no_permission(place: Place) -> str:
    def forbid(path: Path) -> None:
        miniatures.save(path, 1)
        path.chmod(0)
        if os.geteuid() == 0:  # root may read everything: the opener refuses instead
            opened = Image.open

            def refuse(name: Path, *args: object, **options: object) -> Image.Image:
                if Path(name) == path:
                    raise PermissionError(13, "Permission denied")
                return opened(name, *args, **options)

            place.patch.setattr(Image, "open", refuse)

    faults, pixels = among_good(place, forbid, "x.png")
    assert pixels is None
    assert faults == {"cat/x.png": "no permission to read the file"}
    return "set aside: no permission to read the file"


@fault(GROUP, "names that are not UTF-8", "samples of their own, bytes written as \\xNN")
def not_utf8(place: Place) -> str:
    cats = os.fsencode(place.pets() / "cat")
    for byte in (b"\xe8", b"\xe9"):
        os.rename(cats + b"/00%d.png" % (byte[0] % 2), cats + b"/caf" + byte + b".png")
    kept, _ = load_images(open_samples(str(place / "pets")), 32)
    assert len(kept) == 12
    odd = [i for i in kept.ids.tolist() if "caf" in i]
    assert odd == ["cat/caf\\xe8.png", "cat/caf\\xe9.png"]
    done = place.run("rank", place / "pets", *QUICK, "--out", place / "run", "--set", "epochs=2")
    assert done.status == 0, done.stderr
    return "samples of their own, bytes written as \\xNN"


@fault(GROUP, "names with a line break, a comma, a formula", "whole in quarantine.csv, no formula")
def odd_names(place: Place) -> str:
    import pandas as pd

    names = ["=1+1.png", 'a,"b".png', "two\nlines.png"]
    for name in names:
        (place.pets(n=8) / "cat" / name).touch()
    done = place.run("rank", place / "pets", *QUICK, "--out", place / "run", "--set", "epochs=2")
    assert done.status == 0, done.stderr
    found = pd.read_csv(place / "run" / "quarantine.csv")["id"].tolist()
    assert found == [f"cat/{name}" for name in sorted(names)]
    return "whole in quarantine.csv, no formula"


@fault(GROUP, "file that vanishes after it was listed", "set aside, and read again when it is back")
def vanishes(place: Place) -> str:
    samples = open_samples(str(place.pets()))
    victim = place / "pets" / "cat" / "002.png"
    data, times = victim.read_bytes(), victim.stat()
    decoded = picture.decode_image

    def decode(path: Path, size: int) -> np.ndarray:
        victim.unlink(missing_ok=True)
        return decoded(path, size)

    with place.patch.context() as patch:
        patch.setattr("sebra.loading.decode.decode_image", decode)
        kept, _ = load_images(samples, 32)
    assert [(f.id, f.reason) for f in kept.faults] == [("cat/002.png", "file not found")]
    victim.write_bytes(data)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    again, _ = load_images(samples, 32)
    assert again.faults == ()
    return "set aside, and read again when it is back"


@fault(GROUP, "file that changes while it is read", "set aside, and read again the next time")
def changes(place: Place) -> str:
    samples = open_samples(str(place.pets()))
    victim = place / "pets" / "cat" / "002.png"
    decoded = picture.decode_image

    def decode(path: Path, size: int) -> np.ndarray:
        pixels = decoded(path, size)
        if path == victim:
            Image.new("RGB", (40, 40), "red").save(victim)
        return pixels

    with place.patch.context() as patch:
        patch.setattr("sebra.loading.decode.decode_image", decode)
        kept, _ = load_images(samples, 32)
    assert [(f.id, f.reason) for f in kept.faults] == [("cat/002.png", "changed while it was read")]
    again, images = load_images(samples, 32)
    assert again.faults == ()
    assert is_red(images.pixels[images.rows[2]].astype(int))
    return "set aside, and read again the next time"


@fault(GROUP, "disk error while reading", "set aside, and read again the next time")
def disk_error(place: Place) -> str:
    samples = open_samples(str(place.pets()))
    opened = Image.open

    def fail(name: Path, *args: object, **options: object) -> Image.Image:
        if Path(name).name == "002.png" and Path(name).parent.name == "cat":
            raise OSError(5, "Input/output error")
        return opened(name, *args, **options)

    with place.patch.context() as patch:
        patch.setattr(Image, "open", fail)
        kept, _ = load_images(samples, 32)
    assert [f.reason for f in kept.faults] == ["cannot be read (Input/output error)"]
    again, images = load_images(samples, 32)
    assert again.faults == ()
    assert isinstance(images, ImageArray)
    return "set aside, and read again the next time"


@fault(GROUP, "files that vanish between ranking and report", "report without their pictures")
def vanish_before_report(place: Place) -> str:
    done = place.run("rank", place.pets(n=8), *QUICK, "--out", place / "run", "--set", "epochs=2")
    assert done.status == 0, done.stderr
    for file in (place / "pets" / "cat").glob("*.png"):
        file.write_bytes(b"")
    done = place.run("report", place / "run")
    assert done.status == 0, done.stderr
    assert "<html" in (place / "run" / "report.html").read_text(encoding="utf-8")
    return "report without their pictures"


@fault(GROUP, "more than half of the images unreadable", "refused with an example, nothing written")
def most_unreadable(place: Place) -> str:
    for file in sorted(place.pets().glob("*/*.png"))[:7]:
        file.write_bytes(b"")
    line = place.refused(
        "7 of 12 images cannot be read", "rank", place / "pets", *QUICK, "--out", place / "run"
    )
    assert not (place / "run").exists()
    return line


@fault(GROUP, "the same picture in two splits", "reported as leakage with both names")
def same_picture_twice(place: Place) -> str:
    root = miniatures.split_folder(place / "d")
    (root / "test" / "cat" / "copy.jpg").write_bytes((root / "train/cat/003.jpg").read_bytes())
    found = describe(open_samples(str(root)), deep=True)
    assert found["leakage"]["count"] == 1
    assert found["leakage"]["examples"] == [["train/cat/003.jpg", "test/cat/copy.jpg"]]
    names = ("train/cat/003.jpg", "test/cat/copy.jpg")
    [note] = [n for n in found["notes"] if all(name in n for name in names)]
    return note
