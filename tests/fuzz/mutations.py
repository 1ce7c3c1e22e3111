"""Random damage to a file: to its bytes, or to its content by the format that its suffix names."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
from random import Random

import numpy as np
import safetensors.torch
import torch
import yaml
from PIL import Image

from contml._support import tensors as files

from . import images, matlab

#: Values in the syntax of JSON, which is that of YAML too, that readers may not expect.
ODD_VALUES = (
    *("null", "true", "0", "-1", "0.5", "1e308", "1e999", "-1e999", "NaN", "Infinity", "2147483648", "1" * 20),
    *("1" * 5000, '""', '" "', '"7"', '"nan"', r'"a\u0000b"', r'"\ud800"', r'"\n"', '"../../etc/passwd"', '"/"', '"."'),
    *('"train"', "[]", "{}", "[[]]", "[null]", '["a", 1]', '{"a": {}}', "[1, 2]", "[" * 50_000 + "]" * 50_000),
    *('"' + "1 " * 20_000 + '"', '"' + "x" * 40_000 + '"', '"%s%d{0}"', '"<b>&"', '"a.b:c"'),
)
#: The same for the cells of a table and the words of a list.
ODD_CELLS = (
    *("", " ", "0", "-1", "0.5", "1e308", "1e999", "nan", "inf", "train", "test", "val", "query", ",", ";", "#"),
    *('"', '""', "'", "../../etc/passwd", "/", ".", "~", "~x", "=1+1", "%s", "{0}", "http://x/y.png", "id_00000001"),
    *("\t", "\n", "a\0b", "\x0c", "\u2028", "\u0663", "\u00b2", "\ufeff"),
    *("[1,2", "[1, null]", '{"a": 1}', '[{"a": 1}]'),
    *("9999-12-31", "0001-01-01T00:00:00+23:59", "2026-13-45", "1" * 20, "1" * 400, "1" * 5000, "x" * 200_000),
    *("a/" * 3000, "[" * 50_000, "{" * 500, "1 " * 20_000, "1," * 20_000, "_lat" * 9999, "1.234.567" * 4000),
    *("e" * 40_000, "a" * 40_000 + "!"),
)
ODD_BYTES = (b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b'"', b"{", b"[", b"\x80\x04", b"9" * 500)


def mutated(content: bytes, name: str, random: Random) -> bytes:
    """The content of a file, damaged in one to three places."""
    change = next((change for suffix, change in FORMATS.items() if name.endswith(suffix)), bytes_changed)
    count = random.choice((1, 1, 1, 2, 3))
    damaged = sum(random.random() < 0.3 for _ in range(count))
    for number in range(count):  # bytes last: scipy crashes on some damaged files
        choice = change if number < count - damaged else bytes_changed
        try:
            content = choice(content, random)
        except Exception:  # an earlier change left a file that the libraries of this module cannot read
            content = bytes_changed(content, random)
            break
    return content


def bytes_changed(content: bytes, random: Random) -> bytes:
    """Bytes cut off, flipped, inserted, removed, repeated, or copied from elsewhere in the file."""
    place, other = (random.randrange(len(content) + 1) for _ in range(2))
    length = random.choice((1, 1, 2, 4, 8, 64, 1000))
    match random.randrange(7):
        case 0:
            return content[:place]
        case 1:
            flipped = bytes(b ^ 1 << random.randrange(8) for b in content[place:][:1])
            return content[:place] + flipped + content[place + 1 :]
        case 2:
            return content[:place] + random.choice(ODD_BYTES) + content[place:]
        case 3:
            return content[:place] + content[place + length :]
        case 4:
            return content[:place] + content[place : place + length] * random.choice((2, 3, 50)) + content[place:]
        case 5:
            return content[:place] + content[other : other + length] + content[place + length :]
        case _:
            return content[:place] + random.randbytes(length) + content[place + length :]


def json_changed(content: bytes, random: Random) -> bytes:
    """JSON with a value replaced, removed, repeated, renamed or nested."""
    return _tree_changed(json.loads(content), random, json.dumps).encode(errors="surrogatepass")


def yaml_changed(content: bytes, random: Random) -> bytes:
    """YAML with a value replaced, removed, repeated, renamed or nested; comments at its head stay."""
    text = content.decode()
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    special = random.choice(("&a [*a]", "!!binary x", "!!python/name:os.system ''", "*b", "? [a]: b", "0x" + "f" * 99))
    values = yaml.safe_load(text)
    found = _tree_changed(values, random, lambda tree: yaml.safe_dump(tree, width=10**9, sort_keys=False), special)
    return (head + found).encode(errors="surrogatepass")


def lines_changed(content: bytes, random: Random) -> bytes:
    """JSON lines with a line removed, repeated, moved, or changed as JSON."""
    lines = content.splitlines(keepends=True)
    place = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            del lines[place]
        case 1:
            lines.insert(random.randrange(len(lines) + 1), lines[place])
        case 2:
            lines[place] = random.choice(ODD_VALUES).encode() + b"\n"
        case _:
            lines[place] = json_changed(lines[place], random) + b"\n"
    return b"".join(lines)


def gzip_changed(content: bytes, random: Random) -> bytes:
    """A gzip file whose content is changed: JSON, or words."""
    inner = gzip.decompress(content)
    change = json_changed if inner[:1] == b"{" else words_changed
    return gzip.compress(change(inner, random))


def table_changed(content: bytes, random: Random, delimiter: str = ",") -> bytes:
    """A table with a cell, a row or a column replaced, removed, repeated or moved."""
    rows = list(csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter))
    row, other = random.randrange(len(rows)), random.randrange(len(rows))
    row = 0 if random.random() < 0.1 else row
    column = random.randrange(len(rows[row]))
    cell = random.choice(ODD_CELLS)
    match random.randrange(9):
        case 0:
            del rows[row]
        case 1:
            rows.insert(other, rows[row])
        case 2:
            del rows[row][column]
        case 3:
            rows = [[*line[:column], *line[column + 1 :]] for line in rows]
        case 4:
            rows = [rows[0], *([*line[:column], cell, *line[column + 1 :]] for line in rows[1:])]
        case 5:
            rows[row].insert(column, cell)
        case 6:
            rows[row][column] = rows[other][random.randrange(len(rows[other]))]
        case _:
            rows[row][column] = cell
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=random.choice(("\n", "\n", "\r\n", "\r"))).writerows(rows)
    return text.getvalue().encode(random.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16")), "surrogatepass")


def tabs_changed(content: bytes, random: Random) -> bytes:
    """A table separated by tabs."""
    return table_changed(content, random, "\t")


def words_changed(content: bytes, random: Random) -> bytes:
    """Lines of words with a word or a line replaced, removed, repeated or moved."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    place = 0 if random.random() < 0.15 else random.randrange(len(lines))
    mark = "\t" if "\t" in lines[place] else " "
    words = lines[place].split(mark)
    word = random.randrange(len(words))
    match random.randrange(6):
        case 0:
            del lines[place]
        case 1:
            lines.insert(random.randrange(len(lines)), lines[place])
        case 2:
            lines[place] = mark.join([*words[:word], *words[word + 1 :]])
        case _:
            lines[place] = mark.join([*words[:word], random.choice(ODD_CELLS), *words[word + 1 :]])
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def safetensors_changed(content: bytes, random: Random) -> bytes:
    """A safetensors file whose header, tensors, or JSON values of contml are changed; half with right checksums."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    values = json.loads(header["__metadata__"]["contml"]) if "__metadata__" in header else None
    match random.randrange(4 if values is not None else 2):
        case 0:
            text = json_changed(content[8 : 8 + length], random)
            return struct.pack("<Q", len(text)) + text + content[8 + length :]
        case 1:
            tensors = safetensors.torch.load(content)
            name = random.choice(list(tensors))
            before = tensors[name].numpy()
            other = matlab.changed_array(before, random)
            with np.errstate(all="ignore"):
                other = np.asarray(np.real(other), before.dtype) if random.random() < 0.5 else np.asarray(other)
            tensors[name] = torch.from_numpy(other.copy())
            return safetensors.torch.save(tensors) if values is None else _with_values(tensors, values, random)
        case _:
            changed = json_changed(json.dumps(values).encode(), random).decode(errors="surrogatepass")
            try:
                return _with_values(safetensors.torch.load(content), json.loads(changed), random)
            except (ValueError, RecursionError, TypeError):  # not JSON: no checksum of it is right
                header["__metadata__"]["contml"] = changed
                text = json.dumps(header).encode()
                return struct.pack("<Q", len(text)) + text + content[8 + length :]


def _with_values(tensors, values, random):
    """A file of tensors and values, like those of contml; in half of the cases its checksums are right."""
    if random.random() < 0.5:
        values.pop(files._CHECKSUMS, None)
        values[files._CHECKSUMS] = {"values": files._crc32_of_values(values), "tensors": files._crc32(tensors)}
    return safetensors.torch.save(tensors, {"contml": json.dumps(values)})


def arrays_changed(content: bytes, random: Random) -> bytes:
    """A file of numpy arrays with an array replaced, removed, renamed, cut or of another type."""
    with np.load(io.BytesIO(content), allow_pickle=True) as file:
        arrays = dict(file)
    name = random.choice(list(arrays))
    match random.randrange(4):
        case 0:
            del arrays[name]
        case 1:
            arrays[random.choice(("x", "names", "split"))] = arrays.pop(name)
        case _:
            arrays[name] = matlab.changed_array(arrays[name], random)
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def image_changed(content: bytes, random: Random) -> bytes:
    """An image of another mode, size or format; or one that declares a wrong size."""
    with Image.open(io.BytesIO(content)) as picture:
        return images.changed(picture.copy(), random)


def parquet_changed(content: bytes, random: Random) -> bytes:
    """A Parquet file with a column of another type, or a row less."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    place = random.randrange(table.num_columns)
    count = table.num_rows
    unusual = (
        None,
        b"\xff",
        {"a": 1},
        [1, None],
        [[1]],
        True,
        float("nan"),
        2**63 - 1,
        "\0",
        np.datetime64("2026-01-01"),
    )
    values = [random.choice(unusual)] * count
    far = random.choice(("timestamp[ms]", "timestamp[ns]", "date32", "duration[us]", "time64[ns]"))
    value = random.choice((0, 1, -(2**30), 2**30))
    column = pyarrow.array([value] * count, far) if random.random() < 0.3 else pyarrow.array(values)
    names = random.choice(ODD_CELLS[:9]) if random.random() < 0.2 else table.column_names[place]
    table = table.set_column(place, names, column).slice(random.choice((0, 0, 1, count)))
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()


