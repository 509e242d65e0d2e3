package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
)

func startedContainer() runtime.Container {
	return runtime.Container{Name: "train", Image: "train:1", GPUs: []string{"0"}, Start: &runtime.Start{ImageDigest: "sha256:1", Entrypoint: []string{"python"},
		Command: []string{"train.py", "--token", "hunter2secret"}, Env: []string{"API_KEY=hunter2secret"}, Mounts: []runtime.Mount{{Source: "/home/hunter2secret", Target: "/data"}}}}
}

// A key is made once, for its owner alone, and the next daemon knows the same jobs by it.
func TestIdentityKeyLasts(t *testing.T) {
	cfg := config.Config{StateDir: t.TempDir()}
	a := openIdentifier(cfg, slog.New(slog.DiscardHandler)).Of(startedContainer())
	info, err := os.Stat(filepath.Join(cfg.StateDir, identityKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	b := openIdentifier(cfg, slog.New(slog.DiscardHandler)).Of(startedContainer())
	if a == nil || !a.Identity.Same(b.Identity) || a.Run != b.Run || a.Host != b.Host || a.Host == "" || a.Kernel == "" {
		t.Errorf("%+v and %+v", a, b)
	}
	// Its run is told apart, and not by what can be guessed of it.
	another, other := startedContainer(), openIdentifier(config.Config{StateDir: t.TempDir()}, slog.New(slog.DiscardHandler)).Of(startedContainer())
	another.ID.Container += "2"
	if c := openIdentifier(cfg, slog.New(slog.DiscardHandler)).Of(another); c.Run == a.Run || other.Run == a.Run || a.Run == 0 || a.Run == profiles.RunOf(startedContainer().Key()) {
		t.Errorf("runs %x, %x, and %x under another key", a.Run, c.Run, other.Run)
	}
	// Nothing readable is encoded, of the container neither.
	for _, v := range []any{a, startedContainer()} {
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("%s, %v", text, err)
		}
	}
	if openIdentifier(cfg, slog.New(slog.DiscardHandler)).Of(runtime.Container{Name: "x", Image: "y"}) != nil {
		t.Error("a container whose engine tells nothing of its start is known")
	}
}

// What is wrong with a key costs what is remembered, and is said; the daemon goes on.
func TestIdentityKeyThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := hex.EncodeToString(bytes.Repeat([]byte{1}, identity.KeyBytes))
	if key, err := readKey(write("good", good+"\n", 0o600)); err != nil || len(key) != identity.KeyBytes {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "good"), link); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]config.Config{
		"missing":     {IdentityKey: filepath.Join(dir, "none")},
		"for all":     {IdentityKey: write("open", good, 0o644)},
		"too short":   {IdentityKey: write("short", good[:20], 0o600)},
		"no hex":      {IdentityKey: write("text", strings.Repeat("z", 64), 0o600)},
		"a link":      {IdentityKey: link},
		"a directory": {IdentityKey: dir},
		"no room":     {StateDir: filepath.Join(dir, "no such folder")}, // as on a disk that takes no file
	} {
		var said bytes.Buffer
		i := openIdentifier(cfg, slog.New(slog.NewTextHandler(&said, nil)))
		if !strings.Contains(said.String(), "identity key") || strings.Contains(said.String(), good) {
			t.Errorf("%s: said %q", name, said.String())
		}
		if s := i.Of(startedContainer()); s == nil || s.Identity.Key == identity.KeyName(bytes.Repeat([]byte{1}, identity.KeyBytes)) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
