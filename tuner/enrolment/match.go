package enrolment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// composeLabel is where Docker Compose writes the project's name.
const composeLabel = "com.docker.compose.project"

// fits reports whether all of the rule's patterns fit.
func (r Rule) fits(c runtime.Container) bool {
	if r.Image != "" && !Glob(r.Image, c.Image) || r.Name != "" && !Glob(r.Name, c.Name) {
		return false
	}
	if project, ok := c.Labels[composeLabel]; r.Compose != "" && (!ok || !Glob(r.Compose, project)) {
		return false
	}
	for key, pattern := range r.Label {
		if value, ok := c.Labels[key]; !ok || !Glob(pattern, value) {
			return false
		}
	}
	return true
}

// Glob matches the whole of s: * is any run of characters, slashes and none
// included (image names have slashes), ? is one byte. It is linear in len(s)
// times the stars, so that no name of a container can stall it.
func Glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0: // let the last star take one more
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Select returns the containers that a request of `trimtab enable` or `disable`
// names: by key, by exact name, by ID or its prefix (of at least 4 characters), by a glob
// over images, or by compose project. It fails if the request is malformed, names
// nothing, or a name or an ID prefix fits several.
func Select(req state.EnableRequest, all []runtime.Container) ([]runtime.Container, error) {
	if named := slices.DeleteFunc([]string{req.Name, req.Image, req.Compose}, func(s string) bool { return s == "" }); len(named) != 1 {
		return nil, fmt.Errorf("name exactly one of a container, an image glob and a compose project")
	}
	if err := CheckFamilies(req.Knobs); err != nil {
		return nil, err
	}
	if req.ForNs < 0 {
		return nil, fmt.Errorf("a time below zero was asked; allowed are times above 0, or none")
	}
	if req.Name != "" {
		return selectOne(req.Name, all)
	}
	rule := Rule{Image: req.Image, Compose: req.Compose}
	var out []runtime.Container
	for _, c := range all {
		if rule.fits(c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no running container fits %s", shown(req.Image+req.Compose))
	}
	return out, nil
}

// selectOne finds the container that a word means: of two it decides for neither.
func selectOne(word string, all []runtime.Container) ([]runtime.Container, error) {
	found, begun := runtime.Find(all, word, func(c runtime.Container) (key, name, id string) { return c.Key(), c.Name, c.ID.Container })
	switch {
	case len(found) == 1:
		return found, nil
	case len(found) == 0:
		return nil, fmt.Errorf("no running container is named %s", shown(word))
	case begun:
		return nil, fmt.Errorf("%d containers have an ID that starts with %s: write more of it", len(found), shown(word))
	}
	return nil, fmt.Errorf("%d containers are named %s: say which by its key, such as %s", len(found), shown(word), found[0].Key())
}

// SelectGPUs returns the minor numbers of the devices that a request names, of those that a container
// was granted: seen. devices are the host's. It fails for one that is unknown or was not granted.
func SelectGPUs(req state.GPURequest, devices []probes.Device, seen []runtime.GPUVisibility, hide bool) (minors []int, err error) {
	if req.All {
		for _, s := range seen {
			if s.Hidden != hide && (s.Hidden || s.Visible) {
				minors = append(minors, s.Minor)
			}
		}
		return minors, nil
	}
	for _, text := range req.Devices {
		minor, err := parseGPU(text, devices)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(seen, func(s runtime.GPUVisibility) bool { return s.Minor == minor })
		if i < 0 || !seen[i].Granted {
			return nil, fmt.Errorf("%s was never granted to it; `trimtab gpu ls` lists what was", runtime.GPUNames(minor))
		}
		minors = append(minors, minor)
	}
	return minors, nil
}

// parseGPU takes an index as nvidia-smi counts, where NVML tells; else N of /dev/nvidiaN.
func parseGPU(text string, devices []probes.Device) (int, error) {
	if strings.HasPrefix(text, "MIG-") {
		return 0, fmt.Errorf("%q is a slice: name its GPU; slices are not hidden one by one", text)
	}
	for _, d := range devices {
		if d.Parent == "" && (d.UUID == text || strconv.Itoa(d.Index) == text) {
			return d.Minor, nil
		}
	}
	name, isNode := strings.CutPrefix(strings.TrimPrefix(text, "/dev/"), "nvidia")
	minor, err := strconv.ParseUint(name, 10, 8)
	if err != nil || !isNode && len(devices) > 0 {
		return 0, fmt.Errorf("device %q is not known; allowed are an index, nvidiaN, /dev/nvidiaN and a UUID", text)
	}
	return int(minor), nil
}
