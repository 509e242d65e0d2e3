"""gensim's word2vec: a thread hands sentences to two that train; a step is an epoch."""

import numpy
from gensim.models import Word2Vec
from gensim.models.callbacks import CallbackAny2Vec

import zoolog


class Told(CallbackAny2Vec):
    def __init__(self):
        self.log = zoolog.Log()

    def on_epoch_end(self, model):
        self.log.step()


rng = numpy.random.default_rng(1)
sentences = [[f"w{i}" for i in row] for row in rng.integers(0, 3000, (1500, 30))]
Word2Vec(sentences, vector_size=64, workers=2, min_count=1, epochs=1 << 30, callbacks=[Told()])
