package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// host is a stand-in for the machine that a maintainer script runs on.
type host struct {
	systemd     bool
	needsReload string // what systemd says of the unit
	removed     bool   // by an earlier prerm
	restore     string // exit status of trimtab restore
	originals   bool   // still on disk
	hidden      bool   // GPUs, as a record on disk has it
	config      string
	locked      bool // by a daemon
}

// runScript runs a maintainer script with its paths turned to stand-ins, and returns
// what it called, in order, and whether it succeeded.
func runScript(t *testing.T, script string, h host, args ...string) (calls string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	log, bin := filepath.Join(dir, "calls"), filepath.Join(dir, "bin")
	state := filepath.Join(dir, "var/lib/trimtab")
	for _, sub := range []string{bin, state, filepath.Join(dir, "etc/trimtab")} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	record := "#!/bin/sh\necho \"$(basename $0) $*\" >>" + log + "\n"
	put(filepath.Join(bin, "trimtab"), record+"exit "+h.restore+"\n")
	put(filepath.Join(bin, "systemctl"), record+"[ $1 = show ] && echo "+h.needsReload+" || true\n")
	for _, name := range []string{"deb-systemd-invoke", "deb-systemd-helper", "systemd-sysusers", "systemd-tmpfiles", "groupdel", "groupadd"} {
		put(filepath.Join(bin, name), record)
	}
	if h.systemd {
		put(filepath.Join(dir, "run/systemd/system/x"), "")
	}
	if h.removed {
		put(filepath.Join(state, "removed"), "")
	}
	if h.originals {
		put(filepath.Join(state, "originals/one"), "")
	}
	if h.hidden {
		put(filepath.Join(state, "gpu-hidden/one.json"), "")
	}
	put(filepath.Join(dir, "etc/trimtab/trimtab.yaml"), strings.ReplaceAll(h.config, "/var/lib/trimtab", state))
	lock, err := os.Create(filepath.Join(state, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if h.locked {
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.NewReplacer("/usr/bin/trimtab", bin+"/trimtab", "/run/systemd/system", dir+"/run/systemd/system",
		"/var/lib/trimtab", state, "/etc/trimtab", dir+"/etc/trimtab", "/run/trimtab", dir+"/run/trimtab").Replace(read(t, script))
	cmd := exec.Command("/bin/sh", append([]string{"-c", text, script}, args...)...)
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	t.Logf("%s %v: %v\n%s", script, args, err, out)
	called, err2 := os.ReadFile(log)
	if err2 != nil && !os.IsNotExist(err2) {
		t.Fatal(err2)
	}
	return string(called), err == nil
}

// TestRemovalRestoresFirst: while the binary is there, and not at all if that fails.
func TestRemovalRestoresFirst(t *testing.T) {
	const active, stop = "systemctl is-active --quiet trimtab.service\n", "systemctl stop trimtab.service\n"
	const disable = "systemctl --no-reload disable trimtab.service\n"
	for name, tc := range map[string]struct {
		script string
		args   []string
		host   host
		calls  string
		ok     bool
	}{
		"deb, running":          {"deb/prerm", []string{"remove"}, host{systemd: true, restore: "0"}, active + "trimtab restore\n" + stop + "trimtab restore --offline\n", true},
		"deb, owed":             {"deb/prerm", []string{"remove"}, host{systemd: true, restore: "1"}, active + "trimtab restore\n", false},
		"deb, no systemd":       {"deb/prerm", []string{"remove"}, host{restore: "0"}, "trimtab restore --offline\n", true},
		"deb, owed, no systemd": {"deb/prerm", []string{"remove"}, host{restore: "1", originals: true}, "trimtab restore --offline\n", false},
		"deb, GPUs hidden":      {"deb/prerm", []string{"remove"}, host{restore: "1", hidden: true}, "trimtab restore --offline\n", false},
		"deb, nothing changed":  {"deb/prerm", []string{"remove"}, host{restore: "1", config: "stateDir: /var/lib/trimtab\n"}, "trimtab restore --offline\n", true},
		"deb, other stateDir":   {"deb/prerm", []string{"remove"}, host{restore: "1", config: "stateDir: /srv/x\n"}, "trimtab restore --offline\n", false},
		"deb, upgrade":          {"deb/prerm", []string{"upgrade", "2"}, host{systemd: true, restore: "1"}, "", true},
		"rpm, running":          {"rpm/preun", []string{"0"}, host{systemd: true, restore: "0"}, active + "trimtab restore\n" + stop + "trimtab restore --offline\n" + disable, true},
		"rpm, owed":             {"rpm/preun", []string{"0"}, host{systemd: true, restore: "1"}, active + "trimtab restore\n", false},
		"rpm, upgrade":          {"rpm/preun", []string{"1"}, host{systemd: true, restore: "1"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			calls, ok := runScript(t, tc.script, tc.host, tc.args...)
			if diff := cmp.Diff(tc.calls, calls); diff != "" || ok != tc.ok {
				t.Errorf("succeeded: %v, want %v; calls (-want +got):\n%s", ok, tc.ok, diff)
			}
		})
	}
}

// TestStart: a new installation starts, an upgrade hands over and leaves stopped what
// was stopped, and systemd reads its units anew only where the unit changed, since
// that can take GPU access away.
func TestStart(t *testing.T) {
	const show, reload = "systemctl show --property NeedDaemonReload --value trimtab.service trimtab-restore.service\n", "systemctl daemon-reload\n"
	const prepare = "systemd-sysusers trimtab.conf\nsystemd-tmpfiles --create trimtab.conf\n" +
		"deb-systemd-helper --quiet was-enabled trimtab.service\ndeb-systemd-helper enable trimtab.service\n"
	const start, again = "deb-systemd-invoke start trimtab.service\n", "deb-systemd-invoke try-restart trimtab.service\n"
	for name, tc := range map[string]struct {
		script string
		args   []string
		host   host
		calls  string
	}{
		"new":                     {"deb/postinst", []string{"configure", ""}, host{systemd: true, needsReload: "no"}, prepare + show + start},
		"upgrade":                 {"deb/postinst", []string{"configure", "1"}, host{systemd: true, needsReload: "no"}, prepare + show + again},
		"upgrade with a new unit": {"deb/postinst", []string{"configure", "1"}, host{systemd: true, needsReload: "yes"}, prepare + show + reload + again},
		"again after removal":     {"deb/postinst", []string{"configure", "1"}, host{systemd: true, needsReload: "no", removed: true}, prepare + show + start},
		"a removal that failed":   {"deb/postinst", []string{"abort-remove"}, host{systemd: true, needsReload: "no"}, prepare + show + start},
		"no systemd":              {"deb/postinst", []string{"configure", ""}, host{}, prepare},
		"a trigger":               {"deb/postinst", []string{"triggered", "x"}, host{systemd: true}, ""},
		"rpm, upgrade":            {"rpm/postun", []string{"1"}, host{systemd: true, needsReload: "no"}, show + "systemctl try-restart trimtab.service\n"},
		"rpm, removal":            {"rpm/postun", []string{"0"}, host{systemd: true, needsReload: "yes"}, ""},
		"rpm, new": {"rpm/post", []string{"1"}, host{systemd: true}, "systemd-sysusers trimtab.conf\nsystemd-tmpfiles --create trimtab.conf\n" +
			"systemctl --no-reload preset trimtab.service\n"},
	} {
		t.Run(name, func(t *testing.T) {
			calls, ok := runScript(t, tc.script, tc.host, tc.args...)
			if diff := cmp.Diff(tc.calls, calls); diff != "" || !ok {
				t.Errorf("succeeded: %v; calls (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// TestPurgeKeepsOriginals: they are all that could give somebody's limits back.
func TestPurgeKeepsOriginals(t *testing.T) {
	for _, h := range []host{{originals: true}, {hidden: true}} {
		if calls, ok := runScript(t, "deb/postrm", h, "purge"); ok || calls != "" {
			t.Errorf("succeeded: %v, called %q", ok, calls)
		}
	}
	want := "deb-systemd-helper purge trimtab.service\ngroupdel trimtab\ngroupdel trimtab-read\n"
	if calls, ok := runScript(t, "deb/postrm", host{}, "purge"); !ok || calls != want {
		t.Errorf("succeeded: %v, called %q", ok, calls)
	}
	if calls, ok := runScript(t, "deb/postrm", host{systemd: true}, "remove"); !ok || calls != "" {
		t.Errorf("succeeded: %v, called %q: a daemon-reload would take GPU access with nobody left to repair it", ok, calls)
	}
}

// TestRemovalRefusesBesideADaemon: one that was started by hand holds the lock, and may
// change something as soon as nobody can restore it.
func TestRemovalRefusesBesideADaemon(t *testing.T) {
	tool(t, "flock", "apt-get install util-linux")
	if _, ok := runScript(t, "deb/prerm", host{restore: "1", locked: true}, "remove"); ok {
		t.Error("removed while a daemon holds the lock")
	}
	if _, ok := runScript(t, "deb/prerm", host{restore: "1"}, "remove"); !ok {
		t.Error("not removed though nothing was recorded and nobody holds the lock")
	}
}
