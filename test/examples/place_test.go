package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/place"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

const h100, a100, l4, b200 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", "NVIDIA B200"

// placing is a daemon that knows two jobs, and has two devices: "train" goes ten times as fast on one of
// them, "eval" on either alike. A third, on which both go the fastest by far, is lost.
type placing struct {
	api.Backend
	taken atomic.Int32 // requests with a hold; the third and those after it find none
}

func (*placing) Snapshot() *state.Snapshot { return &state.Snapshot{} }

func (p *placing) Place(ctx context.Context, req state.PlaceRequest) (state.Placement, error) {
	var h place.Host
	for i, model := range []string{a100, h100} {
		h.Devices = append(h.Devices, place.Device{Device: state.Device{Index: i, UUID: fmt.Sprintf("GPU-%04d", i), Name: model, MemTotal: 80 << 30}, Minor: i})
	}
	h.Devices = append(h.Devices, place.Device{Device: state.Device{Index: 2, UUID: "GPU-0002", Name: b200, Lost: "fell off the bus"}})
	if req.Hold {
		for i := range h.Devices[:min(2, int(p.taken.Add(1))-1)] {
			h.Devices[1-i].Holders = []state.Holder{{Name: "earlier"}}
		}
	}
	known := func(id uint64, image string, onA100, onH100, onL4 float64) profiles.Known {
		k := profiles.Known{ID: id, Name: image, Jobs: 1, Print: profiles.Print{Unit: "torch.backward", Image: image}}
		k.Learned.Devices = profiles.CostsOf(map[string]policies.Cost{a100: {Device: 1 / onA100}, h100: {Device: 1 / onH100}, l4: {Device: 1 / onL4}, b200: {Device: 1e-3}})
		return k
	}
	return place.Answer(ctx, h, []profiles.Known{known(1, "train", 2, 20, 1), known(2, "eval", 5, 5, 5)}, func(string, []string) identity.Identity { return identity.Identity{} }, req)
}

// placeBench is a folder with trimtab, docker and nothing else of ours in front of the PATH.
type placeBench struct {
	t    *testing.T
	dir  string
	docs string
	env  []string
	asks *placing
}

// TestPlace runs each example of docs/examples/place with the command as it is built here.
func TestPlace(t *testing.T) {
	real := filepath.Join(t.TempDir(), "trimtab")
	run(t, "../..", "go", "build", "-trimpath", "-buildvcs=false", "-o", real, "./cmd/trimtab")
	for name, test := range map[string]func(*testing.T, string){"shell queue": placeInAShellQueue, "Nomad": placeForNomad, "Kueue": placeForKueue,
		"Slurm's Lua": placeInSlurmsLua, "Slurm": placeInSlurm} {
		t.Run(name, func(t *testing.T) { test(t, real) })
	}
}

