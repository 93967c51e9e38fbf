"""Calibrate the CUSUM of analysis.events: python tests/benchmarks/events/thresholds.py

Writes analysis/events/cusum_table.py, in about five minutes. Series of AR(1) noise are simulated
and judged by the whole procedure: median, MAD and autocorrelation from the baseline window, then
the largest S after it. For every length of window and series and every false-alarm rate, h as a
function of the *estimated* autocorrelation is sought so that at no *true* one, and with neither
normal nor t5 innovations, more runs than that raise an alarm.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from analysis.events import cusum as cusum_module
from analysis.events.cusum import CLIP, K, autocorrelation, correlation_axis, cusum

BASELINES = (20, 30, 50, 100, 200, 400, 800)
LENGTHS = (10, 30, 100, 300, 1000, 3000, 10000)
AUTOCORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
SIMULATED = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98)
FALSE_ALARMS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2)
NUM_SERIES, BATCH, BURN_IN, SEED = 4000, 250, 400, 20260101
# Aimed at, of the rate: the rest is for simulation error and for what lies between the points.
_MARGIN = 0.88
_ROUNDS, _RATE, _REACHED = 80, 0.3, 0.05

FloatArray = npt.NDArray[np.float64]

_HEADER = '''"""Thresholds of `analysis.events.cusum`, simulated; written by
tests/benchmarks/events/thresholds.py.

THRESHOLDS holds h, in standard deviations of the baseline, over BASELINES (values in the baseline
window) x LENGTHS (values after it) x AUTOCORRELATIONS (as estimated) x FALSE_ALARMS (per series).
"""

'''


def simulate(phi: float, tail: str, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return the estimated autocorrelation [baselines, series] and the largest S up to each length
    [baselines, lengths, series]."""
    estimates = np.empty((len(BASELINES), NUM_SERIES))
    largest = np.empty((len(BASELINES), len(LENGTHS), NUM_SERIES))
    size = BURN_IN + BASELINES[-1] + LENGTHS[-1]
    for start in range(0, NUM_SERIES, BATCH):
        shape = (BATCH, size)
        noise = rng.standard_normal(shape) if tail == "normal" else rng.standard_t(5, shape)
        series = lfilter([1.0], [1.0, -phi], noise, axis=-1)[:, BURN_IN:]
        chosen = slice(start, start + BATCH)
        for i, n in enumerate(BASELINES):
            window = series[:, :n]
            median = np.median(window, axis=-1, keepdims=True)
            sd = 1.4826 * np.median(np.abs(window - median), axis=-1, keepdims=True)
            z = np.clip((series[:, : n + LENGTHS[-1]] - median) / sd, -CLIP, CLIP)
            estimates[i, chosen] = autocorrelation(z[:, :n])
            highest = np.maximum.accumulate(cusum(z[:, n:]), axis=-1)
            largest[i, :, chosen] = highest[:, [length - 1 for length in LENGTHS]].T
    return estimates, largest


def calibrate(
    estimates: FloatArray, largest: FloatArray, length: int, false_alarm: float
) -> FloatArray:
    """Return h at AUTOCORRELATIONS from estimate and largest S, each [kinds, series]: a kind is one
    true autocorrelation with one tail.

    Starts from each knot's own quantile. Then h rises at the knots that a kind with too many alarms
    has them at, and falls where every kind that gets there has too few.
    """
    false_alarm = _MARGIN * false_alarm
    knots = correlation_axis(np.array(AUTOCORRELATIONS))
    places = np.interp(correlation_axis(estimates), knots, np.arange(len(knots)))
    # Share of each knot in the interpolation at every estimate, [knots, kinds, series].
    shares = np.maximum(0.0, 1.0 - np.abs(places - np.arange(len(knots))[:, None, None]))
    mass = shares.mean(axis=-1)
    never = np.log(length * (CLIP - K) + 1.0)
    log_h = np.full(len(knots), np.log(np.quantile(largest[0], 1 - false_alarm) + 0.5))
    for _ in range(_ROUNDS):
        ratio = largest / np.exp(np.tensordot(log_h, shares, axes=1))
        excess = np.log(np.quantile(ratio, 1 - false_alarm, axis=-1) + 1e-3)
        alarms = (shares * (ratio > 1)).mean(axis=-1)
        blame = alarms / np.maximum(alarms.max(axis=0), 1e-9)
        rise = (blame * np.maximum(excess, 0.0)).max(axis=1)
        fall = np.where(mass > _REACHED, excess, -np.inf).max(axis=1)
        fall = np.where(np.isfinite(fall) & (rise < 0.01), np.minimum(fall, 0.0), 0.0)
        log_h = np.clip(log_h + _RATE * (rise + fall), 0.0, never)
    log_h = np.maximum.accumulate(log_h)
    ratio = largest / np.exp(np.tensordot(log_h, shares, axes=1))
    worst = float(np.quantile(ratio, 1 - false_alarm, axis=-1).max())
    h: FloatArray = np.minimum(np.exp(log_h) * max(1.0, worst), np.exp(never))
    return h


def main() -> None:
    """Simulate, calibrate and write the table."""
    rng = np.random.default_rng(SEED)
    found = [simulate(phi, tail, rng) for phi in SIMULATED for tail in ("normal", "t5")]
    estimates = np.array([pair[0] for pair in found])
    largest = np.array([pair[1] for pair in found])
    lines = []
    for i in range(len(BASELINES)):
        for j in range(len(LENGTHS)):
            h = np.stack(
                [
                    calibrate(estimates[:, i], largest[:, i, j], LENGTHS[j], false_alarm)
                    for false_alarm in FALSE_ALARMS
                ],
                axis=-1,
            )
            lines += [" ".join(f"{value:.4g}" for value in row) for row in h]
    path = Path(cusum_module.__file__).with_name("cusum_table.py")
    path.write_text(
        f"{_HEADER}BASELINES = {BASELINES}\nLENGTHS = {LENGTHS}\n"
        f"AUTOCORRELATIONS = {AUTOCORRELATIONS}\nFALSE_ALARMS = {FALSE_ALARMS}\n"
        f'MIN_BASELINE = BASELINES[0]\n\nTHRESHOLDS = """\n' + "\n".join(lines) + '\n"""\n'
    )


if __name__ == "__main__":
    main()
