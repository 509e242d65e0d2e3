// A network of TensorFlow.js on its plain JavaScript backend; a step is an epoch.
require('@tensorflow/tfjs-backend-cpu');
const tf = { ...require('@tensorflow/tfjs-core'), ...require('@tensorflow/tfjs-layers') };

async function main() {
  await tf.setBackend('cpu');
  const x = tf.randomNormal([1024, 32], 0, 1, 'float32', 1);
  const y = tf.cast(tf.greater(tf.mul(tf.slice(x, [0, 0], [-1, 1]), tf.slice(x, [0, 1], [-1, 1])), 0), 'float32');
  const model = tf.sequential();
  model.add(tf.layers.dense({ units: 64, activation: 'relu', inputShape: [32] }));
  model.add(tf.layers.dense({ units: 1, activation: 'sigmoid' }));
  model.compile({ optimizer: 'adam', loss: 'binaryCrossentropy' });
  await model.fit(x, y, {
    epochs: 1e9, batchSize: 256, verbose: 0, yieldEvery: 'never',
    callbacks: { onEpochEnd: () => console.log('epoch') },
  });
}

main();
