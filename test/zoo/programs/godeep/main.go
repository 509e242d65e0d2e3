// Command godeep trains a network of the go-deep library; its own printer tells each iteration.
package main

import (
	"math/rand/v2"

	deep "github.com/patrikeh/go-deep"
	"github.com/patrikeh/go-deep/training"
)

func main() {
	random := rand.New(rand.NewPCG(1, 1))
	var examples training.Examples
	for range 2000 {
		x := make([]float64, 20)
		for i := range x {
			x[i] = random.NormFloat64()
		}
		y := 0.0
		if x[0]*x[1] > 0 {
			y = 1
		}
		examples = append(examples, training.Example{Input: x, Response: []float64{y}})
	}
	net := deep.NewNeural(&deep.Config{Inputs: 20, Layout: []int{40, 1}, Activation: deep.ActivationTanh, Mode: deep.ModeBinary, Weight: deep.NewNormal(0.5, 0), Bias: true})
	trainer := training.NewBatchTrainer(training.NewAdam(0.001, 0.9, 0.999, 1e-8), 1, 200, 2)
	trainer.Train(net, examples, examples[:10], 1<<30) // it tells its error on the latter
}
