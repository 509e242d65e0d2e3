package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// calledSo is a daemon with containers of these names.
type calledSo struct {
	fake
	names []string
}

func (n calledSo) Snapshot() *state.Snapshot {
	s := n.fake.Snapshot()
	s.Containers = nil
	for _, name := range n.names {
		s.Containers = append(s.Containers, state.Container{Key: "docker-" + name, Name: name, Watched: true})
	}
	return s
}

// wordsOfBash stands for what the script asks of the package bash-completion, where that is missing.
const wordsOfBash = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }`

// TestCompletionInShells: in a shell on a terminal the tab key completes what a daemon's containers
// are called. A name that a shell would act on is not offered.
func TestCompletionInShells(t *testing.T) {
	source := ". /usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(strings.TrimPrefix(source, ". ")); err != nil {
		source = wordsOfBash
	}
	for name, tt := range map[string]struct{ args, setUp []string }{
		"bash": {[]string{"--norc", "--noprofile", "-i"}, []string{source, ". <(trimtab completion bash)"}},
		"zsh":  {[]string{"-f", "-i"}, []string{"autoload -U compinit", "compinit -u -D", ". <(trimtab completion zsh)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("needs %s", name)
			}
			sh := newShell(t, calledSo{names: []string{"resnet-a", "resnet-b", "transformer", "$(touch pwned)", "trap;touch pwned", "\x1b[2J", "tr\u202eap"}})
			o := startOnTerminal(t, []string{"PATH=" + filepath.Join(sh.dir, ".bin") + ":" + os.Getenv("PATH"), "HOME=" + sh.dir, "PS1=> "}, name, tt.args...)
			for _, line := range append([]string{"cd '" + sh.dir + "'"}, tt.setUp...) {
				o.press(line + "\n")
			}
			o.press("clear; echo rea''dy\n")
			o.want("ready ", true)
			o.press("trimtab explain tr\t")
			o.want("trimtab explain transformer", true)
			o.press("\x15trimtab explain r\t")
			o.want("trimtab explain resnet-", true)
			o.press("\t\t")
			o.want("resnet-a", true)
			o.want("resnet-b", true)
			o.press("\x15trimtab history --ch\t")
			o.want("trimtab history --changed", true)
			o.press("\x15exit\n")
			select {
			case <-o.closed:
			case <-time.After(patience):
				t.Fatalf("the shell does not end:\n%s", o.text())
			}
			if _, err := os.Stat(filepath.Join(sh.dir, "pwned")); err == nil || strings.Contains(o.text(), "touch") {
				t.Errorf("a name was offered, or done:\n%s", o.text())
			}
		})
	}
}

// TestCompletionInFish: fish says what it would complete a line to.
func TestCompletionInFish(t *testing.T) {
	if _, err := exec.LookPath("fish"); err != nil {
		t.Skip("needs fish: apt-get install fish")
	}
	sh := newShell(t, calledSo{names: []string{"resnet-a", "resnet-b", "transformer", "$(touch pwned)", "trap;touch pwned", "(touch pwned)", "tr\u202eap"}})
	for line, want := range map[string]string{
		"trimtab explain tr":   "transformer\n",
		"trimtab explain r":    "resnet-a\nresnet-b\n",
		"trimtab history --ch": "--changed\n",
	} {
		out, code := sh.run(`fish --no-config -c 'trimtab completion fish | source; complete --do-complete "` + line + `"'`)
		offered := regexp.MustCompile(`(?m)\t.*$`).ReplaceAllString(out, "") // what it is stands behind a tab
		if code != 0 || offered != want {
			t.Errorf("%s: %d, %q", line, code, out)
		}
	}
	if _, err := os.Stat(filepath.Join(sh.dir, "pwned")); err == nil {
		t.Error("a name was done")
	}
}
