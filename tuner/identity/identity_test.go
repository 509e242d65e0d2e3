package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/runtime"
	"pgregory.net/rapid"
)

func testKey(b byte) []byte { return bytes.Repeat([]byte{b}, KeyBytes) }

func start(words ...string) Start {
	return Start{ImageDigest: "sha256:abc", Image: "registry.example/team/train:v3", Entrypoint: []string{"python"}, Command: words}
}

func TestNormalise(t *testing.T) {
	for _, tc := range []struct {
		word, text string
		found      []string
	}{
		{"--lr=0.001", "--lr=" + hole, []string{"0.001"}},
		{"1e-4", hole, []string{"1e-4"}},
		{"-0.5", hole, []string{"0.5"}},
		{"--gamma=-3", "--gamma=" + hole, []string{"3"}},
		{"seed=42", "seed=" + hole, []string{"42"}},
		{"seed42", "seed" + hole, []string{"42"}},
		{"lr3e-4", "lr" + hole, []string{"3e-4"}},
		{"run-2026-11-27", "run-" + hole, []string{"2026", "11", "27"}},
		{"20261127T101112Z", hole, []string{"20261127T101112Z"}},
		{"2026-11-27T10:11:12.500Z", hole, []string{"2026", "11", "27T10", "11", "12.500Z"}},
		{"Nov27_10-11-12", "Nov" + hole, []string{"27", "10", "11", "12"}},
		{"550e8400-e29b-41d4-a716-446655440000", hole, []string{"550e8400-e29b-41d4-a716-446655440000"}},
		{"out/3f2a9bc1", "out/" + hole, []string{"3f2a9bc1"}},
		{"wandb-1x9Kp3QzT7mN4vB8sL2d", "wandb-" + hole, []string{"1x9Kp3QzT7mN4vB8sL2d"}},
		{"/data/shard-00017-of-00064.tar", "/data/shard-" + hole + "-of-" + hole + ".tar", []string{"00017", "00064"}},
		{"epoch=3-step=1000.ckpt", "epoch=" + hole + "-step=" + hole + ".ckpt", []string{"3", "1000"}},
		{"32G", hole, []string{"32G"}},
		{"/tmp/tmpab12cd3f/run-20261127_101112-1x9kp3qz", "/tmp/tmp" + hole + "/run-" + hole, []string{"20261127", "101112"}},
		{"/tmp/torchelastic_ab12gd3f", "/tmp/torchelastic_" + hole, []string{"ab12gd3f"}},
		{"0,1,2,3", hole, []string{"0", "1", "2", "3"}},
		{"0.00aaaaa", hole, []string{"0", "00aaaaa"}},
		{"1e-5aaaaaaa1", hole, []string{"1e", "5aaaaaaa1"}},
		// Names that end in digits choose what is run.
		{"resnet50", "resnet50", nil},
		{"t5-small", "t5-small", nil},
		{"--fp16", "--fp16", nil},
		{"train.py", "train.py", nil},
		{"step2.py", "step2.py", nil},
		{"/runs/17/exp_3.sh", "/runs/" + hole + "/exp_3.sh", []string{"17"}},
		{"facade", "facade", nil},
		{"3dunet", "3dunet", nil},
		{"日本2", "日本2", nil},
		{"", "", nil},
		{"-", "-", nil},
	} {
		text, found := Normalise(tc.word)
		if text != tc.text || !slices.Equal(found, tc.found) {
			t.Errorf("%q: %q, %q; want %q, %q", tc.word, text, found, tc.text, tc.found)
		}
	}
}

