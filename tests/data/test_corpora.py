import bz2
import errno
import gzip
import json
import logging
import lzma
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict, Features, Translation
from datasets.exceptions import DatasetGenerationError
from tiny import ENGLISH, FRENCH

from vanilla_transformer.data import corpora
from vanilla_transformer.data.checks import CorpusReport, check_equal_sides, check_swapped_sides, overlap
from vanilla_transformer.data.columns import rows
from vanilla_transformer.data.corpora import read_corpus, read_lines
from vanilla_transformer.data.phrasebook import phrasebook

PAIRS = list(zip(ENGLISH, FRENCH, strict=True))


def text_files(folder, gz=False):
    names = []
    for ending, lines in (("en", ENGLISH), ("fr", FRENCH)):
        name = folder / f"corpus.{ending}{'.gz' if gz else ''}"
        with gzip.open(name, "wb") if gz else open(name, "wb") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
        names.append(str(name))
    return names


def tsv(folder, gz=False):
    name = folder / f"corpus.tsv{'.gz' if gz else ''}"
    with gzip.open(name, "wb") if gz else open(name, "wb") as file:
        file.write("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode())
    return [str(name)]


def jsonl(folder, rows, gz=False):
    name = folder / f"corpus.jsonl{'.gz' if gz else ''}"
    with gzip.open(name, "wt", encoding="utf-8") if gz else open(name, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return [str(name)]


def csv(folder):
    Dataset.from_list([{"en": s, "fr": t} for s, t in PAIRS]).to_csv(folder / "corpus.csv")
    return [str(folder / "corpus.csv")]


def parquet(folder):
    features = Features({"translation": Translation(languages=["en", "fr"])})
    rows = [{"translation": {"en": s, "fr": t}} for s, t in PAIRS]
    Dataset.from_list(rows, features=features).to_parquet(folder / "corpus.parquet")
    return [str(folder / "corpus.parquet")]


def saved(folder, splits=True):
    data = Dataset.from_list([{"translation": {"en": s, "fr": t}} for s, t in PAIRS])
    (DatasetDict({"train": data, "validation": data.select([0])}) if splits else data).save_to_disk(folder / "saved")
    return [str(folder / "saved")]


FORMS = {
    "text": text_files,
    "text.gz": lambda folder: text_files(folder, gz=True),
    "tsv": tsv,
    "tsv.gz": lambda folder: tsv(folder, gz=True),
    "jsonl translation": lambda folder: jsonl(folder, [{"translation": {"en": s, "fr": t}} for s, t in PAIRS]),
    "jsonl.gz languages": lambda folder: jsonl(folder, [{"en": s, "fr": t} for s, t in PAIRS], gz=True),
    "jsonl sides": lambda folder: jsonl(folder, [{"source": s, "target": t, "id": 1} for s, t in PAIRS]),
    "csv": csv,
    "parquet": parquet,
    "saved splits": saved,
    "saved": lambda folder: saved(folder, splits=False),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_pairs(form, tmp_path):
    pairs = read_corpus(FORMS[form](tmp_path), "en", "fr")
    assert list(zip(pairs["source"], pairs["target"], strict=True)) == PAIRS


def test_split_and_limit(tmp_path):
    assert len(read_corpus(saved(tmp_path), "en", "fr", split="validation")) == 1
    assert len(read_corpus(tsv(tmp_path), "en", "fr", max_pairs=2)) == 2
    with pytest.raises(ValueError, match=r"no split 'test'.*train, validation"):
        read_corpus(saved(tmp_path / "again"), "en", "fr", split="test")


def test_a_hub_id_is_asked_of_datasets(monkeypatch):
    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return Dataset.from_list([{"translation": {"en": s, "fr": t}} for s, t in PAIRS])

    monkeypatch.setattr("vanilla_transformer.data.corpora.load_dataset", load_dataset)
    pairs = read_corpus("wmt/wmt14", "fr", "en", split="test", config_name="fr-en")
    assert asked == [(("wmt/wmt14", "fr-en"), {"split": "test"})]
    assert pairs["source"][0] == FRENCH[0]


@pytest.mark.parametrize("cut", [0, 1])
def test_unequal_sides_name_both_counts(cut, tmp_path):
    names = text_files(tmp_path)
    with open(names[cut], "a", encoding="utf-8") as file:
        file.write("one more\nand another\n")
    longer = "corpus.en" if cut == 0 else "corpus.fr"
    with pytest.raises(ValueError, match=rf"{longer} has 8 lines, but .* has 6"):
        read_corpus(names, "en", "fr")


def test_not_utf8_names_file_line_and_remedy(tmp_path):
    names = text_files(tmp_path)
    with open(names[1], "ab") as file:
        file.write("été\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"corpus.fr, line 7 is not UTF-8 .*0xe9.*iconv"):
        list(read_corpus(names, "en", "fr"))


def test_other_encodings_are_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("en,fr,été\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"a.csv, line 1 is not UTF-8 .*iconv -f latin1"):
        read_corpus(str(tmp_path / "a.csv"), "en", "fr")
    (tmp_path / "a.en").write_text("One\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"a.en, line 1 is not UTF-8 .*iconv -f utf-16"):
        list(read_lines(tmp_path / "a.en"))


@pytest.mark.parametrize(
    "compress, program", [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")]
)
def test_compressed_text_of_another_name(compress, program, tmp_path):
    """`iconv` would make nonsense of it, which is read without a word then."""
    (tmp_path / "a.en").write_bytes(compress(b"One\nTwo\n" * 500))
    with pytest.raises(ValueError, match=rf"a.en, line 1 is not UTF-8 .*: it looks compressed: .*`{program}`"):
        list(read_lines(tmp_path / "a.en"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_name_is_no_pattern(suffix, tmp_path):
    """As Windows names a second download; `datasets` would read a1.csv in its place."""
    for name, text in (("a[1]", "this one"), ("a1", "another")):
        row = f"en,fr\n{text},oui\n" if suffix == ".csv" else json.dumps({"en": text, "fr": "oui"}) + "\n"
        (tmp_path / f"{name}{suffix}").write_text(row)
    assert read_corpus(str(tmp_path / f"a[1]{suffix}"), "en", "fr")["source"] == ["this one"]


def test_a_data_set_with_a_script_of_its_own(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("Dataset scripts are no longer supported, but found old.py")

    monkeypatch.setattr(corpora, "load_dataset", refuse)
    with pytest.raises(ValueError, match=r"some/old cannot be read .*found old.py.*in Parquet"):
        read_corpus("some/old", "en", "fr")


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    (tmp_path / "a.en").write_bytes(b"\xef\xbb\xbfOne\r\nTwo\r\n")
    assert list(read_lines(tmp_path / "a.en")) == ["One", "Two"]


def test_other_line_separators_do_not_end_a_line(tmp_path):
    (tmp_path / "a.en").write_text("one\u2028still one\x0band\x85\ntwo\n", encoding="utf-8")
    assert len(list(read_lines(tmp_path / "a.en"))) == 2


def test_empty_sides_are_dropped_and_counted_aloud(tmp_path, caplog):
    names = text_files(tmp_path)
    for name, lines in zip(names, (["x", " ", "z"], ["", "y", "\u00a0"]), strict=True):
        with open(name, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    report = CorpusReport()
    assert len(read_corpus(names, "en", "fr", report=report)) == 6
    assert report.counts == {"empty side": 3}
    logging.getLogger("transformers").propagate = True
    report.warn()
    assert "dropped 3 pairs (empty side)" in caplog.text and "line 7" in caplog.text


def test_empty_corpus(tmp_path):
    for ending in ("en", "fr"):
        (tmp_path / f"empty.{ending}").write_text("")
    with pytest.raises(ValueError, match="no pair of sentences"):
        read_corpus([str(tmp_path / "empty.en"), str(tmp_path / "empty.fr")], "en", "fr")


def test_a_directory_or_nothing_where_a_file_is_expected(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory: expected a text file"):
        read_corpus([str(tmp_path), str(tmp_path)], "en", "fr")
    with pytest.raises(FileNotFoundError, match=r"nowhere.en does not exist"):
        read_corpus([str(tmp_path / "nowhere.en"), str(tmp_path / "nowhere.fr")], "en", "fr")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_corpus(str(tmp_path / "nowhere.jsonl"), "en", "fr")


def test_wrong_columns_and_fields(tmp_path):
    with pytest.raises(ValueError, match=r"columns a, b: expected `translation`"):
        read_corpus(jsonl(tmp_path, [{"a": "x", "b": "y"}]), "en", "fr")
    with pytest.raises(ValueError, match=r"no translation in \['de'\]: its languages are en, fr"):
        read_corpus(parquet(tmp_path), "en", "de")
    (tmp_path / "bad.tsv").write_text("a\tb\na\tb\tc\n")
    with pytest.raises(ValueError, match=r"bad.tsv, line 2 has 3 tab-separated fields"):
        read_corpus(str(tmp_path / "bad.tsv"), "en", "fr")
    (tmp_path / "one.txt").write_text("a\n")
    with pytest.raises(ValueError, match="alone is no parallel corpus"):
        read_corpus(str(tmp_path / "one.txt"), "en", "fr")
    with pytest.raises(ValueError, match="got 3 places"):
        read_corpus(["a", "b", "c"], "en", "fr")


def test_swapped_file_names(tmp_path):
    with pytest.raises(ValueError, match=r"look swapped.*exchange"):
        read_corpus(text_files(tmp_path)[::-1], "en", "fr")


@pytest.mark.parametrize("names", [("1.jsonl", "2.jsonl"), ("1.tsv.gz", "2.tsv.gz"), ("train.en", "train.csv")])
def test_two_tables_are_no_two_sides(names, tmp_path):
    """Line N of one would be the translation of line N of the other."""
    with pytest.raises(ValueError, match=rf"{names[1]}, of which a suffix tells of a table, .*give one table, put"):
        read_corpus([str(tmp_path / name) for name in names], "en", "fr")


def dataset(pairs):
    return Dataset.from_dict({"source": [s for s, _ in pairs], "target": [t for _, t in pairs]})


def test_sides_that_read_like_each_other():
    check_swapped_sides(dataset(PAIRS[:3]), dataset(PAIRS), "validation", "train")
    with pytest.raises(ValueError, match="two sides of validation look swapped"):
        check_swapped_sides(dataset([(t, s) for s, t in PAIRS[:3]]), dataset(PAIRS), "validation", "train")


def test_equal_sides():
    check_equal_sides(dataset([*PAIRS, ("OK", "OK")]), "train")
    with pytest.raises(ValueError, match="6 of 6 targets are equal"):
        check_equal_sides(dataset([(s, s) for s, _ in PAIRS]), "train")


def test_overlap_counts_sources():
    assert overlap(dataset(PAIRS), dataset([*PAIRS[:2], ("new", "neuf")])) == 2


def test_damaged_gzip_files(tmp_path):
    name = text_files(tmp_path, gz=True)[0]
    (tmp_path / "half.en.gz").write_bytes(Path(name).read_bytes()[:-20])
    (tmp_path / "plain.en.gz").write_text("not gzipped")
    for bad in ("half.en.gz", "plain.en.gz"):
        with pytest.raises(ValueError, match=f"{bad} is no whole gzip file"):
            list(read_lines(tmp_path / bad))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_damaged_gzip_tables(suffix, tmp_path):
    row = "one,un\n" if suffix == ".csv" else json.dumps({"en": "one", "fr": "un"}) + "\n"
    text = ("en,fr\n" if suffix == ".csv" else "") + "".join(f"{row}" for _ in range(5000))
    whole = gzip.compress(text.encode())
    for number, half in enumerate((whole[:-20], whole[: len(whole) // 2], b"no gzip at all\n")):
        name = f"bad{number}{suffix}.gz"
        (tmp_path / name).write_bytes(half)
        with pytest.raises(ValueError, match=f"{name} (cannot be read as|is no whole gzip)"):
            read_corpus(str(tmp_path / name), "en", "fr")


def test_a_csv_whose_names_are_none(tmp_path):
    (tmp_path / "a.csv").write_text(f'"{"x" * 200_000}",fr\none,un\n')
    with pytest.raises(ValueError, match=r"a.csv, its first line cannot be read as csv"):
        read_corpus(str(tmp_path / "a.csv"), "en", "fr")


@pytest.mark.parametrize("content", ["{bad", ""])
def test_broken_and_empty_tables(content, tmp_path):
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(ValueError, match=r"bad.jsonl (cannot be read as json|has the columns )"):
        read_corpus(str(tmp_path / "bad.jsonl"), "en", "fr")


def test_a_csv_of_excel(tmp_path):
    """Which marks its UTF-8 before the name of the first column."""
    (tmp_path / "a.csv").write_text("en,fr\none,un\n", encoding="utf-8-sig")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    for name in ("a.csv", "a.csv.gz"):
        assert list(read_corpus(str(tmp_path / name), "en", "fr")) == [{"source": "one", "target": "un"}]


def test_words_of_a_csv_stay_words(tmp_path):
    (tmp_path / "a.csv").write_text("en,fr\nnull,nul\nNA,absent\n007,sept\n12,12.0\n", encoding="utf-8")
    pairs = read_corpus(str(tmp_path / "a.csv"), "en", "fr")
    assert list(zip(pairs["source"], pairs["target"], strict=True)) == [
        ("null", "nul"), ("NA", "absent"), ("007", "sept"), ("12", "12.0")
    ]  # fmt: skip


def test_a_table_with_an_index_as_pandas_writes_it(tmp_path):
    (tmp_path / "x.csv").write_text(",en,fr\n0,A dog.,Un chien.\n1,NA,007\n", encoding="utf-8")
    found = read_corpus(str(tmp_path / "x.csv"), "en", "fr")
    assert list(zip(found["source"], found["target"], strict=True)) == [("A dog.", "Un chien."), ("NA", "007")]


def test_sides_of_one_language_are_not_swapped_by_chance():
    texts = [pair.source for pair in phrasebook(0, train=400, validation=20, test=20)["train"]]
    halves = texts[:200], texts[200:]
    check_swapped_sides(
        dataset(list(zip(*halves, strict=True))), dataset(list(zip(*halves[::-1], strict=True))), "validation", "train"
    )


def test_a_column_translation_of_text(tmp_path):
    lines = [{"source": s, "translation": t} for s, t in PAIRS]
    with pytest.raises(ValueError, match="columns source, translation: expected `translation`"):
        read_corpus(jsonl(tmp_path, lines), "en", "fr")


def test_an_entry_that_is_null_is_an_empty_pair(tmp_path):
    lines = [*({"translation": {"en": s, "fr": t}} for s, t in PAIRS), {"translation": None}]
    report = CorpusReport()
    assert len(read_corpus(jsonl(tmp_path, lines), "en", "fr", report=report)) == len(PAIRS)
    assert report.counts == {"empty side": 1}


@pytest.mark.parametrize("where", ["some/data", "x.jsonl"])
def test_a_full_disk_is_told_as_one(where, tmp_path, monkeypatch):
    def load(*args, **options):
        raise DatasetGenerationError("An error occurred") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vanilla_transformer.data.corpora.load_dataset", load)
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text("{}\n")
    with pytest.raises(OSError, match="No space left on device") as found:
        read_corpus(where, "en", "fr")
    assert found.value.errno == errno.ENOSPC


def test_a_damaged_table_is_named(tmp_path):
    [name] = parquet(tmp_path)
    whole = bytearray(Path(name).read_bytes())
    whole[30:60] = bytes(30)
    Path(name).write_bytes(whole)
    with pytest.raises(ValueError, match=r"corpus.parquet cannot be read as parquet \("):
        read_corpus(name, "en", "fr")


def test_rows_are_read_in_batches_in_their_order(monkeypatch):
    monkeypatch.setattr("vanilla_transformer.data.columns.READ", 4)
    pairs = dataset([(f"s{i}", f"t{i}") for i in range(10)])
    assert list(rows(pairs, "target", "source")) == [(f"t{i}", f"s{i}") for i in range(10)]
    assert list(rows(pairs.select([7, 2, 5, 9, 0]), "source")) == [(f"s{i}",) for i in (7, 2, 5, 9, 0)]


def test_a_part_of_a_corpus_is_read_no_further(tmp_path):
    (tmp_path / "x.tsv").write_text("a\tb\n" * 5 + "no pair\n")
    assert len(read_corpus(str(tmp_path / "x.tsv"), "en", "fr", max_pairs=4)) == 4
    with pytest.raises(ValueError, match="line 6 has 1 tab-separated"):
        read_corpus(str(tmp_path / "x.tsv"), "en", "fr")
