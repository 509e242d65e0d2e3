package advice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/state"
)

// cpuLines set a quota, CPUs.
func cpuLines(cpus float64) []Line {
	v := strings.TrimSuffix(fmt.Sprintf("%.2f", cpus), "0")
	return []Line{{"docker run", "--cpus=" + v}, {"compose", "cpus: " + v}}
}

func memoryLines(bytes float64) []Line { return bytesLines("--memory=", "mem_limit: ", bytes) }
func shmLines(bytes float64) []Line    { return bytesLines("--shm-size=", "shm_size: ", bytes) }

// bytesLines set bytes in whole MiB: a limit, or the size of /dev/shm.
func bytesLines(option, key string, bytes float64) []Line {
	v := fmt.Sprintf("%.0fm", bytes/mib)
	return []Line{{"docker run", option + v}, {"compose", key + v}}
}

// threadLines set the threads of OpenMP, and of a BLAS that heeds it.
func threadLines(threads float64) []Line {
	return []Line{{"docker run", fmt.Sprintf("-e OMP_NUM_THREADS=%.0f", threads)}, {"compose", fmt.Sprintf(`environment: {OMP_NUM_THREADS: "%.0f"}`, threads)}}
}

// allowLines let trimtab move knobs of a container: now, and for good.
func allowLines(c state.Container, knobs string) []Line {
	return append(named(c, "trimtab enable %s --knobs "+knobs),
		Line{"docker run", "--label trimtab.enable=true --label trimtab.knobs=" + knobs},
		Line{"compose", `labels: {trimtab.enable: "true", trimtab.knobs: "` + knobs + `"}`})
}

// gpuLines give a container these devices. An UUID of another form than NVIDIA's is in no line.
func gpuLines(uuids []string) []Line {
	if slices.ContainsFunc(uuids, func(u string) bool { return !plain(u) }) {
		return nil
	}
	return []Line{{"docker run", `--gpus '"device=` + strings.Join(uuids, ",") + `"'`},
		{"compose", `deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["` + strings.Join(uuids, `", "`) + `"], capabilities: [gpu]}]}}}`}}
}

// volumeLines mount a copy of a network mount, PATH on this host, in its place. A mount point of other
// characters than those of names and slashes is in no line.
func volumeLines(mount string) []Line {
	if name, ok := strings.CutPrefix(mount, "/"); !ok || !plain(strings.ReplaceAll(name, "/", "-")) || strings.Contains(mount, "..") {
		return nil
	}
	return []Line{{"docker run", "-v PATH:" + mount}, {"compose", `volumes: ["PATH:` + mount + `"]`}}
}

// named puts a container's name into a command: as its engine allows names, else its ID, else none.
func named(c state.Container, format string) []Line {
	for _, s := range []string{c.Name, c.ID} {
		if plain(s) {
			return []Line{{"shell", fmt.Sprintf(format, s)}}
		}
	}
	return nil
}

// maxPlain bounds a name in a command; UUIDs have 40 characters, IDs 64.
const maxPlain = 128

// plain tells texts of the characters that Docker allows in a name: none of them means anything to a
// shell or to YAML, and none begins an option.
func plain(s string) bool {
	const begin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= maxPlain && strings.Contains(begin, s[:1]) && strings.Trim(s, begin+"_.-") == ""
}

func plainOr(s, otherwise string) string {
	if plain(strings.ReplaceAll(s, "/", "-")) {
		return s
	}
	return otherwise
}