// What a sweep changes leaves the job the same; what it does not tells jobs apart.
func TestSweep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(
			rapid.Map(rapid.IntRange(0, 1e9), func(n int) string { return fmt.Sprint(n) }),
			rapid.Map(rapid.Float64Range(1e-9, 1e6), func(f float64) string { return fmt.Sprintf("%g", f) }),
			rapid.Map(rapid.Float64Range(1e-9, 1), func(f float64) string { return fmt.Sprintf("%.5f", f) }),
			rapid.StringMatching(`20[0-9]{2}-[01][0-9]-[0-3][0-9]`), rapid.StringMatching(`20[0-9]{6}_[0-9]{6}`),
			rapid.StringMatching(`20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z`),
			rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`),
			rapid.StringMatching(`[0-9][a-f][0-9a-f]{10}`))
		frame := rapid.SampledFrom([]string{"--lr %s", "--lr=%s", "seed=%s", "--out /runs/run-%s", "trainer.lr=%s", "--name exp_%s", "--shape %s"}).Draw(t, "frame")
		one := start(strings.Fields("train.py --model resnet50 " + fmt.Sprintf(frame, number.Draw(t, "one")))...)
		two := start(strings.Fields("train.py --model resnet50 " + fmt.Sprintf(frame, number.Draw(t, "two")))...)
		a, b := Of(one, testKey(1)), Of(two, testKey(1))
		if !a.Same(b) || a.Likeness(b) != 1 {
			t.Fatalf("%q and %q are two jobs", one.Command, two.Command)
		}
		if same := slices.Equal(one.Command, two.Command); same != slices.Equal(a.Numbers, b.Numbers) {
			t.Fatalf("%q and %q: numbers %v and %v", one.Command, two.Command, a.Numbers, b.Numbers)
		}
		other := two
		other.Command = append([]string{"train.py", "--model", "vit"}, other.Command[3:]...)
		if c := Of(other, testKey(1)); a.Same(c) || a.Likeness(c) >= 1 || a.Likeness(c) < 0.4 {
			t.Fatalf("another model: same %t, likeness %.2f", a.Same(c), a.Likeness(c))
		}
	})
}

func TestNormaliseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-a-zA-Z0-9_./=:,]{0,60}`),
			rapid.StringMatching(`(/?tmp|://|[-_.=/:]|[ab]{1,4}|[0-9]{1,6}){0,12}`)).Draw(t, "word")
		word = strings.ReplaceAll(word, hole, "")
		text, found := Normalise(word)
		again, more := Normalise(text)
		if again != text || len(more) > 0 {
			t.Fatalf("%q: %q, then %q with %q", word, text, again, more)
		}
		if text != word && !strings.Contains(text, hole) {
			t.Fatalf("%q became %q though nothing was taken out: %q", word, text, found)
		}
	})
}

// slowCollapse says of collapse what it is to do, a step at a time.
func slowCollapse(s string) string {
	for old := ""; old != s; {
		old = s
		for _, join := range []string{"", "-", ":", "_", ".", ",", "/", "+"} {
			s = strings.ReplaceAll(s, hole+join+hole, hole)
		}
		for _, before := range []string{"=", ":", ","} {
			s = strings.ReplaceAll(s, before+"-"+hole, before+hole)
		}
	}
	if s == "-"+hole {
		return hole
	}
	return s
}

func TestCollapseInOnePass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.SampledFrom([]rune(hole+hole+"-:_.,/+=a")), 0, 16, -1).Draw(t, "text")
		if got, want := collapse(s), slowCollapse(s); got != want {
			t.Errorf("%q for %q, step by step %q", got, s, want)
		}
	})
}

// TestLooksAtSoMuch: what stands beyond the bound changes nothing, whatever it is.
func TestLooksAtSoMuch(t *testing.T) {
	word := strings.Repeat("1-2--", maxWordBytes/5+1)[:maxWordBytes]
	s := start(slices.Repeat([]string{word}, maxLooked/maxWordBytes)...)
	s.Env, s.Mounts = slices.Repeat([]string{"A_MODEL=" + word}, maxLooked/maxWordBytes), slices.Repeat([]runtime.Mount{{Source: word, Target: "/data"}}, maxLooked/maxWordBytes)
	more := s
	more.Command = append(slices.Clone(s.Command), "other.py")
	more.Env, more.Mounts = append(slices.Clone(s.Env), "Z_TASK=other"), append(slices.Clone(s.Mounts), runtime.Mount{Source: "/other", Target: "/data"})
	if a, b := Of(s, testKey(1)), Of(more, testKey(1)); !identical(a, b) {
		t.Errorf("%+v, with more %+v", a, b)
	}
	s.Command[0] = "other.py"
	if Of(s, testKey(1)).Job == Of(more, testKey(1)).Job {
		t.Error("what is within the bound changes nothing")
	}
}

