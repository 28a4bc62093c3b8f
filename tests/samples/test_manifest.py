"""Tables of samples."""

import pandas as pd
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import Texts


def write(path, text):
    file = path / "t.csv"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_images_labels_splits_and_attributes(tmp_path, kind):
    samples = open_samples(str(miniatures.manifest(tmp_path, kind=kind)))
    assert samples.ids[3] == "images/3.png"
    assert samples.content.paths[3] == tmp_path / "images" / "3.png"
    assert samples.classes == ("boat", "plane")
    assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [8, 2, 2]
    assert list(samples.attributes) == ["water", "year"]
    assert samples.attributes["water"].levels == ("no", "yes")
    assert samples.attributes["year"].levels == ("2000", "2001", "2002")
    assert samples.attributes["year"].codes.tolist()[:4] == [0, 1, 2, 0]


def test_ids_may_be_given(tmp_path):
    data = write(tmp_path, "id,path,label\n007,a.png,x\n008,b.png,x\n009,c.png,y\n010,d.png,y\n")
    assert open_samples(data).ids.tolist() == ["007", "008", "009", "010"]


def test_text_pairs(tmp_path):
    samples = open_samples(str(miniatures.text_manifest(tmp_path)))
    assert isinstance(samples.content, Texts)
    assert samples.content.first[2] == "a man, no. 2"
    assert samples.content.second[2] == "he is 2"
    assert samples.attributes["negation"].levels == ("0", "1")


def test_missing_attribute_values_and_measurements(tmp_path):
    rows = [f"{i}.png,{'ab'[i % 2]},{i / 7},{'' if i == 3 else i % 2}" for i in range(60)]
    samples = open_samples(write(tmp_path, "\n".join(["path,label,weight,indoor", *rows])))
    assert list(samples.attributes) == ["indoor"]
    assert samples.attributes["indoor"].levels == ("0", "1")
    assert samples.attributes["indoor"].codes[3] == -1
    assert samples.attributes["indoor"].codes[5] == 1


def test_a_class_may_be_called_na_or_null(tmp_path):
    data = write(tmp_path, "path,label\n1.png,NA\n2.png,NA\n3.png,null\n4.png,null\n")
    assert open_samples(data).classes == ("NA", "null")


def test_numeric_labels_sort_as_numbers(tmp_path):
    rows = [f"{i}.png,{c}" for i, c in enumerate([10, 9, 2, 10, 9, 2])]
    assert open_samples(write(tmp_path, "\n".join(["path,label", *rows]))).classes == (
        "2",
        "9",
        "10",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\na,b\n", r"no column 'label' \(columns: path, class\)"),
        ("file,label\na,b\nc,d\n", r"no column 'path' or 'text', and none of numbers"),
        ("path,text,label\na,b,c\n", "both 'path' and 'text'"),
        ("path,label\n", "has no rows"),
        ("", "not a readable table"),
        ("path,label\na,x\nb,\nc,y\n", "label is missing in row 1"),
        ("path,label\n,x\nb,x\nc,y\nd,y\n", "path is missing in row 0"),
        ("path,label,split\na,x,train\nb,x,hold\nc,y,train\n", "unknown split 'hold'"),
        ("path,label\na,x\na,x\nc,y\nd,y\n", "id 'a' occurs twice"),
        ("path,label\na,x\nb,x\n", "at least two classes"),
        ('path,label\na,"x\n', "not a readable table"),
        ("path,label\na,0.5\nb,1\nc,0.5\nd,1\n", "class names or whole numbers"),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        open_samples(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_not_utf8(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"path,label\n\xff\xfe\xe9,x\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        open_samples(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("column", ["label", "split", "water"])
def test_parquet_whose_text_is_not_utf8(tmp_path, column):
    table = {"text": ["a", "b"], "label": ["x", "y"], "split": ["train"] * 2, "water": ["no"] * 2}
    table[column] = ["train", "train"]
    file = tmp_path / "t.parquet"
    pd.DataFrame(table).to_parquet(file, compression=None)
    file.write_bytes(file.read_bytes().replace(b"train", b"\xffrain"))
    with pytest.raises(UsageError, match=r"t\.parquet.*UTF-?8"):
        open_samples(str(file))


def test_not_parquet(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match=r"t\.parquet"):
        open_samples(str(tmp_path / "t.parquet"))


def test_byte_order_mark_is_no_part_of_a_column(tmp_path):
    table = pd.DataFrame({"path": list("abcd"), "label": list("xxyy")})
    table.to_csv(tmp_path / "t.csv", index=False, encoding="utf-8-sig")
    assert open_samples(str(tmp_path / "t.csv")).classes == ("x", "y")
