package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/profiles/books"
	"github.com/trimtab/trimtab/tuner/state"
)

func booksDir(cfg config.Config) string {
	if cfg.Profiles.Books != "" {
		return cfg.Profiles.Books
	}
	return filepath.Join(cfg.StateDir, "books")
}

// keyFile is what this host signs its books with.
func keyFile(cfg config.Config) string { return filepath.Join(cfg.StateDir, "book_key") }

// serials is which books of each key were the latest; beside the key, with which it is lost.
func serials(cfg config.Config) books.Serials {
	return books.Serials(filepath.Join(cfg.StateDir, "book_serials.json"))
}

func trusted(cfg config.Config) (books.Trust, error) {
	return books.NewTrust(cfg.Profiles.Trust, cfg.Profiles.Unsigned)
}

// hostName is the name of this host as a key may carry it.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "host"
	}
	return books.HostName(name)
}

// withConfig adds the flags that name the config.
func withConfig(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("config", config.DefaultFile, "config `FILE`")
	cmd.Flags().String("conf-dir", config.DefaultDropDir, "`DIR` of *.yaml files that come after it")
	return cmd
}

// configFiles are what these flags say.
func configFiles(cmd *cobra.Command) (file, dropDir string) {
	file, _ = cmd.Flags().GetString("config")
	dropDir, _ = cmd.Flags().GetString("conf-dir")
	return file, dropDir
}

func bookCommands() []*cobra.Command {
	export := withConfig(&cobra.Command{
		Use:   "export [FILE]",
		Short: "Write what this host has learned as a book for other hosts; without FILE to standard output",
		Args:  cobra.MaximumNArgs(1),
		RunE:  exportBook,
	})
	export.Flags().Bool("names", false, "with the names of containers and images")
	export.Flags().Bool("unsigned", false, "without a signature: this needs no access to the host's key")
	importing := withConfig(&cobra.Command{
		Use:   "import FILE...",
		Short: "Put books of other hosts where the daemon reads them; none that the config does not trust",
		Args:  cobra.MinimumNArgs(1),
		RunE:  importBooks,

		ValidArgsFunction: completeBooks,
	})
	merge := withConfig(&cobra.Command{
		Use:   "merge FILE... -o OUT",
		Short: "Make one file of several books, of each host the latest, with their signatures",
		Args:  cobra.MinimumNArgs(1),
		RunE:  mergeBooks,

		ValidArgsFunction: completeBooks,
	})
	merge.Flags().StringP("out", "o", "", "`FILE` to write; - is standard output")
	_ = merge.MarkFlagRequired("out") // it is there
	key := withConfig(&cobra.Command{
		Use:   "key",
		Short: "Print the line by which other hosts trust the books of this one: its public key",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			key, err := books.HostKey(keyFile(cfg))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", bytes.TrimSpace(ssh.MarshalAuthorizedKey(key.PublicKey())), hostName())
			return err
		},
	})
	return []*cobra.Command{export, importing, merge, key}
}

// completeBooks offers the files that may be books.
func completeBooks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"gz"}, cobra.ShellCompDirectiveFilterFileExt
}

func exportBook(cmd *cobra.Command, args []string) error {
	names, _ := cmd.Flags().GetBool("names")
	unsigned, _ := cmd.Flags().GetBool("unsigned")
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	var key ssh.Signer
	var serial int64
	made := time.Now()
	if !unsigned {
		if key, err = books.HostKey(keyFile(cfg)); err != nil {
			return fmt.Errorf("%w; a book needs none with --unsigned", err)
		}
		if serial, err = serials(cfg).Next(key.PublicKey(), made); err != nil {
			return err
		}
	}
	all, err := daemonClient(cmd).Fingerprints(cmd.Context())
	if err != nil {
		return err
	}
	own := profiles.Own(all)
	var out bytes.Buffer
	if err := books.Write(&out, hostName(), made.UnixNano(), serial, own, names, key); err != nil {
		return err
	}
	if len(args) == 0 || args[0] == "-" {
		_, err := cmd.OutOrStdout().Write(out.Bytes())
		return err
	}
	if err := books.Place(args[0], out.Bytes()); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	results := []state.ActionResult{{Name: args[0], OK: true, Text: fmt.Sprintf("%d known jobs", len(own))}}
	return showResults(cmd, results, nil)
}

