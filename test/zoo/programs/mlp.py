"""scikit-learn's multi-layer perceptron; a step is a pass over part of the data."""

import numpy
from sklearn.neural_network import MLPClassifier

import zoolog

rng = numpy.random.default_rng(1)
x = rng.standard_normal((2_000, 50))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
model = MLPClassifier((64, 32), batch_size=100)
log = zoolog.Log()
while True:
    model.partial_fit(x, y, [0, 1])
    log.step()
