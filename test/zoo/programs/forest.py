"""A random forest of scikit-learn on random data; a step is a forest of ten trees."""

import numpy
from sklearn.ensemble import RandomForestClassifier

import zoolog

rng = numpy.random.default_rng(1)
x = rng.standard_normal((4_000, 20))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
log = zoolog.Log()
while True:
    RandomForestClassifier(n_estimators=10, n_jobs=2).fit(x, y)
    log.step()
