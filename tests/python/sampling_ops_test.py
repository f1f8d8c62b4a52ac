"""Draws, cut-offs, penalties and biases of logits, as operations."""

import numpy as np
import pytest

import tessera
from conftest import f32


def test_sampling_ops_agree_with_each_other(rng):
    logits = f32(rng, 3, 50)
    ids = tessera.sample(logits=logits, temperature=0.7, top_k=10, seed=5, draw=2)
    options = np.array([tessera.draw_options(temperature=0.7, top_k=10, seed=5, draw=2 + row) for row in range(3)])
    rows = np.arange(3, dtype=np.int32)
    np.testing.assert_array_equal(tessera.sample_rows(logits=logits, rows=rows, options=options), ids)
    np.testing.assert_array_equal(tessera.sample(logits=logits, temperature=0), logits.argmax(1))
    lp, top_ids, top_lp = tessera.logprobs(logits=logits, rows=rows, ids=ids.astype(np.int32), top=2)
    shifted = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum(1, keepdims=True))
    np.testing.assert_allclose(lp, shifted[rows, ids], atol=1e-5)
    np.testing.assert_array_equal(top_ids, np.argsort(-logits, axis=1)[:, :2])
    np.testing.assert_allclose(top_lp, np.take_along_axis(shifted, top_ids.astype(int), 1), atol=1e-5)


@pytest.mark.parametrize("option", [{"min_p": 0.5}, {"top_p": 0.7}, {"top_k": 2}], ids=" ".join)
def test_unlikely_tokens_are_cut_off(option):
    """Of 0.5, 0.3 and 0.2 each option keeps two, with their shares of the rest."""
    count = 400
    logits, rows = np.tile(np.log(np.float32([0.2, 0.5, 0.3])), (count, 1)), np.arange(count, dtype=np.int32)
    assert set(tessera.sample(logits=logits, seed=1).tolist()) == {0, 1, 2}
    ids = tessera.sample(logits=logits, seed=1, **option)
    assert set(ids.tolist()) == {1, 2} and abs((ids == 1).mean() - 0.625) < 0.1
    options = np.array([tessera.draw_options(seed=1, draw=row, **option) for row in range(count)])
    np.testing.assert_array_equal(tessera.sample_rows(logits=logits, rows=rows, options=options), ids)


@pytest.mark.parametrize(
    "options",
    [{"repetition": 2.0}, {"presence": 0.75}, {"repetition": 1.25, "presence": 0.5, "frequency": 0.25}],
    ids=" ".join,
)
def test_penalties_of_tokens_that_were_seen(options):
    """Repetition counts the prompt's tokens too, presence and frequency those that were generated."""
    logits, slot = np.float32([[1.5, 2.0, -1.0, 3.0, -2.0, 0.5]]), np.zeros(1, np.int32)
    counts = np.zeros((1, 6), np.int32)
    tessera.fill_counts(counts=counts, slot=0, ids=np.int32([1, 2]))  # without values: the prompt's
    tessera.count_tokens(counts=counts, ids=np.int32([3, 3, 4]), slots=np.zeros(3, np.int32))
    out = tessera.adjust_logits(
        logits=logits, rows=slot, slots=slot, counts=counts, penalties=np.array([tessera.penalty_options(**options)])
    )
    expected, by = logits[0].astype(np.float64), options.get("repetition", 1.0)
    for token in (1, 2, 3, 4):
        expected[token] = expected[token] / by if expected[token] > 0 else expected[token] * by
    for token, times in ((3, 2), (4, 1)):
        expected[token] -= options.get("presence", 0.0) + times * options.get("frequency", 0.0)
    np.testing.assert_allclose(out, [expected], atol=1e-6)


def test_logits_are_adjusted_by_bias_and_counts(rng):
    logits, rows = f32(rng, 1, 8), np.zeros(1, np.int32)
    counts = np.full((1, 8), 9, np.int32)
    tessera.fill_counts(counts=counts, slot=0)
    tessera.count_tokens(counts=counts, ids=np.array([3, 3], np.int32), slots=np.zeros(2, np.int32))
    np.testing.assert_array_equal(counts, [[0, 0, 0, 2, 0, 0, 0, 0]])
    out = tessera.adjust_logits(
        logits=logits, rows=rows, bias_begin=np.array([0, 1], np.int32), bias_ids=np.array([5], np.int32),
        bias=np.array([2.5], np.float32), counts=counts, slots=rows,
        penalties=np.array([tessera.penalty_options(frequency=0.5)]),
    )
    expected = logits.copy()
    expected[0, 5] += 2.5
    expected[0, 3] -= 2 * 0.5
    np.testing.assert_allclose(out, expected, atol=1e-6)
