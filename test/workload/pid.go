package workload

import (
	"context"
	"fmt"
	"strconv"
)

// PID is the host PID of the container's init process.
func (j *Job) PID(ctx context.Context) (int, error) {
	text, err := docker(ctx, "inspect", "--format", "{{.State.Pid}}", j.ID)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("workload %s: Docker says its PID is %q: has it ended?", j.Name, text)
	}
	return pid, nil
}
