package probes

import "slices"

// Counted is an event of training programs that entries of exported functions count. Which
// library exports a function was looked up in it or in its source; docs/rate.md says which.
type Counted struct {
	Source string // names its ticks
	What   string // what one is, in the plural
	Step   bool   // one is a step by its meaning: nothing needs to confirm it
	// InMemory: what it trains on was made before, so its process's other threads compute.
	InMemory bool
	Library  string // part of the path of the files that export them
	// Functions are groups. Of a group one function may call another, so the one with most entries
	// counts; groups add up. A name that ends in * stands for all that begin so.
	Functions [][]string
}

// counted is in order of preference. What comes more often goes first within one framework: the rarer
// one says how many of it make a step.
//
//trimtab:table of functions
var counted = []Counted{
	// BoostOneIter calls TrainOneIter from XGBoost 2.0 on.
	{"xgboost.update", "boosting rounds", true, true, "xgboost", [][]string{
		{"XGBoosterUpdateOneIter"}, {"XGBoosterBoostOneIter", "XGBoosterTrainOneIter"}}},
	{"lightgbm.update", "boosting rounds", true, true, "lightgbm", [][]string{
		{"LGBM_BoosterUpdateOneIter"}, {"LGBM_BoosterUpdateOneIterCustom"}}},
	{"caffe.update", "steps of the solver", true, false, "caffe", [][]string{
		{"_ZN5caffe9SGDSolverIfE11ApplyUpdateEv"}, {"_ZN5caffe9SGDSolverIdE11ApplyUpdateEv"}}},
	{"fann.epoch", "epochs", false, true, "fann", [][]string{{"fann_train_epoch"}}},
	{"torch.backward", "backward passes", false, false, "torch", [][]string{{"_ZN5torch8autograd6Engine7executeE*"}}},
	{"torch.optim", "steps of a C++ optimizer", true, false, "torch", [][]string{
		{"_ZN5torch5optim3SGD4stepE*"}, {"_ZN5torch5optim4Adam4stepE*"}, {"_ZN5torch5optim5AdamW4stepE*"},
		{"_ZN5torch5optim7RMSprop4stepE*"}, {"_ZN5torch5optim7Adagrad4stepE*"}, {"_ZN5torch5optim5LBFGS4stepE*"}}},
	{"tensorflow.run", "runs of a session", false, false, "tensorflow", [][]string{{"TF_SessionRun"}}},
	{"tensorflow.execute", "eager operations and functions", false, false, "tensorflow", [][]string{{"TFE_Execute"}}},
	{"mxnet.backward", "backward passes", false, false, "mxnet", [][]string{{"MXAutogradBackwardEx"}}},
	{"ggml.batch", "batches, of evaluation too", false, false, "ggml", [][]string{{"ggml_opt_eval"}}},
}

// Sources of what a job says of its own steps.
const (
	SourceLog      = "log"      // TGID is the container's init process
	SourceDatagram = "datagram" // TGID is the sender
)

// Claimed reports whether a source is the job's own word.
func Claimed(source string) bool { return source == SourceLog || source == SourceDatagram }

// CountedEvents are all that are known, in order of preference.
func CountedEvents() []Counted { return slices.Clone(counted) }

// Preference is a tick source's place among those that are known, and whether a tick of it is a
// step; a source that is not known comes last.
func Preference(source string) (place int, step bool) {
	i := slices.IndexFunc(counted, func(c Counted) bool { return c.Source == source })
	if i < 0 {
		return len(counted), false
	}
	return i, counted[i].Step
}

// InMemory reports whether ticks of a source are of a process that trains on what lies in memory.
func InMemory(source string) bool {
	return slices.ContainsFunc(counted, func(c Counted) bool { return c.Source == source && c.InMemory })
}

// ComparePreference orders tick sources by their places.
func ComparePreference(a, b string) int {
	x, _ := Preference(a)
	y, _ := Preference(b)
	return x - y
}
