"""A numpy and scipy script: many small arrays, a sparse system, transforms and fits."""
import sys

import numpy as np
from scipy import fft, optimize, signal, sparse
from scipy.sparse.linalg import spsolve

n = int(sys.argv[1]) if len(sys.argv) > 1 else 30
rng = np.random.default_rng(7)
total = 0.0
for step in range(n):
    line = sparse.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(20_000, 20_000), format="csc")
    total += float(spsolve(line, rng.random(20_000)).sum())
    wave = fft.irfft(fft.rfft(rng.random(1 << 15)) * 0.5)
    total += float(signal.convolve(wave[:4096], np.hanning(64)).max())
    x = np.linspace(0, 4, 200)
    y = 2.5 * np.exp(-1.3 * x) + 0.05 * rng.random(200)
    fit, _ = optimize.curve_fit(lambda t, a, b: a * np.exp(-b * t), x, y)
    total += float(fit[0])
    for _ in range(3000):
        small = np.arange(16) * 2.0
        total += float(small @ small)
print(round(total, 3))
