package packaging

import (
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packagesOf builds all packages of architectures, with nfpm by the version that the script names.
func packagesOf(t *testing.T, archs ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a minute: run without -short")
	}
	tool(t, "git", "apt-get install git")
	module := regexp.MustCompile(`(?m)^nfpm_module=(\S+)$`).FindStringSubmatch(read(t, "../scripts/package.sh"))
	if module == nil {
		t.Fatal("scripts/package.sh names no nfpm")
	}
	dir := t.TempDir()
	install := exec.Command("go", "install", module[1])
	install.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("needs network: nfpm cannot be fetched or built: %v\n%s", err, out)
	}
	built := filepath.Join(dir, "out")
	build := exec.Command("../scripts/package.sh", append([]string{built}, archs...)...)
	build.Env = append(os.Environ(), "NFPM="+filepath.Join(dir, "nfpm"), "PACKAGE_VERSION=1.2.3", "SOURCE_DATE_EPOCH=1700000000")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("package.sh: %v\n%s", err, out)
	}
	return built
}

// one is the only file that a pattern fits.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s fits %v, %v", pattern, found, err)
	}
	return found[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPackages builds once and looks at all that came out.
func TestPackages(t *testing.T) {
	archs := []string{"amd64"}
	_, noCross := exec.LookPath("aarch64-linux-gnu-gcc")
	if noCross == nil {
		archs = append(archs, "arm64")
	}
	built := packagesOf(t, archs...)
	deb := one(t, filepath.Join(built, "*_amd64.deb"))
	t.Run("deb contents", func(t *testing.T) { debContents(t, deb) })
	t.Run("deb control", func(t *testing.T) { debControl(t, deb, "amd64") })
	t.Run("deb in a root of its own", func(t *testing.T) { debInRoot(t, deb) })
	t.Run("notices", func(t *testing.T) { saysWhatItIsMadeOf(t, deb, one(t, filepath.Join(built, "*-linux-amd64.cdx.json"))) })
	t.Run("sums", func(t *testing.T) { sumsOfAll(t, built) })
	t.Run("lintian", func(t *testing.T) {
		lintian := tool(t, "lintian", "apt-get install lintian")
		output(t, lintian, "--allow-root", "--fail-on", "error", deb)
	})
	rpm := one(t, filepath.Join(built, "*.x86_64.rpm"))
	t.Run("rpm contents", func(t *testing.T) { rpmContents(t, rpm) })
	t.Run("rpm in a root of its own", func(t *testing.T) { rpmInRoot(t, rpm) })
	t.Run("tarball", func(t *testing.T) { tarballInstalls(t, one(t, filepath.Join(built, "*-linux-amd64.tar.gz"))) })
	t.Run("amd64", func(t *testing.T) { ofMachine(t, built, "amd64", "x86_64", elf.EM_X86_64) })
	t.Run("arm64", func(t *testing.T) {
		if noCross != nil {
			t.Skip("needs aarch64-linux-gnu-gcc: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
		}
		arm := one(t, filepath.Join(built, "*_arm64.deb"))
		debContents(t, arm)
		debControl(t, arm, "arm64")
		rpmContents(t, one(t, filepath.Join(built, "*.aarch64.rpm")))
		saysWhatItIsMadeOf(t, arm, one(t, filepath.Join(built, "*-linux-arm64.cdx.json")))
		ofMachine(t, built, "arm64", "aarch64", elf.EM_AARCH64)
	})
}

// byKind replaces what grows with commands and documents by one line for each kind.
func byKind(lines []string) []string {
	for i, line := range lines {
		mode, file, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(file, "/usr/share/man/man1/trimtab"):
			lines[i] = mode + " /usr/share/man/man1/trimtab*" + path.Ext(strings.TrimSuffix(file, ".gz")) + ".gz"
		case strings.HasPrefix(file, "/usr/share/doc/trimtab/") && slices.Contains([]string{".md", ".png", ".svg"}, path.Ext(file)):
			lines[i] = mode + " " + path.Dir(file) + "/*" + path.Ext(file)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// picturesAreIn: what a page shows is in the package, beside it.
func picturesAreIn(t *testing.T, lines []string) {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	shown := 0
	for _, page := range pages {
		for _, m := range regexp.MustCompile(`!\[[^]]*\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			shown++
			if file := "-rw-r--r-- " + path.Join("/usr/share/doc/trimtab", m[1]); !slices.Contains(lines, file) {
				t.Errorf("%s shows %s, which is not in the package", page, m[1])
			}
		}
	}
	if shown == 0 {
		t.Error("no page shows a picture: they did")
	}
}

func debContents(t *testing.T, deb string) {
	dpkg := tool(t, "dpkg-deb", "a Debian host has it")
	var got []string
	for line := range strings.Lines(output(t, dpkg, "-c", deb)) {
		fields := strings.Fields(line) // mode owner size date time ./path
		if len(fields) < 6 || fields[1] != "root/root" {
			t.Errorf("not root's: %s", line)
			continue
		}
		if fields[0][0] != 'd' || strings.Contains(fields[5], "trimtab") {
			got = append(got, fields[0]+" "+strings.TrimPrefix(fields[5], "."))
		}
	}
	picturesAreIn(t, got)
	want := strings.Split(strings.TrimSpace(read(t, "testdata/deb.list")), "\n")
	if diff := cmp.Diff(want, byKind(got)); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
}

func debControl(t *testing.T, deb, arch string) {
	dpkg := tool(t, "dpkg-deb", "a Debian host has it")
	for field, want := range map[string]string{
		"Package": "trimtab", "Version": "1.2.3", "Architecture": arch, "Section": "admin", "Priority": "optional",
		"Depends": "libc6", "Recommends": "docker.io | docker-ce | containerd",
	} {
		if got := strings.TrimSpace(output(t, dpkg, "-f", deb, field)); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	if got := output(t, dpkg, "-I", deb, "conffiles"); got != "/etc/trimtab/trimtab.yaml\n" {
		t.Errorf("conffiles: %q", got)
	}
}

// debInRoot installs, upgrades and purges in a root that holds nothing else. Scripts
// run with DPKG_ROOT, as for an image.
func debInRoot(t *testing.T, deb string) {
	tool(t, "dpkg", "a Debian host has it")
	tool(t, "groupadd", "apt-get install passwd")
	if os.Geteuid() != 0 {
		t.Skip("needs root: dpkg gives files to root")
	}
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		output(t, "dpkg", append([]string{"--root=" + root, "--log=" + os.DevNull, "--force-script-chrootless", "--force-depends", "--force-confdef"}, args...)...)
	}
	before := own(t, root)
	dpkg("--install", deb)
	installed(t, root)
	// There is no library here: the daemon runs where there is none, or musl's.
	if got := output(t, "chroot", root, "/usr/bin/trimtab", "version"); !strings.Contains(got, "1.2.3") {
		t.Errorf("without a library trimtab says %q", got)
	}

	config := filepath.Join(root, "etc/trimtab/trimtab.yaml")
	if err := os.WriteFile(config, []byte("mode: observe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb)
	if got := read(t, config); got != "mode: observe\n" {
		t.Errorf("the administrator's config became %q", got)
	}
	dpkg("--remove", "trimtab")
	if got := read(t, config); got != "mode: observe\n" {
		t.Errorf("removal left %q of the config", got)
	}
	for _, file := range []string{"etc/trimtab/conf.d/site.yaml", "var/lib/trimtab/history.db"} { // an administrator's, the daemon's
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg("--purge", "trimtab")
	if diff := cmp.Diff(before, own(t, root)); diff != "" {
		t.Errorf("a purge left (+) or took (-):\n%s", diff)
	}
	if group := read(t, filepath.Join(root, "etc/group")); strings.Contains(group, "trimtab") {
		t.Errorf("groups after the purge:\n%s", group)
	}
}

// own are the files and links below root, without dpkg's own, the group databases and their backups.
func own(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(file, root)
		dpkgs := strings.HasPrefix(name, "/var/lib/dpkg/")
		groups := regexp.MustCompile(`^/etc/(\.pwd\.lock|(group|gshadow|passwd|subgid|subuid)-?)$`).MatchString(name)
		if err == nil && !d.IsDir() && !dpkgs && !groups || strings.Contains(name, "trimtab") && !dpkgs {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// installed checks what the scripts made.
func installed(t *testing.T, root string) {
	t.Helper()
	group := read(t, filepath.Join(root, "etc/group"))
	if !strings.Contains(group, "trimtab:") || !strings.Contains(group, "trimtab-read:") {
		t.Errorf("groups made:\n%s", group)
	}
	if info, err := os.Stat(filepath.Join(root, "var/lib/trimtab")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state folder: %v, %v", info, err)
	}
	if _, err := exec.LookPath("deb-systemd-helper"); err == nil {
		if _, err := os.Lstat(filepath.Join(root, "etc/systemd/system/multi-user.target.wants/trimtab.service")); err != nil {
			t.Errorf("the service is not enabled: %v", err)
		}
	}
}

func rpmContents(t *testing.T, file string) {
	rpm := tool(t, "rpm", "apt-get install rpm")
	got := strings.Split(strings.TrimSpace(output(t, rpm, "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", file)), "\n")
	picturesAreIn(t, got)
	want := strings.Split(strings.TrimSpace(read(t, "testdata/rpm.list")), "\n")
	if diff := cmp.Diff(want, byKind(got)); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
	if got := output(t, rpm, "-qp", "--configfiles", file); got != "/etc/trimtab/trimtab.yaml\n" {
		t.Errorf("config files: %q", got)
	}
}

// tarballInstalls runs the installer that is in it, as docs/install.md says.
func tarballInstalls(t *testing.T, file string) {
	dir, dest := t.TempDir(), t.TempDir()
	output(t, "tar", "-C", dir, "--strip-components=1", "-xzf", file)
	for _, name := range []string{"LICENSE", "README.md", "THIRD-PARTY-NOTICES", "trimtab.cdx.json", "docs/install.md", "docs/security.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	output(t, "install", "-D", filepath.Join(dir, "bin/trimtab"), filepath.Join(dest, "usr/local/bin/trimtab"))
	output(t, filepath.Join(dir, "packaging/install.sh"), "install", dest, "/usr/local/bin", "/etc", "/lib/systemd/system", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d", "/usr/local/share")
	got := files(t, dest)
	if !slices.Contains(got, "/lib/systemd/system/trimtab.service") || !slices.Contains(got, "/etc/trimtab/trimtab.yaml") ||
		!slices.Contains(got, "/usr/local/libexec/trimtab/trimtab-nvml") {
		t.Errorf("installed %v", got)
	}
	if version := output(t, filepath.Join(dest, "usr/local/bin/trimtab"), "version"); !strings.Contains(version, "1.2.3") {
		t.Errorf("the binary says it is %s", version)
	}
}
