import os
import threading

from vanilla_transformer.data.whole_files import write_whole


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path):
    """What translations and runs resume from rests on it."""
    file = tmp_path / "x"
    file.write_text("old")

    def pieces():
        yield "a" * 10**6
        assert file.read_text() == "old"
        yield "b"

    write_whole(file, pieces())
    assert file.read_text() == "a" * 10**6 + "b" and [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_is_no_file_keeps_its_name(tmp_path):
    """/dev/stdout, say."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "text")
    reader.join(timeout=20)
    assert read == ["text"] and pipe.is_fifo()
