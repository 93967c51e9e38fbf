"""Numbers of sequences from ids of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.replay.sources.numbering import Numbering, SplitSequenceError


def test_a_sequence_goes_on_in_the_next_rows() -> None:
    numbering = Numbering()
    first = numbering.number(np.array([5, 5, 3]), None)
    second = numbering.number(np.array([3, 3, 9]), None)
    third = numbering.number(np.array([10]), None)
    assert first.tolist() == [0, 0, 1]
    assert second.tolist() == [1, 1, 2]
    assert third.tolist() == [3]


def test_an_id_begins_a_new_sequence_at_each_step() -> None:
    numbering = Numbering()
    found = numbering.number(np.array([0, 1, 0, 1]), np.array([1, 1, 2, 2]))
    assert found.tolist() == [0, 1, 2, 3]


def test_an_id_that_comes_again_is_an_error_with_its_row() -> None:
    numbering = Numbering()
    numbering.number(np.array([5, 3]), None)
    with pytest.raises(SplitSequenceError) as caught:
        numbering.number(np.array([3, 5]), None)
    assert caught.value.row == 3


def test_many_growing_ids_are_numbered_without_being_kept() -> None:
    numbering = Numbering()
    numbering.number(np.arange(200_000), None)
    assert numbering.number(np.array([200_000]), None).tolist() == [200_000]
    with pytest.raises(SplitSequenceError):
        numbering.number(np.array([150_000]), None)


def test_texts_keep_their_numbers() -> None:
    numbering = Numbering()
    first = numbering.codes(np.array(["b", "a"], dtype=object))
    second = numbering.codes(np.array(["a", "c"], dtype=object))
    assert first.tolist() == [0, 1]
    assert second.tolist() == [1, 2]
