"""What is said of the ways in which a model is read."""

from __future__ import annotations

from art_cli.models.forward.ways import Ways


def test_only_what_is_slower_is_said_and_of_the_engine_only_where_it_is_ours() -> None:
    assert Ways().in_words() == "" and Ways().shares
    slow = Ways(update="rows", engine="anew")
    assert not slow.shares and Ways(update="nodes").shares
    both, update = slow.in_words(), slow.in_words(embedded=False)
    assert both == f"{update}; the embedded engine reads a whole sequence anew for each token"
    assert update == "updates read one sequence after another, and share no prefixes"
    assert Ways(engine="row").in_words(embedded=False) == ""
