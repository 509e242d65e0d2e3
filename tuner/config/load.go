package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file; a longer one is a mistake.
const maxFileBytes = 1 << 20

// Problem is one thing that is wrong, and where.
type Problem struct {
	At   string `json:"at,omitempty"`  // "FILE:LINE", or FILE, or "" for a value that no file set
	Key  string `json:"key,omitempty"` // "match[1].cpu.min"; "" if the file itself is wrong
	Text string `json:"text"`          // what is wrong and what is allowed
}

// Error says it in one line.
func (p Problem) Error() string {
	out := ""
	if p.At != "" {
		out = p.At + ": "
	}
	if p.Key != "" {
		out += p.Key + ": "
	}
	return out + p.Text
}

// Load reads the file, then the .yaml files of dropDir in the order of their
// names: later ones override single values and append match rules. A file or
// folder that is not there is a warning, and the defaults stand; an empty dropDir
// is not read. Warnings are of what is allowed and probably not meant. The error
// joins all Problems; the Config is then not to be used.
func Load(file, dropDir string) (Config, []string, error) {
	files, warnings, err := listFiles(file, dropDir)
	if err != nil {
		return Config{}, warnings, errors.Join(err)
	}
	cfg := Default()
	d := &decoder{at: map[string]string{}}
	warnings = append(warnings, checkOwner(dropDir)...) // who may put a file there
	for _, name := range files {
		warnings = append(warnings, checkOwner(name)...)
		d.file(name, &cfg)
	}
	warnings = append(warnings, d.warnings...)
	for key, why := range Retired() {
		if at := d.position(key); at != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s has no effect any more: %s; take it out", at, key, why))
		}
	}
	if w := cfg.openPage(); w != "" {
		warnings = append(warnings, d.position("page.listen")+": "+w)
	}
	open := cfg.Notify.openTokens()
	for _, key := range slices.Sorted(maps.Keys(open)) { // the same files say the same
		warnings = append(warnings, d.position(key)+": "+open[key])
	}
	problems := d.problems
	if len(problems) == 0 { // what failed to decode would only be found wrong twice
		problems = cfg.problems()
	}
	var errs []error
	for _, p := range problems {
		if p.At == "" {
			p.At = d.position(p.Key)
		}
		errs = append(errs, p)
	}
	return cfg, warnings, errors.Join(errs...)
}

// Retired are keys that are still read and have no effect, with the reason.
func Retired() map[string]string {
	return map[string]string{"policy": "there is one way to decide"}
}

// Renamed are keys' names of the version before, and those of now. A block's own name is looked
// up before the keys in it.
func Renamed() map[string]string {
	return map[string]string{
		"observe": "watch", "ramp": "maxTuned", "heal": "repairGPUAccess", "budget": "overhead", "overhead.job": "overhead.perContainer",
		"thresholds.steal": "thresholds.maxExcessSteal", "idle": "gpu", "gpu.after": "gpu.idleAfter",
	}
}

// NeedsRestart names the keys whose change a reload cannot carry out.
func NeedsRestart(old, now Config) []string {
	var out []string
	for _, k := range []struct {
		name     string
		was, new any
	}{
		{"tick", old.Tick, now.Tick}, {"docker", old.Docker, now.Docker}, {"containerd", old.Containerd, now.Containerd},
		{"notify", old.Notify, now.Notify}, {"metrics", old.Metrics, now.Metrics}, {"page", old.Page, now.Page}, {"api", old.API, now.API},
		{"stateDir", old.StateDir, now.StateDir}, {"identityKey", old.IdentityKey, now.IdentityKey},
		{"overhead.maps", old.Overhead.Maps, now.Overhead.Maps}, {"record", old.Record, now.Record}, {"history", old.History, now.History}, {"profiles", old.Profiles, now.Profiles},
	} {
		if !reflect.DeepEqual(k.was, k.new) {
			out = append(out, k.name)
		}
	}
	return out
}

// Problems takes apart the error of Load.
func Problems(err error) (out []Problem) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, e.(Problem))
		}
	}
	return out
}

// listFiles returns what is to be read, in order.
func listFiles(file, dropDir string) (files []string, warnings []string, err error) {
	switch _, err := os.Stat(file); {
	case err == nil:
		files = append(files, file)
	case errors.Is(err, fs.ErrNotExist):
		warnings = append(warnings, file+" is not there: the defaults are in force")
	default:
		return nil, nil, Problem{At: file, Text: err.Error()}
	}
	if dropDir == "" {
		return files, warnings, nil
	}
	entries, err := os.ReadDir(dropDir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, warnings, Problem{At: dropDir, Text: err.Error()}
	}
	for _, e := range entries {
		switch {
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
		case filepath.Ext(e.Name()) != ".yaml":
			warnings = append(warnings, filepath.Join(dropDir, e.Name())+" is not read: its name does not end in .yaml")
		default:
			files = append(files, filepath.Join(dropDir, e.Name()))
		}
	}
	return files, warnings, nil
}

// checkOwner warns of what lets others than root, and than who asks, change what the daemon does.
func checkOwner(name string) (out []string) {
	info, err := os.Stat(name)
	if err != nil {
		return nil // reading it says so
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		out = append(out, fmt.Sprintf("%s is user %d's, who can change it: chown root it", name, stat.Uid))
	}
	if info.Mode().Perm()&0o022 != 0 {
		out = append(out, fmt.Sprintf("%s can be written by others (mode %04o): chmod go-w it", name, info.Mode().Perm()))
	}
	return out
}

// file decodes one file over cfg.
func (d *decoder) file(name string, cfg *Config) {
	d.name = name
	data, err := readFile(name)
	if err != nil {
		d.problems = append(d.problems, Problem{At: name, Text: err.Error()})
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return // empty, or nothing but comments
	} else if err != nil {
		d.problems = append(d.problems, Problem{At: name, Text: strings.TrimPrefix(err.Error(), "yaml: ")})
		return
	}
	d.ruleOffset = len(cfg.Match)
	rules := cfg.Match
	cfg.Match = nil
	d.document(&doc, cfg)
	cfg.Match = slices.Concat(rules, cfg.Match)
	if dec.Decode(new(yaml.Node)) == nil {
		d.problems = append(d.problems, Problem{At: name, Text: "more than one document; allowed is one, without ---"})
	}
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("longer than %d bytes", maxFileBytes)
	}
	return data, err
}
