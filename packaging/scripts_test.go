package packaging

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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
	locked      bool   // by a daemon
	stops       string // exit status of systemctl stop
	full        bool   // its disk, where the program would be kept
	root        string // its files; "": a folder of its own
}

// runScript runs a maintainer script with its paths turned to stand-ins, and returns
// what it called, in order, and whether it succeeded.
func runScript(t *testing.T, script string, h host, args ...string) (calls string, ok bool) {
	t.Helper()
	dir := cmp.Or(h.root, t.TempDir())
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
	put(filepath.Join(bin, "systemctl"), record+"[ $1 = show ] && echo "+h.needsReload+"\n[ $1 != stop ] || exit "+cmp.Or(h.stops, "0")+"\n")
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
	if h.full {
		put(filepath.Join(state, "trimtab/x"), "") // a folder, which no link and no copy replaces
		put(filepath.Join(state, "trimtab/trimtab/x"), "")
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

// TestRemovalRestoresFirst: while the binary is there. What could not be put back keeps nobody from
// removing the package: the program stays with the originals.
func TestRemovalRestoresFirst(t *testing.T) {
	const active, stop = "systemctl is-active --quiet trimtab.service\n", "systemctl stop trimtab.service\n"
	const disable = "systemctl --no-reload disable trimtab.service\n"
	const online, offline = "trimtab restore\n", "trimtab restore --offline\n"
	for name, tc := range map[string]struct {
		script string
		args   []string
		host   host
		calls  string
		kept   bool
	}{
		"deb, running":             {"deb/prerm", []string{"remove"}, host{systemd: true, restore: "0"}, active + online + stop + offline, false},
		"deb, pending":             {"deb/prerm", []string{"remove"}, host{systemd: true, restore: "1", originals: true}, active + online + stop + offline, true},
		"deb, does not stop":       {"deb/prerm", []string{"remove"}, host{systemd: true, restore: "1", originals: true, stops: "1", locked: true}, active + online + stop + offline, true},
		"deb, no systemd":          {"deb/prerm", []string{"remove"}, host{restore: "0"}, offline, false},
		"deb, pending, no systemd": {"deb/prerm", []string{"remove"}, host{restore: "1", originals: true}, offline, true},
		"deb, pending, full disk":  {"deb/prerm", []string{"remove"}, host{restore: "1", originals: true, full: true}, offline, false},
		"deb, GPUs hidden":         {"deb/prerm", []string{"remove"}, host{restore: "1", hidden: true}, offline, true},
		"deb, nothing changed":     {"deb/prerm", []string{"remove"}, host{restore: "1", config: "stateDir: /var/lib/trimtab\n"}, offline, false},
		"deb, other stateDir":      {"deb/prerm", []string{"remove"}, host{restore: "1", config: "stateDir: /srv/x\n"}, offline, true},
		"deb, upgrade":             {"deb/prerm", []string{"upgrade", "2"}, host{systemd: true, restore: "1"}, "", false},
		"rpm, running":             {"rpm/preun", []string{"0"}, host{systemd: true, restore: "0"}, active + online + stop + offline + disable, false},
		"rpm, pending":             {"rpm/preun", []string{"0"}, host{systemd: true, restore: "1", originals: true}, active + online + stop + offline + disable, true},
		"rpm, pending, full disk":  {"rpm/preun", []string{"0"}, host{restore: "1", hidden: true, full: true}, offline + disable, false},
		"rpm, other stateDir":      {"rpm/preun", []string{"0"}, host{restore: "1", config: "stateDir: /srv/x\n"}, offline + disable, true},
		"rpm, upgrade":             {"rpm/preun", []string{"1"}, host{systemd: true, restore: "1"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.host.root = t.TempDir()
			calls, ok := runScript(t, tc.script, tc.host, tc.args...)
			if diff := gocmp.Diff(tc.calls, calls); diff != "" || !ok {
				t.Errorf("succeeded: %v; calls (-want +got):\n%s", ok, diff)
			}
			file, err := os.Stat(filepath.Join(tc.host.root, "var/lib/trimtab/trimtab"))
			if kept := err == nil && file.Mode().IsRegular() && file.Mode()&0o100 != 0; kept != tc.kept {
				t.Errorf("the program is kept: %v, want %v", kept, tc.kept)
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
			if diff := gocmp.Diff(tc.calls, calls); diff != "" || !ok {
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

// TestRemovalBesideADaemon: one that was started by hand holds the lock, and may change something that
// nobody could put back.
func TestRemovalBesideADaemon(t *testing.T) {
	tool(t, "flock", "apt-get install util-linux")
	for _, locked := range []bool{true, false} {
		h := host{restore: "1", locked: locked, root: t.TempDir()}
		if _, ok := runScript(t, "deb/prerm", h, "remove"); !ok {
			t.Error("not removed")
		}
		if _, err := os.Stat(filepath.Join(h.root, "var/lib/trimtab/trimtab")); (err == nil) != locked {
			t.Errorf("a daemon holds the lock: %v; of the program that is kept: %v", locked, err)
		}
	}
}