// readBooks reads files, and says of each book that is refused why.
func readBooks(files []string, trust books.Trust, known books.Serials) (all []books.Found, bad []state.ActionResult, err error) {
	for _, file := range files {
		found, refused := books.ReadFile(file, trust)
		for _, f := range found {
			if err := known.Refuse(&f); err != nil {
				return nil, nil, err
			}
			if f.Refused != nil {
				bad = append(bad, state.ActionResult{Name: file, Text: f.Refused.Text})
			} else {
				all = append(all, f)
			}
		}
		if refused != nil {
			bad = append(bad, state.ActionResult{Name: file, Text: refused.Text})
		}
	}
	return all, bad, nil
}

func importBooks(cmd *cobra.Command, files []string) error {
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	trust, err := trusted(cfg)
	if err != nil {
		return err
	}
	all, results, err := readBooks(files, trust, serials(cfg))
	if err != nil {
		return err
	}
	for _, f := range all {
		path := filepath.Join(booksDir(cfg), f.Host+books.Suffix)
		r := state.ActionResult{Name: f.Host, OK: true, Text: fmt.Sprintf("%d known jobs, in %s", len(f.Known), path)}
		err := books.Keep(path, &f, trust, serials(cfg), time.Now())
		if err != nil && !errors.Is(err, books.ErrSerials) {
			r.OK, r.Text = false, err.Error()
		}
		results = append(results, r)
		if errors.Is(err, books.ErrSerials) { // the book is there
			results = append(results, state.ActionResult{Name: f.Host, Text: fmt.Sprintf("to remember that an older book is no longer taken: %v", err)})
		}
	}
	return showResults(cmd, results, nil)
}

func mergeBooks(cmd *cobra.Command, files []string) error {
	out, _ := cmd.Flags().GetString("out")
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	trust, err := trusted(cfg)
	if err != nil {
		return err
	}
	all, results, err := readBooks(files, trust, "") // who merges needs not be root: importing compares
	if err != nil {
		return err
	}
	text, hosts, err := books.Merge(all, time.Now())
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		return showResults(cmd, append(results, state.ActionResult{Name: out, Text: "not written: no book is left"}), nil)
	}
	if out == "-" {
		for _, r := range results {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "trimtab: %s %s\n", render.Clean(r.Name), render.Clean(r.Text))
		}
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	if err := books.Place(out, text); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return showResults(cmd, append(results, state.ActionResult{Name: out, OK: true, Text: "books of " + strings.Join(hosts, ", ")}), nil)
}

const (
	// lookEvery is how often the directory of books is looked at; what this host has learned itself
	// since then, by which they are calibrated, is followed each calibrateEvery.
	lookEvery      = 10 * time.Second
	calibrateEvery = 6 * time.Hour
	// restShare of the time that a reading took is the least until the next, mostRest the most: reading a
	// book of 10,000 jobs takes a third of a second, and all are read when one has changed.
	restShare = 100
	mostRest  = 5 * time.Minute
)

// bookReader reads other hosts' books for the agent.
type bookReader struct {
	dir  *books.Directory
	loop *agent.Agent
	log  *slog.Logger
	said map[string]string // by file: what was last said of it
}

// watchBooks reads the directory of books at the start and when something in it changes, until ctx
// ends. It returns at once then: a server of NFS that is gone must not hold up the end.
func watchBooks(ctx context.Context, cfg config.Config, loop *agent.Agent, log *slog.Logger) error {
	trust, err := trusted(cfg)
	if err != nil {
		return err // not met: the config is checked
	}
	if key, err := books.HostKey(keyFile(cfg)); err != nil {
		log.Warn("books of this host cannot be signed", "error", err)
	} else {
		trust = trust.But(key.PublicKey())
	}
	r := &bookReader{dir: books.NewDirectory(booksDir(cfg), trust, serials(cfg)), loop: loop, log: log, said: map[string]string{}}
	go r.run(ctx)
	<-ctx.Done()
	return nil
}

