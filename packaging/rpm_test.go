package packaging

import (
	"os"
	"path/filepath"
	"testing"
)

// rpmInRoot installs, upgrades and erases in a root that holds nothing else. Its scripts,
// which want a shell there, are left to scripts_test.go.
func rpmInRoot(t *testing.T, file string) {
	tool(t, "rpm", "apt-get install rpm")
	if os.Geteuid() != 0 {
		t.Skip("needs root: rpm gives files to root")
	}
	root := t.TempDir()
	rpm := func(args ...string) string {
		t.Helper()
		return output(t, "rpm", append([]string{"--root=" + root, "--dbpath=/var/lib/rpm"}, args...)...)
	}
	rpm("--install", "--force-debian", "--nodeps", "--noscripts", file)
	if got := rpm("--query", "--queryformat", "%{VERSION}", "trimtab"); got != "1.2.3" {
		t.Errorf("installed %q", got)
	}
	if got := rpm("--verify", "--nodeps", "trimtab"); got != "" {
		t.Errorf("what was installed is not what is in the package:\n%s", got)
	}
	config := filepath.Join(root, "etc/trimtab/trimtab.yaml")
	if err := os.WriteFile(config, []byte("mode: observe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rpm("--upgrade", "--force-debian", "--force", "--nodeps", "--noscripts", file)
	if got := read(t, config); got != "mode: observe\n" {
		t.Errorf("the administrator's config became %q", got)
	}
	rpm("--erase", "--noscripts", "trimtab")
	if got := read(t, config+".rpmsave"); got != "mode: observe\n" {
		t.Errorf("erasing left %q of the config", got)
	}
	for _, left := range []string{"usr/bin/trimtab", "usr/libexec/trimtab"} {
		if _, err := os.Stat(filepath.Join(root, left)); err == nil {
			t.Errorf("erasing left %s", left)
		}
	}
}
