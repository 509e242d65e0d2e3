package packaging

import (
	"debug/buildinfo"
	"path/filepath"
	"strings"
	"testing"
)

// saysWhatItIsMadeOf: every module that is linked into a packaged program has its licence beside it.
func saysWhatItIsMadeOf(t *testing.T, deb string) {
	dpkg := tool(t, "dpkg-deb", "a Debian host has it")
	root := t.TempDir()
	output(t, dpkg, "-x", deb, root)
	notices := read(t, filepath.Join(root, "usr/share/doc/trimtab/THIRD-PARTY-NOTICES"))
	for _, program := range []string{"usr/bin/trimtab", "usr/libexec/trimtab/trimtab-nvml"} {
		info, err := buildinfo.ReadFile(filepath.Join(root, program))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if !strings.Contains(notices, "\n"+m.Path+" "+m.Version+"\n\n---- ") {
				t.Errorf("%s holds %s %s, and the notices do not", program, m.Path, m.Version)
			}
		}
	}
}
