package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/played"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

// elsewhereFile says of each command that is not run here which test names it, or why none does:
//
//	COMMAND | FILE: TEXT      FILE, of a test or a target, has TEXT, which spells the command (docs_pin_test.go)
//	COMMAND | not run: WHY         but the target, the program or the test is there
//
// A * stands for anything. `go test` need not be listed: `make test` runs the tests, if they are there.
const elsewhereFile = "testdata/docs-commands.list"

// notRun is how a command is listed that nobody runs.
const notRun = "not run"

// walkedPage is walked by test/vm, command by command.
const walkedPage = "docs/first-day.md"

// TestDocsCommandsRun: each command of the pages is run, here against a daemon that was played a
// recording, or by another test; or it is listed, with the reason why nothing runs it.
func TestDocsCommandsRun(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "make", "openssl", "ssh", "systemd-analyze", "tar", "unshare", "zstd"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: the pages' commands are run with it", tool)
		}
	}
	elsewhere := readElsewhere(t)
	sh := newShell(t, playedDaemon(t))
	sh.write("trimtab.yaml", config.Example)
	sh.write("night.yaml", "- {image: train, steps: 90000}\n- {image: eval, seconds: 600, count: 3}\n")
	sh.hosts["http://prometheus:9090"] = onePrometheus(t, nil)
	counts := map[string]int{}
	all, moved := commandsOfPages(t), movedHere(t, sh)
	for _, line := range slices.Sorted(maps.Keys(all)) {
		at := all[line]
		if how, listed := elsewhere.of(line); listed {
			counts[how]++
			if how == notRun {
				if err := isThere(t, line); err != nil {
					t.Errorf("%s: $ %s: %v", at, line, err)
				}
			}
			continue
		}
		if strings.HasPrefix(line, "go test ") {
			if err := isThere(t, line); err != nil {
				t.Errorf("%s: $ %s: %v", at, line, err)
			}
			counts["tests"]++
			continue
		}
		if strings.HasPrefix(at, walkedPage) && !strings.HasPrefix(line, "trimtab ") {
			counts["walked"]++
			continue
		}
		run, isMoved := moved[line]
		if !isMoved && !isHarmless(line) {
			t.Errorf("%s: nothing runs %q, and %s does not say why", at, line, elsewhereFile)
			continue
		}
		if !isMoved {
			run = spelledOut(line)
		}
		delete(moved, line)
		if out, code := sh.run(run); code != 0 {
			t.Errorf("%s: $ %s\nended with %d\n%s", at, line, code, out)
		}
		counts["here"]++
	}
	elsewhere.unused(t)
	for line := range moved {
		t.Errorf("no page has %q", line)
	}
	t.Logf("docs commands: %d of %d run here, %d walked by test/vm, %d spelled in other tests; %d are tests or benchmarks that are there; %d are listed with why not",
		counts["here"], len(all), counts["walked"], counts["named"], counts["tests"], counts[notRun])
	if counts["here"] < 105 || len(all) < 250 {
		t.Errorf("%d of %d commands are run: there were more, of more", counts["here"], len(all))
	}
}