func newPlaceBench(t *testing.T, real string, needs ...string) placeBench {
	t.Helper()
	for _, program := range needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install %s", program, program)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := placeBench{t: t, asks: &placing{}, dir: t.TempDir(), docs: filepath.Join(root, "docs", "examples", "place")}
	l, err := api.Listen(filepath.Join(b.dir, "s"), api.Groups{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- api.NewServer(b.asks, slog.New(slog.DiscardHandler), time.Now).Run(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	b.write("bin/trimtab", "#!/bin/sh\nexec "+real+" --socket "+b.dir+"/s \"$@\"\n")
	b.write("bin/docker", "#!/bin/sh\nprintf '<%s>' \"$@\" >> "+b.dir+"/docker.log\necho >> "+b.dir+"/docker.log\n")
	b.env = append(os.Environ(), "PATH="+filepath.Join(b.dir, "bin")+":"+os.Getenv("PATH"))
	return b
}

func (b placeBench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // programs
		b.t.Fatal(err)
	}
}

// sh runs a line of a shell in the examples' folder.
func (b placeBench) sh(line string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = b.docs, b.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// placeInAShellQueue: two lines start on two devices with their words as they stand, and the
// third waits until one is free.
func placeInAShellQueue(t *testing.T, real string) {
	b := newPlaceBench(t, real)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec ./queue.sh < "+b.dir+"/jobs.txt")
	cmd.Dir, cmd.Env = b.docs, append(b.env, "QUEUE_PAUSE=0.1")
	b.write("jobs.txt", "train --lr 0.1\n\neval * $(touch "+b.dir+"/no) ; x\ntrain last\n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := "<run><-d><--rm><--gpus><device=GPU-0001><--><train><--lr><0.1>\n<run><-d><--rm><--gpus><device=GPU-0000><--><eval><*><$(touch><" + b.dir + "/no)><;><x>\n"
	for deadline := time.Now().Add(time.Minute); b.asks.taken.Load() < 4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the third line was not asked for again after a pause")
		}
	}
	_ = cmd.Process.Kill() // it waits for a third device, for ever
	_ = cmd.Wait()
	got, err := os.ReadFile(filepath.Join(b.dir, "docker.log"))
	if string(got) != want || err != nil {
		t.Errorf("docker got\n%swant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "no")); err == nil {
		t.Error("a word of a job was run")
	}
}

// placeForNomad: the affinities that Nomad's documentation of device blocks has, in its JSON.
func placeForNomad(t *testing.T, real string) {
	b := newPlaceBench(t, real, "jq")
	out := b.sh(`echo '{"Job":{"TaskGroups":[{"Tasks":[{"Resources":{"CPU":100}}]}]}}' |
		jq -c --argjson d "$(trimtab place --json train | jq -f nomad.jq)" '.Job.TaskGroups[0].Tasks[0].Resources.Devices = $d'`)
	want := `{"Job":{"TaskGroups":[{"Tasks":[{"Resources":{"CPU":100,"Devices":[{"Name":"nvidia/gpu","Count":1,"Affinities":[` +
		`{"LTarget":"${device.model}","Operand":"=","RTarget":"` + a100 + `","Weight":10},{"LTarget":"${device.model}","Operand":"=","RTarget":"` + h100 +
		`","Weight":100},{"LTarget":"${device.model}","Operand":"=","RTarget":"` + l4 + `","Weight":5}]}]}}]}]}}`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if out := b.sh(`trimtab place --json unknown | jq -c -f nomad.jq`); out != `[{"Name":"nvidia/gpu","Count":1,"Affinities":[]}]` {
		t.Errorf("of an unknown job: %s", out)
	}
}

// placeForKueue: a Job may run on the flavors that suit it alone; one of which nothing is known on all.
func placeForKueue(t *testing.T, real string) {
	b := newPlaceBench(t, real, "jq", "kubectl")
	b.write("job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: train}]}}}\n")
	for image, want := range map[string]string{"train": `["NVIDIA-H100-80GB-HBM3"]`, "eval": `["NVIDIA-A100-SXM4-40GB","NVIDIA-H100-80GB-HBM3","NVIDIA-L4"]`, "unknown": "null"} {
		out := b.sh(`kubectl patch --local -o json --type merge -f ` + b.dir + `/job.yaml -p "$(trimtab place --json ` + image + ` | jq -f models.jq | jq -c -f kueue.jq)"`)
		var job struct {
			Spec struct {
				Template struct {
					Spec struct {
						Affinity *struct {
							NodeAffinity struct {
								Required struct {
									NodeSelectorTerms []struct {
										MatchExpressions []struct {
											Key, Operator string
											Values        json.RawMessage
										}
									}
								} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
							}
						}
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &job); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		got := "null"
		if a := job.Spec.Template.Spec.Affinity; a != nil {
			var text bytes.Buffer
			e := a.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
			if err := json.Compact(&text, e.Values); err != nil || e.Key != "nvidia.com/gpu.product" || e.Operator != "In" {
				t.Errorf("%s: %+v, %v", image, e, err)
			}
			got = text.String()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

// slurmJobs are what Slurm is asked for, and what it is to make of it.
func slurmJobs(dir string) []struct{ comment, gres, want string } {
	return []struct{ comment, gres, want string }{
		{"trimtab: train --lr 0.1", "gres:gpu:1", "gres:gpu:h100:1"},
		{"trimtab: train", "gres:gpu", "gres:gpu:h100"},
		{"trimtab: eval", "gres:gpu:1", "gres:gpu:1"},    // several suit it
		{"trimtab: unknown", "gres:gpu:1", "gres:gpu:1"}, // nothing is known
		{"trimtab: train", "gres:gpu:a100:1", "gres:gpu:a100:1"},
		{"something else", "gres:gpu:1", "gres:gpu:1"},
		{"trimtab: --help", "gres:gpu:1", "gres:gpu:1"},
		{"trimtab: train'$(touch " + dir + "/no)' ; touch " + dir + "/no", "gres:gpu:1", "gres:gpu:1"},
	}
}

// placeInSlurmsLua runs the plugin's file as Slurm does: with a table slurm, and jobs as tables.
func placeInSlurmsLua(t *testing.T, real string) {
	lua := ""
	for _, name := range []string{"lua5.1", "lua5.3", "lua5.4", "lua"} { // Slurm links one of these
		if path, err := exec.LookPath(name); err == nil && lua == "" {
			lua = path
		}
	}
	if lua == "" {
		t.Skip("needs lua: apt-get install lua5.1")
	}
	b := newPlaceBench(t, real, "jq")
	b.write("job_submit.lua", b.script())
	program := "slurm = {SUCCESS = 0, log_info = function(...) string.format(...) end}\ndofile(arg[1])\n" +
		"local job = {comment = arg[2], tres_per_node = arg[3]}\nassert(slurm_job_submit(job, {}, 0) == 0 and slurm_job_modify(job, {}, {}, 0) == 0)\n" +
		"assert(slurm_job_submit({}, {}, 0) == 0)\nprint(job.tres_per_node)\n"
	b.write("main.lua", program)
	for _, j := range slurmJobs(b.dir) {
		cmd := exec.CommandContext(t.Context(), lua, filepath.Join(b.dir, "main.lua"), filepath.Join(b.dir, "job_submit.lua"), j.comment, j.gres)
		cmd.Env = b.env
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != j.want {
			t.Errorf("%q with %s: %s, %v; want %s", j.comment, j.gres, out, err, j.want)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "no")); err == nil {
		t.Error("a word of a comment was run")
	}
}

// script is the plugin's file with the path of the filter changed to where it lies here.
func (b placeBench) script() string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.docs, "job_submit.lua"))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Replace(string(text), "/etc/slurm/models.jq", filepath.Join(b.docs, "models.jq"), 1)
}

// placeInSlurm runs Slurm's own controller on the loopback, and submits jobs to it. No node is
// there: they are held, with what the plugin made of them.
func placeInSlurm(t *testing.T, real string) {
	controller := ""
	for _, name := range []string{"slurmctld", "slurmctld-wlm"} {
		if path, err := exec.LookPath(name); err == nil && controller == "" {
			controller = path
		}
	}
	if controller == "" || os.Geteuid() != 0 {
		t.Skip("needs slurmctld, and to be root: apt-get install slurmctld slurm-client")
	}
	b := newPlaceBench(t, real, "jq", "sbatch", "scontrol")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // its number is for the controller
	config := fmt.Sprintf("ClusterName=test\nSlurmctldHost=%s(127.0.0.1)\nSlurmctldPort=%d\nSlurmUser=root\nAuthType=auth/none\nCredType=cred/none\n"+
		"StateSaveLocation=%s/state\nSlurmctldPidFile=%s/pid\nSlurmctldLogFile=%s/log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"+
		"SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nJobSubmitPlugins=lua\nGresTypes=gpu\nNodeName=%s NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:h100:1,gpu:a100:1 State=UNKNOWN\nPartitionName=p Nodes=%[6]s Default=YES\n",
		host, port, b.dir, b.dir, b.dir, host)
	if plugins := filepath.Join(filepath.Dir(controller), "../lib/x86_64-linux-gnu/slurm-wlm"); exists(plugins) { // where it was unpacked, not installed
		config += "PluginDir=" + plugins + "\n"
	}
	b.write("slurm.conf", config)
	b.write("state/.keep", "")
	b.write("job_submit.lua", b.script())
	b.env = append(b.env, "SLURM_CONF="+filepath.Join(b.dir, "slurm.conf"))
	cmd := exec.CommandContext(t.Context(), controller, "-D", "-i")
	cmd.Env = b.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
			t.Logf("%s\n%s", out.String(), log)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ping := exec.CommandContext(t.Context(), "scontrol", "ping")
		ping.Env = b.env
		if text, _ := ping.CombinedOutput(); strings.Contains(string(text), "is UP") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the controller does not answer")
		}
	}
	for _, j := range slurmJobs(b.dir) {
		submit := exec.CommandContext(t.Context(), "sbatch", "--parsable", "--hold", "--gres="+strings.TrimPrefix(j.gres, "gres:"), "--comment="+j.comment, "--wrap=true")
		submit.Env = b.env
		id, err := submit.CombinedOutput()
		if err != nil {
			t.Fatalf("sbatch: %v: %s", err, id)
		}
		show := b.sh("scontrol -o show job " + strings.TrimSpace(string(id)))
		if want := " TresPerNode=" + j.want + " "; !strings.Contains(show+" ", want) {
			t.Errorf("%q with %s: want%s\n%s", j.comment, j.gres, want, show)
		}
	}
	if exists(filepath.Join(b.dir, "no")) {
		t.Error("a word of a comment was run")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