FORMATS = {
    ".json": json_changed, ".jsonl": lines_changed, ".yaml": yaml_changed, ".gz": gzip_changed, ".csv": table_changed,
    ".tsv": tabs_changed, ".txt": words_changed, ".safetensors": safetensors_changed, ".npz": arrays_changed,
    ".mat": matlab.changed, ".parquet": parquet_changed,
    **dict.fromkeys((".png", ".jpg", ".JPG", ".tif"), image_changed),
}  # fmt: skip


def _tree_changed(tree, random, dump, special=""):
    """The text of nested lists and mappings after one change; a fifth of the values is `special`, as it is."""
    holders = list(_holders(tree))
    if not holders:
        return random.choice(ODD_VALUES)
    holder, key = random.choice(holders)
    value = special if special and random.random() < 0.2 else random.choice(ODD_VALUES)
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(random.randrange(len(holder)), holder[key])
        case 1:
            holder[random.choice(("x", "", "name", f"{key}s", str(key).upper()))] = holder.pop(key)
        case 2:
            other, place = random.choice(holders)
            holder[key] = json.loads(json.dumps(other[place]))
        case 3:
            holder[key] = random.choice(([holder[key]], {"x": holder[key]}))
        case _:
            holder[key] = "@special value@"
    text = dump(tree)
    for mark in ('"@special value@"', "'@special value@'", "@special value@"):
        text = text.replace(mark, value)
    return text


def _holders(tree):
    """Every list or mapping inside with each of its keys."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _holders(tree[key])