// movedHere are commands of the pages with what is run for them: what they name without an argument is
// given one, and what would touch the host has a tree of its own.
func movedHere(t *testing.T, sh *shell) map[string]string {
	t.Helper()
	packaging, err := filepath.Abs("../../packaging") // laid out as /usr/share/trimtab is
	if err != nil {
		t.Fatal(err)
	}
	sh.write("built", "a program")
	if out, code := sh.run("mkdir -p bin dist && cp built bin/trimtab && tar --zstd -cf gpu-check.tar.zst bin"); code != 0 {
		t.Fatalf("what pages install and unpack: %s", out)
	}
	out := map[string]string{
		"trimtab enable": "trimtab enable train", "trimtab disable": "trimtab disable train", "trimtab profiles forget": "trimtab profiles forget 1",
		"tar -C dist -xf gpu-check.tar.zst": "tar -C dist -xf gpu-check.tar.zst && cmp dist/bin/trimtab built",
	}
	for line, about := range map[string][2]string{ // before it, and what it brought
		"install -m 0755 bin/trimtab /usr/local/bin/trimtab":                                  {"", "cmp /usr/local/bin/trimtab built && test -x /usr/local/bin/trimtab"},
		"cp -r /usr/share/trimtab ~/trimtab-monitoring && cd ~/trimtab-monitoring/compose":    {"cp -r '" + packaging + "' /usr/share/trimtab", "ls compose.yaml ../grafana/trimtab.json"},
		"touch /etc/trimtab/disabled":                                                         {"mkdir /etc/trimtab", "ls /etc/trimtab/disabled"},
		"mkdir -p /etc/trimtab/conf.d && echo 'mode: observe' >/etc/trimtab/conf.d/site.yaml": {"", "trimtab config check --conf-dir /etc/trimtab/conf.d trimtab.yaml | grep 'mode observe'"},
		"mv /var/lib/trimtab/originals /root/":                                                {"mkdir -p /var/lib/trimtab/originals && touch /var/lib/trimtab/originals/KEY.json", "ls /root/originals/KEY.json && ! ls /var/lib/trimtab/originals"},
		"rm -r /etc/trimtab /var/lib/trimtab":                                                 {"mkdir -p /etc/trimtab/conf.d /var/lib/trimtab/originals", "! ls /etc/trimtab && ! ls /var/lib/trimtab"},
	} {
		out[line] = inOwnTree(t, sh, about[0], line, about[1])
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"docker", "ctr"} { // test/e2e runs them; here it is seen what the shell makes of the line
		sh.write(".bin/"+program, "#!/bin/sh\necho "+program+" \"$@\"\n")
	}
	if out, code := sh.run("chmod +x .bin/*"); code != 0 {
		t.Fatal(out)
	}
	maps.Copy(out, map[string]string{
		"devices=$(trimtab place --docker IMAGE) && docker run $devices IMAGE python train.py":            "devices=$(trimtab place --docker IMAGE) && docker run $devices IMAGE python train.py | grep '^docker run --gpus device=GPU-1 IMAGE python train.py$'",
		"docker run $(trimtab place --docker IMAGE) IMAGE python train.py":                                "docker run $(trimtab place --docker IMAGE) IMAGE python train.py | grep '^docker run --gpus device=GPU-1 IMAGE python train.py$'",
		"ctr run $(trimtab place --containerd IMAGE) docker.io/library/IMAGE job python train.py":         "ctr run $(trimtab place --containerd IMAGE) docker.io/library/IMAGE job python train.py | grep '^ctr run --gpus 1 docker.io/library/IMAGE job python train.py$'",
		"trimtab place --compose=train IMAGE > gpu.yaml && docker compose -f compose.yaml -f gpu.yaml up": "trimtab place --compose=train IMAGE > gpu.yaml && docker compose -f compose.yaml -f gpu.yaml up && ls gpu.yaml",
		"openssl rand -hex 32": "openssl rand -hex 32 | grep -xE '[0-9a-f]{64}'",
		"make help":            "make --no-print-directory -C '" + checkout + "' help",
		"systemd-analyze security --offline=true --no-pager packaging/trimtab.service": "cd '" + checkout + "' && systemd-analyze security --offline=true --no-pager packaging/trimtab.service",
	})
	for _, to := range []string{"/run/trimtab/page.sock", "127.0.0.1:9478"} {
		line := "ssh -L 9478:" + to + " node7" // no test has a second machine: ssh says what it would forward, whatever this host's files say
		out[line] = "ssh -F none -G" + strings.TrimPrefix(line, "ssh") + " | grep -F 'localforward 9478 '"
	}
	return out
}

// inOwnTree is what runs a line as it stands where it would touch the host: in a mount namespace in which the
// folders that it names are empty, between what has to be there and what tells that it did its work.
func inOwnTree(t *testing.T, sh *shell, before, line, after string) string {
	t.Helper()
	unshare := "unshare --mount --propagation private"
	if os.Geteuid() != 0 {
		unshare += " --map-root-user"
	}
	if out, code := sh.run(unshare + " mount -t tmpfs tmpfs /etc"); code != 0 {
		t.Logf("not run, for want of a mount namespace (%s): $ %s", strings.TrimSpace(out), line)
		return "true"
	}
	var script strings.Builder
	for _, dir := range []string{"/etc", "/root", "/usr/local/bin", "/usr/share", "/var/lib"} {
		script.WriteString("mount -t tmpfs tmpfs " + dir + "\n")
	}
	name := fmt.Sprintf("tree-%x.sh", sha256.Sum256([]byte(line)))
	sh.write(name, script.String()+before+"\n"+line+"\n"+after+"\n")
	return unshare + " bash -euo pipefail " + name
}

