"""How weights are packed: scales and zero points."""

import numpy as np
import pytest

import tessera
from conftest import f32


def squared_error(packed, dense):
    return float(((np.asarray(tessera.dequantize(packed)) - dense) ** 2).mean())


def test_how_scales_are_found(rng):
    w = f32(rng, 16, 64)
    error = {how: squared_error(tessera.quantize(w, search=how), w) for how in ("least_squares", "from_max")}
    assert squared_error(tessera.quantize(w), w) == error["least_squares"] < 0.98 * error["from_max"]
    decoded = np.asarray(tessera.dequantize(tessera.quantize(w, format="int8", search="from_max")))
    scale = np.abs(w).max(1, keepdims=True) / 127  # the largest of a row has the largest code
    np.testing.assert_allclose(decoded, np.rint(w / scale) * scale, rtol=1e-5)
    with pytest.raises(tessera.Error, match="search 'fast' is not known; give one of: least_squares, from_max"):
        tessera.quantize(w, search="fast")


def test_zero_points_fit_weights_that_are_all_positive(rng):
    w = f32(rng, 16, 64) + 4
    plain, fitted = (tessera.quantize(w, format="int4", group=32, zero_point=given) for given in (False, True))
    assert squared_error(fitted, w) < 0.5 * squared_error(plain, w)
    shape = {"format": "int4", "group": 32, "out_features": 16, "in_features": 64}
    assert plain.nbytes == tessera.packed_bytes(**shape)
    assert fitted.nbytes == tessera.packed_bytes(**shape, zero_point=True) > plain.nbytes
    x = f32(rng, 3, 64)
    expected = x.astype(np.float64) @ np.asarray(tessera.dequantize(fitted)).T
    np.testing.assert_allclose(tessera.linear(x=x, weight=fitted), expected, rtol=1e-4, atol=1e-3)
    with pytest.raises(tessera.Error, match="zero point"):
        tessera.quantize(w, zero_point=True)
