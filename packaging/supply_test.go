package packaging

import (
	"debug/buildinfo"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// saysWhatItIsMadeOf: every module that is linked into a packaged program has its licence beside
// it, and is in the bill of materials, which is the one that lies beside the package.
func saysWhatItIsMadeOf(t *testing.T, deb, beside string) {
	dpkg := tool(t, "dpkg-deb", "a Debian host has it")
	root := t.TempDir()
	output(t, dpkg, "-x", deb, root)
	notices := read(t, filepath.Join(root, "usr/share/doc/trimtab/THIRD-PARTY-NOTICES"))
	text := read(t, filepath.Join(root, "usr/share/doc/trimtab/trimtab.cdx.json"))
	if text != read(t, beside) {
		t.Error("the bill of materials in the package is another than the one beside it")
	}
	var bom struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct {
			Purl   string
			Hashes []struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(text), &bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("the bill of materials is of %q", bom.Metadata.Component.Version)
	}
	var listed []string
	for _, c := range bom.Components {
		listed = append(listed, c.Purl)
		for _, h := range c.Hashes {
			listed = append(listed, h.Content)
		}
	}
	for _, program := range []string{"usr/bin/trimtab", "usr/libexec/trimtab/trimtab-nvml"} {
		info, err := buildinfo.ReadFile(filepath.Join(root, program))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if !strings.Contains(notices, "\n"+m.Path+" "+m.Version+"\n\n---- ") {
				t.Errorf("%s holds %s %s, and the notices do not", program, m.Path, m.Version)
			}
			if !slices.Contains(listed, "pkg:golang/"+m.Path+"@"+m.Version) {
				t.Errorf("%s holds %s %s, and the bill of materials does not", program, m.Path, m.Version)
			}
		}
		sum, _, _ := strings.Cut(output(t, "sha256sum", filepath.Join(root, program)), " ")
		if !slices.Contains(listed, sum) {
			t.Errorf("%s is not the one in the bill of materials", program)
		}
	}
}