// TestEveryNewCommandIsMissed: what nobody runs or lists is found.
func TestEveryNewCommandIsMissed(t *testing.T) {
	elsewhere := readElsewhere(t)
	for _, line := range []string{"make never", "systemctl never", "ssh never now", "journalctl -u never", "trimtab daemon", "trimtab doctor --never", "trimtab restore --offline --never",
		"curl --unix-socket /x http://trimtab/; never", "curl --unix-socket /x http://trimtab/ -o /etc/never", "curl --unix-socket /x http://trimtab/ | sh", "trimtab ps > /etc/never", "trimtab ps > ../never", "trimtab ps && never", "trimtab explain $(never)", "trimtab explain `never`", "trimtab ps >never", "trimtab explain '$x'; never"} {
		if _, listed := elsewhere.of(line); listed || isHarmless(line) {
			t.Errorf("%q would not be missed", line)
		}
	}
	for _, line := range []string{"make never", "go run ./test/never", "go run ./tuner/state", "go test ./never", "go test ./tuner/state -run Never", "go test ./cmd/trimtab -bench Never", "go test ./cmd/trimtab -never", "go test ./cmd/trimtab -run"} {
		if isThere(t, line) == nil {
			t.Errorf("%q is not there, and passes for what is", line)
		}
	}
	for command, text := range map[string]string{"docker update --cpus *": "after somebody's docker update", "docker run --label trimtab.mode=tune*": "trimtab.mode", "apt remove trimtab": "systemctl stop trimtab",
		"docker run $(trimtab place --docker IMAGE) *": "docker create --name", "make test": `"test", "make"`} {
		if spells(text, command) {
			t.Errorf("%q passes for %q", text, command)
		}
	}
	if out, code := newShell(t, playedDaemon(t)).run("trimtab explain nobody"); code == 0 {
		t.Errorf("a command that fails passes for one that was run:\n%s", out)
	}
	if out, code := newShell(t, playedDaemon(t)).run("curl --unix-socket /run/trimtab/trimtab.sock http://trimtab/v1/never"); code == 0 {
		t.Errorf("a route that is not there passes for one that was asked:\n%s", out)
	}
}

// onePrometheus answers each query with an hour of one team, once goOn, if any, is closed; internal/fleet asks a real one.
func onePrometheus(t *testing.T, goOn <-chan struct{}) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if goOn != nil {
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"team":"vision","resource":"gpu","cause":"compute"},"value":[1,"3600"]}]}}`)) // who asks sees
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// isHarmless tells what may be run here: it asks a daemon at the socket, or needs none, and touches
// nothing else of the host. Whatever is not known to be so is for the list.
func isHarmless(line string) bool {
	// It reaches a shell as it stands. In its folder it may write.
	open := regexp.MustCompile(` > [\w-]+(\.\w+)?$|'[^']*'|"[^"$\x60\\]*"`).ReplaceAllString(line, " ")
	if strings.ContainsAny(open, ";&|<>$`\\\n") {
		return false
	}
	words := strings.Fields(line)
	if strings.HasPrefix(line, "curl --unix-socket ") {
		return !slices.ContainsFunc(words, func(w string) bool { // others write files and read configs
			return strings.HasPrefix(w, "-") && !slices.Contains([]string{"--unix-socket", "-d", "-X"}, w)
		})
	}
	known := []string{"advice", "api", "config", "disable", "enable", "explain", "gpu", "history", "pause", "place", "profiles", "ps", "record", "replay", "report", "restore", "resume", "status", "top", "version"}
	return words[0] == "trimtab" && len(words) > 1 && slices.Contains(known, words[1]) && !slices.Contains(words, "--offline") && !slices.Contains(words, "--flight")
}

// spelledOut puts names of what is here in for those of the pages.
func spelledOut(line string) string {
	if strings.Contains(line, " config ") {
		line = strings.ReplaceAll(line, "FILE", "trimtab.yaml")
	}
	return strings.NewReplacer("NAME", "train", "trimtab-demo", "train", "FILE", "node.trimtab", "DEVICE...", "nvidia1", "DIR", ".", "/etc/trimtab/trimtab.yaml", "trimtab.yaml").Replace(line)
}

// acting does all that it is told, so that commands end well.
type acting struct{ fake }

func (acting) Restore(_ context.Context, name string) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: name, OK: true, Text: "restored"}}, nil
}

func (acting) ShowGPU(_ context.Context, r state.GPURequest) ([]state.ActionResult, error) {
	return []state.ActionResult{{Name: r.Name, OK: true, Text: "shown"}}, nil
}

