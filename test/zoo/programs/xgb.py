"""Gradient boosting with XGBoost on random data; a step is a round of it."""

import numpy
import xgboost

import zoolog

rng = numpy.random.default_rng(1)
x = rng.standard_normal((20_000, 40), dtype=numpy.float32)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
data = xgboost.DMatrix(x, label=y)
log = zoolog.Log()
while True:
    booster = xgboost.Booster({"objective": "binary:logistic", "max_depth": 6, "nthread": 2}, [data])
    for i in range(50):
        booster.update(data, i)
        log.step()