// BenchmarkOfHuge is of 2 MiB of words that are all numbers, ends of temporary names, or addresses.
func BenchmarkOfHuge(b *testing.B) {
	for name, word := range map[string]string{"numbers": strings.Repeat("1-2--", maxWordBytes/5), "names": "/tmp/" + strings.Repeat("_", maxWordBytes-5), "addresses": strings.Repeat("://a", maxWordBytes/4)} {
		b.Run(name, func(b *testing.B) {
			s := start(slices.Repeat([]string{word}, 2<<20/maxWordBytes)...)
			for b.Loop() {
				Of(s, testKey(1))
			}
		})
	}
}

// Nothing of a start can be read in what is stored of it, and another key gives other hashes.
func TestNothingReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[a-zA-Z0-9]{6,40}`).Draw(t, "secret")
		s := start("train.py", "--token", secret, "--token="+secret, "--rdzv_id="+secret, "--host", secret, "/tmp/tmp"+secret, "tcp://"+secret+":29500/"+secret)
		s.Env = []string{"API_KEY=" + secret, "MODEL=" + secret, "HF_TOKEN=" + secret}
		s.Mounts = []runtime.Mount{{Source: "/home/" + secret, Target: "/data"}}
		s.ImageDigest, s.Image = secret, "registry.example/"+secret+":1"
		a := Of(s, testKey(1))
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(bytes.ToLower(text), []byte(strings.ToLower(secret))) {
			t.Fatalf("%s holds %q", text, secret)
		}
		b := Of(s, testKey(2))
		if a.Same(b) || a.Likeness(b) != 0 || identical(a, b) {
			t.Fatalf("under two keys: %+v and %+v", a, b)
		}
		if why := a.Valid(); why != "" {
			t.Fatal(why)
		}
		var back Identity
		if err := json.Unmarshal(text, &back); err != nil || !cmp.Equal(a, back) {
			t.Fatalf("read back: %v %s", err, cmp.Diff(a, back))
		}
	})
}

func identical(a, b Identity) bool {
	return a.Job == b.Job || Common(a.Words, b.Words) > 0 || a.Data == b.Data || a.Image == b.Image
}

func TestWhatMakesAJob(t *testing.T) {
	base := Of(start("train.py", "--epochs", "3"), testKey(1))
	change := func(name string, job, other bool, f func(*Start)) {
		t.Helper()
		s := start("train.py", "--epochs", "3")
		f(&s)
		id := Of(s, testKey(1))
		if id.Same(base) != job {
			t.Errorf("%s: the same job: %t, want %t", name, id.Same(base), job)
		}
		if cmp.Equal(id, base) == other {
			t.Errorf("%s: nothing else differs: %t, want %t", name, !other, other)
		}
	}
	change("a new tag", true, false, func(s *Start) { s.Image = "registry.example/team/train:v4" })
	change("a new build", true, true, func(s *Start) { s.ImageDigest = "sha256:def" })
	change("by its digest", true, false, func(s *Start) { s.Image = "registry.example/team/train@sha256:abc" })
	change("another image", false, true, func(s *Start) { s.Image = "registry.example:5000/team/other" })
	change("other data", true, true, func(s *Start) { s.Mounts = []runtime.Mount{{Source: "/srv/imagenet", Target: "/data"}} })
	change("the engine's own mounts", true, false, func(s *Start) { s.Mounts = []runtime.Mount{{Source: "/var/lib/docker/x/hosts", Target: "/etc/hosts"}} })
	change("data below a name that begins as theirs", true, true, func(s *Start) { s.Mounts = []runtime.Mount{{Source: "/srv/imagenet", Target: "/devset"}} })
	change("a secret in the environment", true, false, func(s *Start) { s.Env = []string{"HF_TOKEN=x", "HOME=/root", "PATH=/bin"} })
	change("what selects a program", false, true, func(s *Start) { s.Env = []string{"TRAIN_TASK=segment"} })
	if id := Of(Start{}, testKey(1)); id.Known() {
		t.Error("an identity of nothing")
	}
	if id := Of(start("x"), []byte("short")); id.Known() {
		t.Error("an identity under a key that keeps nothing secret")
	}
	if (Identity{}).Same(Identity{}) {
		t.Error("two unknown containers are one job")
	}
}

// A shell's line is as many words as it shows.
func TestShellLine(t *testing.T) {
	a := Of(start("-c", "python train.py --lr 0.1"), testKey(1))
	b := Of(start("-c", "python train.py --lr 0.2 && sync"), testKey(1))
	if l := a.Likeness(b); l < 0.5 || l >= 1 {
		t.Errorf("likeness %.2f", l)
	}
}

// Whoever makes a container chooses how much there is to hash.
func TestHuge(t *testing.T) {
	var words []string
	for i := range 20000 {
		words = append(words, strings.Repeat("a", 8000)+string(rune('a'+i%26))+fmt.Sprint("x", i))
	}
	id := Of(start(words...), testKey(1))
	if len(id.Words) > maxWords || len(id.Numbers) > maxWords || id.Valid() != "" {
		t.Errorf("%d words, %d numbers, %q", len(id.Words), len(id.Numbers), id.Valid())
	}
	if text, _ := json.Marshal(id); len(text) > 2500 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestValid(t *testing.T) {
	good := Of(start("train.py", "--lr", "0.1", "--wd", "0.2"), testKey(1))
	for name, f := range map[string]func(*Identity){
		"a readable job":  func(i *Identity) { i.Job = "python train.py" },
		"not in order":    func(i *Identity) { slices.Reverse(i.Words) },
		"too many words":  func(i *Identity) { i.Words = slices.Repeat(i.Words[:1], 100) },
		"a readable data": func(i *Identity) { i.Data = "/home/me" },
		"no key":          func(i *Identity) { i.Key = "" },
	} {
		bad := good
		bad.Words = slices.Clone(good.Words)
		f(&bad)
		if bad.Valid() == "" {
			t.Errorf("%s: passes", name)
		}
	}
	if why := good.Valid(); why != "" {
		t.Error(why)
	}
}

// What a file holds in place of a hash is not taken in.
func TestReadableWordsAreNotRead(t *testing.T) {
	good := Of(start("train.py", "--lr", "0.1"), testKey(1))
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	word, _ := good.Words[0].MarshalText()
	for _, other := range []string{"--password=hunter2", "", "short", "train.py", "AAAAAAA\\n", string(word)} {
		var read Identity
		err := json.Unmarshal(bytes.Replace(text, word, []byte(other), 1), &read)
		if is := other == string(word); (err == nil) != is || is && !cmp.Equal(read, good) {
			t.Errorf("%q in place of %s: %+v, %v", other, word, read, err)
		}
	}
	var read Identity
	quoted := fmt.Appendf(nil, "%q", word)
	if err := json.Unmarshal(bytes.Replace(text, quoted, []byte("null"), 1), &read); err != nil || read.Valid() == "" {
		t.Errorf("null in place of %s: %+v, %v", quoted, read, err)
	}
}

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"--lr=0.001", "550e8400-e29b-41d4-a716-446655440000", "\x01-\x01", "1e", "1.", "seed", "/tmp/a-ab1cd_99x", "tmp_ab12cd3f.py", "a://b:1", "run-101112-1x9kp3qz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, _ := Normalise(s)
		if again, _ := Normalise(text); again != text {
			t.Fatalf("%q: %q, then %q", s, text, again)
		}
	})
}

// Likeness is the share of equal words of two identities, 0 to 1: the size of what both hold over
// that of what either does. 0 where they do not compare.
func (i Identity) Likeness(j Identity) float64 {
	if i.Key != j.Key || len(i.Words) == 0 || len(j.Words) == 0 {
		return 0
	}
	both := Common(i.Words, j.Words)
	return float64(both) / float64(len(i.Words)+len(j.Words)-both)
}