func (r *bookReader) run(ctx context.Context) {
	ticks := time.Tick(lookEvery)
	var read, next time.Time
	var forgotten uint64
	some := false
	for {
		now, due := r.loop.BooksForgotten(), !time.Now().Before(next)
		if now != forgotten || due && (read.IsZero() || some && time.Since(read) >= calibrateEvery || r.dir.Changed()) {
			begun := time.Now()
			var err error
			if some, err = r.read(ctx); err != nil && ctx.Err() == nil {
				r.say("", string(books.Unreadable), err.Error())
			}
			read, forgotten = time.Now(), now
			next = read.Add(min(restShare*read.Sub(begun), mostRest))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// read reads all books anew and gives them to the agent. some: there is one.
func (r *bookReader) read(ctx context.Context) (some bool, err error) {
	own, err := r.loop.OwnProfiles(ctx)
	if err != nil {
		return false, err
	}
	taken := newTakenBooks(own, time.Now())
	files, err := r.dir.Read(taken.now, taken.take)
	if err != nil { // what was read stays: a file system that is gone comes back
		return true, err
	}
	r.say("", "", "")
	told := taken.told(files)
	for _, b := range told {
		r.say(b.File, b.Reason, b.Text)
	}
	return len(files) > 0, r.loop.UseBooks(ctx, slices.Clip(taken.foreign), told)
}

// takenBooks checks and scales books as they are read, one at a time.
type takenBooks struct {
	own, foreign []profiles.Known
	now          time.Time
	by           map[string]state.Book // by host, what reading its book told
}

func newTakenBooks(own []profiles.Known, now time.Time) *takenBooks {
	return &takenBooks{own: own, now: now, by: map[string]state.Book{}}
}

func (t *takenBooks) take(f books.Found) {
	p := profiles.Prepare(t.own, f.Book, t.now.UnixNano())
	if t.foreign = append(t.foreign, p.Known...); len(t.foreign) > profiles.MaxKnown {
		t.foreign, _ = profiles.Divide(t.foreign, profiles.MaxKnown) // what a full directory holds must not pile up
	}
	t.by[f.Host] = state.Book{Jobs: len(p.Known), Shared: p.Shared, Ratio: p.Ratio, Refused: p.Refused + f.Broken, AheadNs: p.AheadNs}
}

// told is what became of each file.
func (t *takenBooks) told(files []books.File) (told []state.Book) {
	for _, f := range files {
		b, ok := t.by[f.Host]
		if !ok || f.Reason != "" {
			b = state.Book{Jobs: f.Jobs}
		}
		b.File, b.Host, b.MadeUnixNs, b.Reason, b.Text = f.Name, f.Host, f.MadeUnixNs, string(f.Reason), f.Text
		told = append(told, b)
	}
	return told
}

// say logs what is wrong with a book when that changes.
func (r *bookReader) say(file, reason, text string) {
	if r.said[file] == text {
		return
	}
	switch r.said[file] = text; {
	case text == "":
	case reason == "":
		r.log.Warn("the clock of a book of known jobs is ahead", "file", file, "why", text)
	default:
		r.log.Warn("a book of known jobs is not used", "file", file, "why", text)
	}
}

// examineBooks reads the books as the daemon does.
func examineBooks(ctx context.Context, cfg config.Config) finding {
	const what, patience = "books", 5 * time.Second
	trust, err := trusted(cfg)
	if err != nil {
		return grade(what, err, levelDegraded, "", "`trimtab config check` names each key")
	}
	if _, missing := os.Stat(keyFile(cfg)); missing == nil { // looking makes none
		if key, err := books.HostKey(keyFile(cfg)); err == nil {
			trust = trust.But(key.PublicKey())
		}
	}
	done := make(chan finding, 1)
	go func() {
		files, err := books.NewDirectory(booksDir(cfg), trust, serials(cfg)).Read(time.Now(), nil)
		switch {
		case errors.Is(err, books.ErrSerials): // it names the fix
			done <- grade(what, err, levelDegraded, "", "")
		case err != nil:
			done <- grade(what, err, levelDegraded, "", "make "+booksDir(cfg)+" a directory, or name another in profiles.books")
		default:
			done <- bookFinding(files)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return finding{What: what, Level: levelDegraded, Text: booksDir(cfg) + " does not answer", Hint: "mount it anew, or name another in profiles.books"}
	case f := <-done:
		return f
	}
}

func bookFinding(files []books.File) finding {
	f := finding{What: "books", Level: levelOK}
	jobs, used, refused := 0, 0, []string{}
	for _, file := range files {
		switch {
		case file.Reason == "":
			jobs, used = jobs+file.Jobs, used+1
		case file.Reason != books.Own && file.Reason != books.Older:
			refused = append(refused, render.Clean(file.Name+" "+file.Text))
		}
	}
	f.Text = fmt.Sprintf("%d of other hosts are used, with %d known jobs", used, jobs)
	if len(refused) > 0 {
		f.Level, f.Text = levelDegraded, fmt.Sprintf("%s; %d not: %s", f.Text, len(refused), refused[0])
		f.Hint = "docs/known-jobs.md tells what each reason means"
	}
	return f
}
