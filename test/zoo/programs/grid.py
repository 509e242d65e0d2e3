"""A grid search of scikit-learn: joblib's workers are processes; a step is a search."""

import numpy
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import zoolog

rng = numpy.random.default_rng(1)
x = rng.standard_normal((600, 20))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
search = GridSearchCV(SVC(), {"C": [0.1, 1, 10]}, cv=4, n_jobs=2)
log = zoolog.Log()
while True:
    search.fit(x, y)
    log.step()
