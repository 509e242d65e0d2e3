// Package config is the host's word: /etc/trimtab/trimtab.yaml and the files of
// conf.d beside it, decoded strictly, with every problem reported at once. It
// reads files and nothing else; what the keys mean is documented in
// example.yaml, which is the defaults, commented.
package config

import (
	_ "embed"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrolment"
)

// Where the daemon looks by default.
const (
	DefaultFile    = "/etc/trimtab/trimtab.yaml"
	DefaultDropDir = "/etc/trimtab/conf.d"
)

// Example is a commented file that sets every key to its default.
//
//go:embed example.yaml
var Example string

// Config is all of it. Parts of the daemon get what they need of it, never the whole.
type Config struct {
	Mode            policies.Mode      `yaml:"mode"`
	Watch           enrolment.Observe  `yaml:"watch"`
	Policy          string             `yaml:"policy"`    // read, and without effect: see Retired
	Objective       policies.Objective `yaml:"objective"` // what the node's CPUs are dealt for
	Loans           policies.LoanMode  `yaml:"loans"`     // what may be lent to anybody: free, proven, off
	Tick            Duration           `yaml:"tick"`
	Reserve         Reserve            `yaml:"reserve"`
	MaxTuned        int                `yaml:"maxTuned"`        // containers tuned at once; 0: no such limit
	RepairGPUAccess bool               `yaml:"repairGPUAccess"` // repair lost GPU access of named containers that are only observed
	GPU             GPU                `yaml:"gpu"`
	Knobs           []string           `yaml:"knobs"`
	Limits          Limits             `yaml:"limits"`
	Overhead        Overhead           `yaml:"overhead"`
	Thresholds      Thresholds         `yaml:"thresholds"`
	Docker          Docker             `yaml:"docker"`
	Containerd      Containerd         `yaml:"containerd"`
	Metrics         Metrics            `yaml:"metrics"`
	Page            Page               `yaml:"page"`
	Notify          Notify             `yaml:"notify"`
	API             API                `yaml:"api"`
	StateDir        string             `yaml:"stateDir"`
	IdentityKey     string             `yaml:"identityKey"` // file with the fleet's key of what jobs are known by; "": this host's own
	Record          Record             `yaml:"record"`
	History         History            `yaml:"history"`
	Log             Log                `yaml:"log"`
	Profiles        Profiles           `yaml:"profiles"`
	Match           []enrolment.Rule   `yaml:"match"`
}

// Profiles says whose known jobs are used beside this host's own.
type Profiles struct {
	Books    string   `yaml:"books"`    // directory of books; "": books below StateDir
	Trust    []string `yaml:"trust"`    // public keys of hosts, each with its name: lines of authorized_keys
	Unsigned bool     `yaml:"unsigned"` // use also books that nobody signed
}

// GPU says when a GPU counts as idle, and what may be done about containers' view of theirs.
type GPU struct {
	IdleAfter Duration `yaml:"idleAfter"` // without a kernel
	Signal    bool     `yaml:"signal"`    // trimtab.gpu.signal may ask for a signal
	// HideAfter is for how long a job must have left a device alone before the policy knee may
	// hide it; ShowAfter for how long nobody may have used it before it is shown again.
	HideAfter Duration `yaml:"hideAfter"`
	ShowAfter Duration `yaml:"showAfter"`
}

// Reserve is what must stay free when trimtab lends.
type Reserve struct {
	CPUs   CPUAmount    `yaml:"cpus"`
	Memory MemoryAmount `yaml:"memory"`
}

// Limits bound how much trimtab changes, whatever a policy proposes.
type Limits struct {
	ChangesPerMinute int      `yaml:"changesPerMinute"` // of the whole host; restores are never limited
	CoolDown         Duration `yaml:"coolDown"`         // of one container, after a trial ended
}

// Overhead is what trimtab itself may use (law: own budget).
type Overhead struct {
	CPU          float64         `yaml:"cpu"` // CPUs of the daemon and its child
	Memory       enrolment.Bytes `yaml:"memory"`
	Maps         enrolment.Bytes `yaml:"maps"`         // kernel memory of BPF maps: bounds how many threads can be followed
	PerContainer float64         `yaml:"perContainer"` // share of one CPU that probes may cost the threads of each container
}

// Thresholds are shares of wall time or of a rate, 0..1.
type Thresholds struct {
	Severity       float64 `yaml:"severity"`       // input wait below it is no verdict (TF profiler)
	Communication  float64 `yaml:"communication"`  // exposed collective wait (PyTorch profiler plugin)
	MaxExcessSteal float64 `yaml:"maxExcessSteal"` // windows that lost so much more than usual to the hypervisor are no evidence
	MinGain        float64 `yaml:"minGain"`        // predicted gain worth a trial
}

