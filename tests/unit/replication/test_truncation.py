"""Where two logs part, told by their leader epochs."""

from __future__ import annotations

import pytest

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import EpochEnd
from tidelog.replication import truncation


@pytest.mark.rule("V32")
def test_a_follower_starts_at_its_end_whatever_its_high_watermark() -> None:
    assert truncation.offset_on_becoming_follower(10, 4) == 10


@pytest.mark.rule("V32")
def test_a_prefix_does_not_diverge() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10)])
    assert truncation.diverging_epoch(epochs, 20, 3, 15) is None
    assert truncation.diverging_epoch(epochs, 20, 1, 10) is None
    assert truncation.diverging_epoch(epochs, 20, -1, 0) is None
    assert truncation.diverging_epoch(epochs, 20, 1, 0) is None, "nothing is known of what is below"


@pytest.mark.rule("V32")
def test_an_epoch_that_the_leader_does_not_have_diverges_at_the_one_before() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10)])
    assert truncation.diverging_epoch(epochs, 20, 2, 12) == EpochEnd(1, 10)


@pytest.mark.rule("V32")
def test_an_offset_beyond_the_end_of_its_epoch_diverges_there() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10)])
    assert truncation.diverging_epoch(epochs, 20, 1, 12) == EpochEnd(1, 10)
    assert truncation.diverging_epoch(epochs, 20, 3, 25) == EpochEnd(3, 20)


@pytest.mark.rule("V67")
def test_an_epoch_that_begins_later_here_diverges_at_the_one_before() -> None:
    """No checksum covers a batch's epoch: a damaged bit there makes a log that never fits."""
    epochs = LeaderEpochs([(0, 0), (1, 66), (2, 120), (4, 300)])
    assert truncation.diverging_epoch(epochs, 320, 2, 64) == EpochEnd(0, 66)
    assert truncation.diverging_epoch(epochs, 320, 4, 300) == EpochEnd(2, 300)
    assert truncation.diverging_epoch(epochs, 320, 4, 301) is None


@pytest.mark.rule("V67")
def test_an_epoch_above_all_of_ours_has_no_answer() -> None:
    with pytest.raises(KafkaError) as raised:
        truncation.diverging_epoch(LeaderEpochs([(1, 0)]), 20, 2, 12)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.rule("V32")
def test_the_follower_cuts_to_the_smaller_end_of_a_shared_epoch() -> None:
    own = LeaderEpochs([(1, 0), (2, 12)])
    assert truncation.truncation_offset(EpochEnd(1, 10), own, 15) == 10
    assert truncation.truncation_offset(EpochEnd(1, 14), own, 15) == 12
    assert truncation.truncation_offset(EpochEnd(2, 20), own, 15) == 15


@pytest.mark.rule("V32")
def test_where_the_follower_lacks_the_epoch_it_cuts_to_its_own_largest_below() -> None:
    own = LeaderEpochs([(1, 0), (4, 12)])
    assert truncation.truncation_offset(EpochEnd(3, 14), own, 15) == 12


@pytest.mark.rule("V32")
def test_without_an_epoch_of_its_own_the_leaders_end_counts() -> None:
    assert truncation.truncation_offset(EpochEnd(3, 14), LeaderEpochs(), 20) == 14
    assert truncation.truncation_offset(EpochEnd(3, 14), LeaderEpochs(), 12) == 12


@pytest.mark.rule("V32")
def test_an_epoch_that_the_leader_does_not_have_diverges_wherever_the_one_before_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10)])
    assert truncation.diverging_epoch(epochs, 20, 2, 8) == EpochEnd(1, 10)


@pytest.mark.rule("V67")
def test_a_log_of_epochs_before_the_first_known_one_diverges_below_the_log_start() -> None:
    epochs = LeaderEpochs([(3, 10)])
    assert truncation.below_log_start(epochs, 10, 2, 10) == EpochEnd(2, 9)
    assert truncation.below_log_start(epochs, 5, 2, 10) == EpochEnd(2, 4)
    assert truncation.below_log_start(epochs, 0, 2, 10) == EpochEnd(2, 0)
    assert truncation.below_log_start(epochs, 10, 2, 9) is None, "it is out of range already"
    assert truncation.below_log_start(epochs, 10, 3, 10) is None
    assert truncation.below_log_start(epochs, 10, -1, 10) is None
