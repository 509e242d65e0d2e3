// Two worker threads that each train a network of Synaptic; a step is an iteration of one of them.
const { Worker, isMainThread, parentPort } = require('node:worker_threads');

if (isMainThread) {
  for (let i = 0; i < 2; i++) {
    new Worker(__filename).on('message', () => console.log('iteration'));
  }
} else {
  const { Architect, Trainer } = require('synaptic');
  const trainer = new Trainer(new Architect.Perceptron(10, 40, 1));
  const set = [];
  for (let i = 0; i < 200; i++) {
    const input = Array.from({ length: 10 }, Math.random);
    set.push({ input, output: [input[0] > input[1] ? 1 : 0] });
  }
  for (;;) {
    trainer.train(set, { iterations: 1, error: 0 });
    parentPort.postMessage(0);
  }
}