// Docker says how the engine is reached.
type Docker struct {
	Enabled    bool   `yaml:"enabled"`
	Host       string `yaml:"host"`
	Containerd string `yaml:"containerd"` // Docker's containerd socket; "": looked for in the usual places
	// ImageLabels: labels of an image ask as those of a container do.
	ImageLabels bool `yaml:"imageLabels"`
}

// Containerd is the engine of containers that containerd runs for others than Docker.
type Containerd struct {
	Enabled    bool     `yaml:"enabled"`
	Address    string   `yaml:"address"`    // path of its socket
	Namespaces []string `yaml:"namespaces"` // those to look at; none: all but Docker's
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	Listen    string `yaml:"listen"`    // "": none
	WebConfig string `yaml:"webConfig"` // exporter-toolkit's file with TLS and users
}

// Page is the web page.
type Page struct {
	Listen    string   `yaml:"listen"`    // "": none
	WebConfig string   `yaml:"webConfig"` // exporter-toolkit's file with TLS and users
	Hosts     []string `yaml:"hosts"`     // names by which browsers may ask for it
}

// API is the Unix socket that the command line talks to.
type API struct {
	Socket     string `yaml:"socket"`
	ReadGroup  string `yaml:"readGroup"`
	WriteGroup string `yaml:"writeGroup"`
}

// Record is the flight recorder.
type Record struct {
	Ring enrolment.Bytes `yaml:"ring"` // 0: off
}

// History bounds what is kept of changes and trials.
type History struct {
	MaxBytes enrolment.Bytes `yaml:"maxBytes"`
	MaxAge   Duration        `yaml:"maxAge"`
}

// Log is what goes to standard error.
type Log struct {
	Level string `yaml:"level"`
}

// Default returns the configuration of a host without a file: GPU containers and
// named ones are watched, and those are tuned that a label or command enrols.
func Default() Config {
	return Config{
		Mode:       policies.ModeTune,
		Watch:      enrolment.ObserveGPU,
		Objective:  policies.ObjectiveSum,
		Loans:      policies.LoansFree,
		Tick:       Duration(time.Second),
		Reserve:    Reserve{CPUs: CPUAmount{Share: 0.1}, Memory: MemoryAmount{Share: 0.1}},
		Knobs:      []string{"cpu"},
		Limits:     Limits{ChangesPerMinute: 30, CoolDown: Duration(20 * time.Second)},
		Overhead:   Overhead{CPU: 0.02, Memory: 128 << 20, Maps: 32 << 20, PerContainer: 0.005},
		Thresholds: Thresholds{Severity: 0.05, Communication: 0.10, MaxExcessSteal: 0.02, MinGain: 0.05},
		GPU:        GPU{IdleAfter: Duration(30 * time.Second), HideAfter: Duration(10 * time.Minute), ShowAfter: Duration(5 * time.Minute)},
		Docker:     Docker{Enabled: true, Host: "unix:///var/run/docker.sock"},
		Containerd: Containerd{Address: "/run/containerd/containerd.sock", Namespaces: []string{}},
		Metrics:    Metrics{Listen: "127.0.0.1:9477"},
		Page:       Page{Hosts: []string{}},
		Notify:     defaultNotify(),
		API:        API{Socket: "/run/trimtab/trimtab.sock", ReadGroup: "trimtab-read", WriteGroup: "trimtab"},
		StateDir:   "/var/lib/trimtab",
		Record:     Record{Ring: 64 << 20},
		History:    History{MaxBytes: 256 << 20, MaxAge: Duration(30 * 24 * time.Hour)},
		Log:        Log{Level: "info"},
		Profiles:   Profiles{Trust: []string{}},
	}
}

// Rules returns the part that enrolment works with.
func (c Config) Rules() enrolment.Rules {
	return enrolment.Rules{Mode: c.Mode, Observe: c.Watch, Knobs: c.Knobs, Loans: c.Loans, Match: c.Match}
}

// Host returns what enrolment needs to know of a node with so much.
func (c Config) Host(cpus float64, memoryBytes uint64) enrolment.Host {
	return enrolment.Host{
		CPUs: cpus, ReserveCPUs: c.Reserve.CPUs.Of(cpus),
		MemoryBytes: float64(memoryBytes), ReserveMemory: c.Reserve.Memory.Of(float64(memoryBytes)),
	}
}
