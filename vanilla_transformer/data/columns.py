"""Columns of a data set, row by row."""

from collections.abc import Iterator

from datasets import Dataset

READ = 10_000  # rows at a time: one by one takes 15 to 90 times as long, which 40 million of them would show


def rows(table: Dataset, *columns: str) -> Iterator[tuple]:
    """What stands in these columns of each row."""
    for batch in table.select_columns(list(columns)).iter(READ):
        yield from zip(*(batch[column] for column in columns), strict=True)
