package packaging

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stage installs into a directory with a stand-in for the binary, and returns it.
func stage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "usr/local/bin/trimtab")
	standIn(t, bin)
	installer(t, "install", dir)
	return dir
}

// standIn makes a program that stands in for the binary.
func standIn(t *testing.T, bin string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, []byte("#!/bin/sh\n[ \"$1\" = completion ] && echo \"# completion for $2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func installer(t *testing.T, action, destdir string) {
	t.Helper()
	args := []string{action, destdir, "/usr/local/bin", "/etc", "/lib/systemd/system", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/usr/local/share"}
	if out, err := exec.Command("./install.sh", args...).CombinedOutput(); err != nil {
		t.Fatalf("install.sh %s: %v\n%s", action, err, out)
	}
}

// files lists the regular files below dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStagedInstallAndUninstall(t *testing.T) {
	dir := stage(t)
	want := []string{
		"/etc/trimtab/trimtab.yaml",
		"/lib/systemd/system/trimtab-restore.service",
		"/lib/systemd/system/trimtab.service",
		"/usr/lib/sysusers.d/trimtab.conf",
		"/usr/lib/tmpfiles.d/trimtab.conf",
		"/usr/local/bin/trimtab",
		"/usr/local/share/bash-completion/completions/trimtab",
		"/usr/local/share/fish/vendor_completions.d/trimtab.fish",
		"/usr/local/share/zsh/site-functions/_trimtab",
	}
	if _, err := os.Stat("../bin/trimtab-nvml"); err == nil { // `make build` builds it where there is a C compiler
		want = slices.Insert(want, 6, "/usr/local/libexec/trimtab/trimtab-nvml")
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("installed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	unit := read(t, filepath.Join(dir, "lib/systemd/system/trimtab.service"))
	if !strings.Contains(unit, "\nExecStart=/usr/local/bin/trimtab daemon\n") {
		t.Error("the unit does not start the binary that was installed")
	}
	installer(t, "uninstall", dir)
	if got := files(t, dir); !slices.Equal(got, []string{"/etc/trimtab/trimtab.yaml"}) {
		t.Errorf("left behind: %v", got)
	}
}

// TestMakeInstall: the targets place and take away what the installer does, in a copy of the checkout
// whose binary is there already.
func TestMakeInstall(t *testing.T) {
	tool(t, "make", "apt-get install make")
	checkout, dir := t.TempDir(), t.TempDir()
	tracked := exec.Command("scripts/tracked.sh", checkout, "Makefile", "packaging", "tuner/config/example.yaml")
	tracked.Dir = ".."
	if out, err := tracked.CombinedOutput(); err != nil {
		t.Fatalf("tracked.sh: %v\n%s", err, out)
	}
	standIn(t, filepath.Join(checkout, "bin/trimtab"))
	target := func(line string) {
		t.Helper()
		words := strings.Fields(line)
		output(t, words[0], append([]string{"-C", checkout, "--old-file=build", "DESTDIR=" + dir, "PREFIX=/usr/local"}, words[1:]...)...)
	}
	target("make install")
	want := stage(t)
	if diff := cmp.Diff(slices.DeleteFunc(files(t, want), func(f string) bool { return path.Base(f) == "trimtab-nvml" }), files(t, dir)); diff != "" { // the copy has none
		t.Errorf("installed (-by the installer +by make):\n%s", diff)
	}
	target("make uninstall")
	if got := files(t, dir); !slices.Equal(got, []string{"/etc/trimtab/trimtab.yaml"}) {
		t.Errorf("left behind: %v", got)
	}
}

// TestInstallKeepsTheConfig: an upgrade must not undo what an administrator wrote.
func TestInstallKeepsTheConfig(t *testing.T) {
	dir := stage(t)
	path := filepath.Join(dir, "etc/trimtab/trimtab.yaml")
	if err := os.WriteFile(path, []byte("mode: observe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	installer(t, "install", dir)
	if got := read(t, path); got != "mode: observe\n" {
		t.Errorf("the config became %q", got)
	}
}

func TestUnitsVerify(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "apt-get install systemd")
	dir := t.TempDir()
	var units []string
	for _, name := range []string{"trimtab.service", "trimtab-restore.service"} {
		// verify wants the binary to be there
		text := strings.ReplaceAll(read(t, name), "/usr/bin/trimtab", "/bin/true")
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		units = append(units, path)
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	var ours []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, "trimtab") { // not what is wrong with other units of this machine
			ours = append(ours, line)
		}
	}
	if len(ours) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, strings.Join(ours, "\n"))
	}
}

func TestSysusersAndTmpfilesParse(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil { // where sysusers takes its lock
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"systemd-sysusers", []string{"--root=" + root, "--replace=/usr/lib/sysusers.d/trimtab.conf", "-"}},
		{"systemd-tmpfiles", []string{"--root=" + root, "--create", "-"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := tool(t, tc.name, "apt-get install systemd")
			cmd := exec.Command(path, tc.args...)
			cmd.Stdin = strings.NewReader(read(t, "trimtab."+strings.TrimPrefix(tc.name, "systemd-")))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		group := read(t, filepath.Join(root, "etc/group"))
		if !strings.Contains(group, "trimtab:") || !strings.Contains(group, "trimtab-read:") {
			t.Errorf("groups made:\n%s", group)
		}
	}
}

// TestUninstallRestoresFirst: without the binary nobody could put originals back,
// so a restore that fails leaves everything in place.
func TestUninstallRestoresFirst(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("needs a machine without systemd: the installer would ask it about the real trimtab.service")
	}
	for _, tc := range []struct {
		name    string
		restore string // exit status of trimtab restore
		removed bool
	}{{"restored", "0", true}, {"owed", "1", false}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			bin, calls := filepath.Join(dir, "bin/trimtab"), filepath.Join(dir, "calls")
			if err := os.Mkdir(filepath.Dir(bin), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(bin, []byte("#!/bin/sh\necho \"$@\" >>"+calls+"\nexit "+tc.restore+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			args := []string{"uninstall", ""}
			for _, sub := range []string{"bin", "etc", "units", "sysusers", "tmpfiles", "share"} {
				args = append(args, filepath.Join(dir, sub))
			}
			out, err := exec.Command("./install.sh", args...).CombinedOutput()
			if (err == nil) != tc.removed {
				t.Errorf("uninstall: %v\n%s", err, out)
			}
			if _, err := os.Stat(bin); os.IsNotExist(err) != tc.removed {
				t.Errorf("binary removed: %v, want %v", os.IsNotExist(err), tc.removed)
			}
			if got := read(t, calls); got != "restore --offline\n" {
				t.Errorf("called with %q", got)
			}
		})
	}
}

// TestPurge: on a live system, in a mount namespace of its own, nothing of trimtab is
// left; but what containers had before is never thrown away.
func TestPurge(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts copies of /etc, /var/lib and /run in a namespace")
	}
	script, err := filepath.Abs("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", `
		root=$1 script=$2
		mount -t tmpfs tmpfs "$root"
		cp -a /etc "$root/etc"
		mount --bind "$root/etc" /etc
		mount -t tmpfs tmpfs /var/lib
		mount -t tmpfs tmpfs /run # of no systemd
		for group in trimtab trimtab-read; do groupdel $group 2>/dev/null || true; done
		before=$(cat /etc/group)
		mkdir "$root/bin"
		printf '#!/bin/sh\nexit 0\n' >"$root/bin/trimtab"
		chmod +x "$root/bin/trimtab"
		installer() { "$script" "$1" "" "$root/bin" /etc "$root/units" "$root/sysusers" "$root/tmpfiles" "$root/share" 2>&1; }

		installer install
		getent group trimtab trimtab-read >/dev/null || { echo "no groups were made"; exit 1; }
		mkdir -p /var/lib/trimtab/originals /run/trimtab
		echo '{}' >/var/lib/trimtab/originals/owed.json
		if said=$(installer purge); then echo "an original was thrown away: $said"; exit 1; fi
		case $said in *"trimtab restore --offline"*) ;; *) echo "no fix in: $said"; exit 1 ;; esac
		[ -e /var/lib/trimtab/originals/owed.json ] && [ -e /etc/trimtab/trimtab.yaml ] || { echo "purge took what it refused to take"; exit 1; }

		rm /var/lib/trimtab/originals/owed.json
		installer purge
		left=$(find "$root/bin" "$root/units" "$root/sysusers" "$root/tmpfiles" "$root/share" -type f; ls -d /etc/trimtab /var/lib/trimtab /run/trimtab 2>/dev/null || true)
		[ -z "$left" ] || { echo "left: $left"; exit 1; }
		[ "$(cat /etc/group)" = "$before" ] || { echo "groups were left"; exit 1; }
		`, "sh", t.TempDir(), script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
