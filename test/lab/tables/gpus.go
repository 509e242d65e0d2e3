package tables

import (
	"fmt"
	"strconv"
)

// Devices are Gavel's GPUs, in the order of the file.
func Devices() []string { return []string{"k80", "p100", "v100"} }

// GPUJob is one (model, batch size) configuration on one GPU.
type GPUJob struct {
	Model string
	Batch int         // 0 where the name holds none
	Alone []float64   // steps/s by device
	Pair  [][]float64 // own steps/s by device, then by the other's index; 0: the two do not fit
}

// Name is the configuration as people read it.
func (j GPUJob) Name() string {
	if j.Batch == 0 {
		return j.Model
	}
	return j.Model + " " + strconv.Itoa(j.Batch)
}

// GPUJobs returns Gavel's configurations, sorted by model and batch size.
func GPUJobs() ([]GPUJob, error) {
	rows, err := rows("gavel.csv", gavelCSV, false)
	if err != nil {
		return nil, err
	}
	devices := Devices()
	n := len(rows) / len(devices)
	if n*len(devices) != len(rows) || len(rows[0]) != 4+n {
		return nil, fmt.Errorf("gavel.csv: %d rows of %d columns are no table of %d devices", len(rows), len(rows[0]), len(devices))
	}
	out := make([]GPUJob, n)
	for i, r := range rows {
		device, j := i/n, &out[i%n]
		columns := make([]int, n+2)
		for c := range columns {
			columns[c] = c + 2
		}
		figures, err := numbers(r, columns...)
		if err != nil {
			return nil, fmt.Errorf("gavel.csv: %w", err)
		}
		if device == 0 {
			j.Model, j.Batch = r[1], int(figures[0])
		}
		if r[0] != devices[device] || r[1] != j.Model || int(figures[0]) != j.Batch {
			return nil, fmt.Errorf("gavel.csv: row %d is %s %s, where %s %s is due", i+1, r[0], r[1], devices[device], j.Name())
		}
		j.Alone = append(j.Alone, figures[1])
		j.Pair = append(j.Pair, figures[2:])
	}
	return out, nil
}
