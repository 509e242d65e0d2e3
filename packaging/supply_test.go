package packaging

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
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

// sumsOfAll: SHA256SUMS has every file that was made, and no other.
func sumsOfAll(t *testing.T, built string) {
	var want []string
	for _, file := range files(t, built) {
		if file != "/SHA256SUMS" {
			want = append(want, strings.TrimPrefix(file, "/"))
		}
	}
	var got []string
	for line := range strings.Lines(inFolder(t, built, "sha256sum -c SHA256SUMS", true)) {
		got = append(got, strings.TrimSuffix(line, ": OK\n"))
	}
	const each = 4 // of an architecture: .deb, .rpm, tarball, bill of materials
	if !slices.Equal(got, want) || len(want) == 0 || len(want)%each != 0 {
		t.Errorf("SHA256SUMS has %v, built were %v", got, want)
	}
}

// inFolder runs a line of shell, which must succeed or fail.
func inFolder(t *testing.T, dir, line string, succeeds bool) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if (err == nil) != succeeds {
		t.Errorf("%s: %v, should succeed: %v\n%s", line, err, succeeds, out)
	}
	return string(out)
}

// checksums runs the script of that name in a folder.
func checksums(dir string, env ...string) (string, error) {
	cmd := exec.Command("../scripts/checksums.sh", dir)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSignature signs with a throwaway key and verifies by the lines of docs/install.md.
func TestSignature(t *testing.T) {
	keygen := tool(t, "ssh-keygen", "apt-get install openssh-client")
	const signature = "ssh-keygen -Y verify -f trimtab.signers -I trimtab -n trimtab -s SHA256SUMS.sig <SHA256SUMS"
	const shown = "grep ' trimtab_VERSION_amd64.deb$' SHA256SUMS | sha256sum -c -"
	if page := read(t, "../docs/install.md"); !strings.Contains(page, "```\n"+signature+"\n"+shown+"\n```\n") {
		t.Error("docs/install.md says another way to verify")
	}
	sums := strings.ReplaceAll(shown, "VERSION", "1.2.3")
	keys, dir := t.TempDir(), t.TempDir()
	put := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sign := func(key string) {
		t.Helper()
		if out, err := checksums(dir, "TRIMTAB_SIGNING_KEY="+filepath.Join(keys, key)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, key := range []string{"ours", "theirs"} {
		output(t, keygen, "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", filepath.Join(keys, key))
	}
	put("trimtab_1.2.3_amd64.deb", "a package")
	put("trimtab-1.2.3-linux-amd64.cdx.json", "{}")
	sign("theirs")
	sign("ours") // takes the place of a signature that is there
	put("trimtab.signers", "trimtab "+read(t, filepath.Join(keys, "ours.pub")))
	inFolder(t, dir, signature, true)
	inFolder(t, dir, sums, true)

	put("trimtab_1.2.3_amd64.deb", "another package")
	inFolder(t, dir, signature, true)
	inFolder(t, dir, sums, false)
	inFolder(t, dir, "sha256sum trimtab_* trimtab-* >SHA256SUMS", true) // as who changes a package would
	inFolder(t, dir, sums, true)
	inFolder(t, dir, signature, false)
	sign("theirs")
	inFolder(t, dir, signature, false)

	sign("ours")
	put("trimtab_1.2.4_amd64.deb", "a package that nobody summed")
	inFolder(t, dir, strings.ReplaceAll(shown, "VERSION", "1.2.4"), false)
}

// TestUnsigned: without a key there are sums alone; with one that cannot be used nothing is written.
func TestUnsigned(t *testing.T) {
	for name, tc := range map[string]struct {
		env  []string
		want string // said
		left []string
	}{
		"no key":        {[]string{"TRIMTAB_SIGNING_KEY="}, "", []string{"/SHA256SUMS", "/x.deb"}},
		"no such key":   {[]string{"TRIMTAB_SIGNING_KEY=/nonexistent"}, "TRIMTAB_SIGNING_KEY=/nonexistent cannot be read", []string{"/x.deb"}},
		"no ssh-keygen": {[]string{"TRIMTAB_SIGNING_KEY=/etc/passwd", "PATH=/nonexistent"}, "apt-get install openssh-client", []string{"/x.deb"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x.deb"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			said, err := checksums(dir, tc.env...)
			if (err == nil) != (tc.want == "") || !strings.Contains(said, tc.want) {
				t.Errorf("%v: %q", err, said)
			}
			if got := files(t, dir); !slices.Equal(got, tc.left) {
				t.Errorf("left %v, want %v", got, tc.left)
			}
		})
	}
}

// TestSameBytesInTwoFolders: by `make build`, whose flags the packages share. The compiler's cache may
// serve both: its keys have the folder in them unless the output has not.
func TestSameBytesInTwoFolders(t *testing.T) {
	if testing.Short() {
		t.Skip("builds trimtab twice: run without -short")
	}
	tool(t, "git", "apt-get install git")
	sums := map[string][]string{}
	for _, name := range []string{"one", "two/deeper"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		inFolder(t, "..", "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -C '"+dir+"' -x", true)
		output(t, "make", "--no-print-directory", "-C", dir, "build", "VERSION=1.2.3")
		for line := range strings.Lines(inFolder(t, dir, "sha256sum bin/*", true)) {
			sum, program, _ := strings.Cut(strings.TrimSpace(line), "  ")
			sums[program] = append(sums[program], sum)
		}
	}
	if sums["bin/trimtab"] == nil {
		t.Error("no bin/trimtab was built")
	}
	for program, of := range sums {
		if len(of) != 2 || of[0] != of[1] {
			t.Errorf("%s has the sums %v", program, of)
		}
	}
}

// TestOnlyTrackedFilesArePackaged: what lies beside a commit's files, a note or a draft, goes into
// no package.
func TestOnlyTrackedFilesArePackaged(t *testing.T) {
	tool(t, "git", "apt-get install git")
	script, err := filepath.Abs("../scripts/tracked.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inFolder(t, dir, "mkdir -p docs/examples; echo a >docs/a.md; echo b >'docs/b c.md'; echo d >docs/examples/d.md; echo l >LICENSE", true)
	inFolder(t, dir, script+" without docs LICENSE", true)
	inFolder(t, dir, "git init -q; git add docs LICENSE; echo x >docs/draft.md; echo x >docs/examples/.left", true)
	inFolder(t, dir, script+" with docs LICENSE", true)
	want := []string{"/LICENSE", "/docs/a.md", "/docs/b c.md", "/docs/examples/d.md"}
	for _, copied := range []string{"without", "with"} {
		if got := files(t, filepath.Join(dir, copied)); !slices.Equal(got, want) {
			t.Errorf("%s history: %v, want %v", copied, got, want)
		}
	}
	if made := read(t, "../scripts/package.sh") + read(t, "nfpm.yaml"); strings.Contains(made, "cp -r packaging") || strings.Contains(made, "src: \"docs/") {
		t.Error("a package takes files from the working folder by a pattern")
	}
}
