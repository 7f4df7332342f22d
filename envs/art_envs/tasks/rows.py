"""Files and data sets become rows, each of which knows its place. Mistakes are UsageErrors."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from art_cli import UsageError, tell
from art_envs.tasks.arrow import converted, whole_columns

HUB = "hf:"
MOST_CHARACTERS = 2**24  # of a line
TOLD = 10_000  # rows between two lines of progress
INSTALL = "pip install 'art-cli[data]'"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    place: str  # FILE:LINE, or the data set and the number of the row
    number: int  # that line or number, from 1
    values: dict[str, Any]


def read_rows(source: str) -> list[Row]:
    """Return the rows of what `data` names. Raise UsageError with the place of what is wrong."""
    rows = list(_hub(source) if source.startswith(HUB) else _file(Path(source)))
    if not rows:
        raise UsageError(f"{source}: there are no rows in it")
    return rows


def _file(path: Path) -> Iterator[Row]:
    read = READERS.get(path.suffix.lower())
    if read is None:
        kinds = ", ".join(READERS)
        raise UsageError(f"{path}: expected a file whose name ends in {kinds}, or hf:NAME")
    if not path.is_file():
        raise UsageError(
            f"there is no file {str(path)!r} (paths are relative to the folder that art is started "
            f"in, {Path.cwd()})"
        )
    try:
        yield from read(path)
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from None


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, as they are. Raises UsageError at one that is too long."""
    number, size, read = 0, max(path.stat().st_size, 1), 0
    with open(path, encoding="utf-8-sig", newline="") as file:  # "" keeps line ends as they are
        try:
            while line := file.readline(MOST_CHARACTERS + 1):
                number += 1
                read += len(line)
                if len(line) > MOST_CHARACTERS:
                    raise UsageError(
                        f"{path}:{number}: the line has more than {MOST_CHARACTERS} characters; a "
                        "row is one line"
                    )
                if number % TOLD == 0:
                    tell(f"reading {path}, {min(read, size) / size:.0%}")
                yield line
        except UnicodeDecodeError:
            number = _undecodable(path)
            raise UsageError(f"{path}:{number}: not UTF-8; save the file as UTF-8") from None


def _undecodable(path: Path) -> int:
    """Return the number of the first line that is not UTF-8: the decoder reads ahead of it."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as e:
            hint = ""
            if line.strip() in ("[", "{"):
                hint = "; each row is one line: a list of objects becomes that with `jq -c '.[]'`"
            raise UsageError(f"{place}: not valid JSON ({e}){hint}") from None
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise UsageError(f'{place}: expected an object, {{"COLUMN": value}}, got a {kind}')
        yield Row(place, number, value)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _csv(path: Path, delimiter: str = ",") -> Iterator[Row]:
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        number = reader.line_num + 1  # where the record begins: it may have several lines
        try:
            fields = next(reader, None)
        except csv.Error as e:
            raise UsageError(
                f"{path}:{number}: {e}; a field with a comma, a quote or a line break stands "
                'between ", and a " in it is written ""'
            ) from None
        if fields is None:
            return
        if not any(field.strip() for field in fields):
            continue
        if not header:
            header = _header(fields, f"{path}:{number}", delimiter)
        elif len(fields) == len(header):
            yield Row(f"{path}:{number}", number, dict(zip(header, fields, strict=True)))
        else:
            raise UsageError(
                f"{path}:{number}: {len(fields)} fields, but {len(header)} columns in the first "
                f'line ({", ".join(header)}); a field with a "{delimiter}" in it stands between "'
            )


def _header(fields: list[str], place: str, delimiter: str) -> list[str]:
    names = [field.strip() for field in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{place}: the column {twice!r} is there twice; the first line has names")
    if len(names) == 1 and delimiter == "," and ";" in names[0]:
        raise UsageError(f"{place}: the columns are parted by semicolons; save it with commas")
    return names


def _tsv(path: Path) -> Iterator[Row]:
    return _csv(path, "\t")


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError:
        raise UsageError(f"{path}: parquet needs the package datasets: {INSTALL}") from None
    number = 0
    try:
        with ParquetFile(path) as file:
            total = file.metadata.num_rows
            whole = whole_columns(file.schema_arrow, lambda name: file.read([name]).column(name))
            for values in converted(file.iter_batches(TOLD), whole):
                number += 1
                yield Row(f"{path}, row {number}", number, values)
                if number % TOLD == 0 or number == total:
                    tell(f"reading {path}", number, total)
    except (ArrowException, ValueError) as e:
        raise UsageError(f"{path}: not a parquet file that can be read: {_first_line(e)}") from None


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}


def _hub(source: str) -> Iterator[Row]:
    """Yield the rows of hf:NAME[:CONFIG[:SPLIT]]; the label of a class is its name."""
    name, *more = source.removeprefix(HUB).split(":")
    if not name or len(more) > 2:
        raise UsageError(f"{source}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    config, split = (*more, "", "")[:2]
    try:
        import datasets
    except ModuleNotFoundError:
        raise UsageError(f"{source} needs the package datasets: {INSTALL}") from None
    try:
        found: Any = datasets.load_dataset(name, config or None, split=split or "train")
        table = found.with_format("arrow")[:]
        whole = whole_columns(table.schema, table.column)
        values = list(converted(iter(table.to_batches()), whole))
    except Exception as e:  # whatever the hub, the network or a file of it says
        raise UsageError(f"{source}: cannot be loaded: {type(e).__name__}: {_first_line(e)}") from e
    for column, feature in found.features.items():
        if isinstance(feature, datasets.ClassLabel):
            for row in values:
                label = row[column]
                row[column] = label if label is None or label < 0 else feature.int2str(label)
    return _numbered(source, values)


def _numbered(source: str, values: list[dict[str, Any]]) -> Iterator[Row]:
    for number, each in enumerate(values, 1):
        yield Row(f"{source}, row {number}", number, each)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["(it said nothing)"])[0]