// ticking shows its last tick as one of now, at every look: who acts waits for the next.
type ticking struct{ *played.Daemon }

func (d ticking) Snapshot() *state.Snapshot {
	s := *d.Daemon.Snapshot()
	s.UnixNs = time.Now().UnixNano()
	return &s
}

// playedDaemon has the containers that the pages name.
func playedDaemon(t *testing.T) api.Backend {
	t.Helper()
	const recording = "testdata/recordings/neighbour-another-slice.trimtab"
	d := &played.Daemon{Backend: acting{}, Recording: recording,
		As: map[string]played.Called{"fairness-borrower": {Name: "train", Team: "vision"}, "fairness-other0": {Name: "resnet-a", Team: "vision"}}}
	if err := d.Play(recording); err != nil {
		t.Fatal(err)
	}
	return ticking{d}
}

// commandsOfPages are the distinct commands of the pages, each with a place where it stands:
// of trimtab wherever they are code, of others where they stand in a block. In the text a program of
// systemd, an engine or a package manager with one word after it is a name (`docker update`).
func commandsOfPages(t *testing.T) map[string]string {
	t.Helper()
	others := regexp.MustCompile(`^(\$ )?((?:apt|apt-get|bin/\S+|cat|cp|ctr|curl|dnf|docker|git|go|grep|install|journalctl|jq|kubectl|make|mkdir|mv|nerdctl|nvidia-ctk|openssl|packaging/\S+|rm|ssh|ssh-keygen|systemctl|systemd-analyze|tar|touch|\./\S+|\w+=\$\(\w+) [^ ]*[^ :](?: .*?)?|trimtab .* && [^t].*?)( +# .*)?$`)
	inText := regexp.MustCompile(`^(?:(?:apt|ctr|dnf|docker|journalctl|kubectl|nvidia-ctk|ssh|systemctl) \S+ .+|(?:\.cache/\S+|bin/\S+|go (?:run|test)|groupdel|jq|make|mkdir|mv|openssl|rm|systemd-analyze|touch|\./\S+) \S.*)$`)
	out := map[string]string{}
	add := func(line, at string) {
		if !strings.HasPrefix(out[line], walkedPage) { // where it is run is where it stands
			out[line] = at
		}
	}
	for page, text := range pages(t) {
		blocks, spans := codeOf(page, text)
		for _, s := range append(blocks, spans...) {
			for _, line := range commandsOf(s) {
				if takes(line, true) == nil || s.whole { // else it is a name, with nothing to go on
					add(line, s.at)
				}
			}
			if !s.whole {
				if inText.MatchString(s.text) {
					add(s.text, s.at)
				}
				continue
			}
			for line := range strings.Lines(s.text) {
				if m := others.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
					add(strings.TrimSpace(m[2]), s.at)
				}
			}
		}
	}
	return out
}

type elsewhereLine struct {
	command *regexp.Regexp
	how     string
	used    bool
}

type elsewhereLines []*elsewhereLine

func readElsewhere(t *testing.T) (out elsewhereLines) {
	t.Helper()
	text, err := os.ReadFile(elsewhereFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		command, how, _ := strings.Cut(line, " | ")
		what, rest, found := strings.Cut(how, ": ")
		if !found || rest == "" {
			t.Fatalf("%s: %q does not say who runs it, or why nothing does", elsewhereFile, line)
		}
		if what != notRun {
			if code, err := os.ReadFile(filepath.Join("../..", what)); err != nil || !strings.Contains(string(code), rest) {
				t.Errorf("%s: %s has no %q: it is not run there (%v)", elsewhereFile, what, rest, err)
			}
			if command = strings.TrimSpace(command); !spells(rest, command) && !runsRecipe(t, rest, command) {
				t.Errorf("%s: %q of %s does not spell %q", elsewhereFile, rest, what, command)
			}
			what = "named"
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(command)), `\*`, ".*")
		out = append(out, &elsewhereLine{command: regexp.MustCompile("^" + pattern + "$"), how: what})
	}
	return out
}

func (all elsewhereLines) of(command string) (how string, listed bool) {
	for _, e := range all {
		if e.command.MatchString(command) {
			e.used = true
			return e.how, true
		}
	}
	return "", false
}

// unused names what no page has any more.
func (all elsewhereLines) unused(t *testing.T) {
	t.Helper()
	for _, e := range all {
		if !e.used {
			t.Errorf("%s: no page has %s", elsewhereFile, e.command)
		}
	}
}
