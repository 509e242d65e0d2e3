package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/cmd/trimtab/internal/top"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
)

// Bounds of how often `trimtab top` asks.
const (
	minInterval = 500 * time.Millisecond
	// pauseShare times what an answer took passes before the next question, up to maxPause: with
	// very many containers, top slows down rather than have the daemon answer it all the time.
	pauseShare = 20
	maxPause   = 10 * time.Second
	// topPatience is how long an answer is waited for.
	topPatience = 30 * time.Second
)

func topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch containers live: what bounds them, their limits, loans and trials, where a job's time goes",
		Long: "Watch containers live, at 80 × 24 and more; ? lists the keys. Where the output is no terminal, one frame is\n" +
			"printed as plain text, as with --once. On a terminal that cannot move its cursor (TERM=dumb) a frame is printed\n" +
			"at each interval. NO_COLOR=1 leaves colours out. The daemon is asked again at each interval, or after 20 times\n" +
			"what its answer took.",
		Example: "  trimtab top --sort stalled\n  trimtab top --once --filter vision",
		Args:    cobra.NoArgs,
		RunE:    runTop,
	}
	cmd.Flags().Bool("once", false, "print one frame as plain text, with all rows, and end")
	cmd.Flags().Duration("interval", 2*time.Second, "how often the daemon is asked, 500ms or more")
	cmd.Flags().String("sort", "name", "column to sort by: "+strings.Join(top.SortColumns(), ", "))
	cmd.Flags().String("filter", "", "only containers of which a name, team, job, image, state or cause holds this text")
	cmd.Flags().BoolP("all", "a", false, "also containers that are not watched")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(top.SortColumns(), cobra.ShellCompDirectiveNoFileComp)) // fails if asked twice
	return cmd
}

func runTop(cmd *cobra.Command, _ []string) error {
	o := top.Options{Zone: time.Local}
	o.Sort, _ = cmd.Flags().GetString("sort")
	o.Filter, _ = cmd.Flags().GetString("filter")
	o.All, _ = cmd.Flags().GetBool("all")
	once, _ := cmd.Flags().GetBool("once")
	interval, _ := cmd.Flags().GetDuration("interval")
	if !slices.Contains(top.SortColumns(), o.Sort) {
		return fmt.Errorf("--sort %q: allowed are %s", o.Sort, strings.Join(top.SortColumns(), ", "))
	}
	if interval < minInterval {
		return fmt.Errorf("--interval %s: allowed are %s and more", interval, minInterval)
	}
	format, _ := cmd.Flags().GetString("output")
	width, height, onTerminal := terminalSize(cmd.OutOrStdout())
	m := top.New(o)
	m.Update(top.Resized{Width: width, Height: height})
	p := poller{client: daemonClient(cmd), interval: interval, job: new(atomic.Pointer[string])}
	switch {
	case once || !onTerminal || format == outputJSON:
		return topOnce(cmd, p, m)
	case slices.Contains([]string{"", "dumb"}, os.Getenv("TERM")): // it can only write on
		return topFrames(cmd, p, m)
	}
	return topScreen(cmd.Context(), p, m)
}

// terminalSize is that of the output, where it is a terminal; else what COLUMNS says, or as much
// as a table takes.
func terminalSize(w io.Writer) (width, height int, onTerminal bool) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height, true
		}
		return 80, 24, true
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n, 24, false
	}
	return render.Width, 24, false
}

// topOnce prints one frame, or in JSON all that it is made of.
func topOnce(cmd *cobra.Command, p poller, m *top.Model) error {
	d, err := p.ask(cmd.Context(), "")
	if err != nil {
		return err
	}
	m.Update(d)
	answers := struct {
		Status     api.Status     `json:"status"`
		Containers api.Containers `json:"containers"`
		Devices    api.Devices    `json:"devices"`
	}{d.Status, api.Containers{UnixNs: d.Status.UnixNs, Containers: d.Containers}, d.Devices}
	return show(cmd, answers, func() string { return m.Once().String() })
}

// topFrames prints a frame at each answer, until it is interrupted.
func topFrames(cmd *cobra.Command, p poller, m *top.Model) error {
	msgs := p.start(cmd.Context())
	for msg := range msgs {
		m.Update(top.Tick{Now: time.Now()})
		m.Update(msg)
		if _, asked := msg.(top.Asked); asked {
			continue
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), m.View().String()); err != nil {
			return err
		}
	}
	return nil
}

// hourEach is how often a job's last hour is asked for: meanwhile its windows come in as they close.
const hourEach = time.Minute

// hourAsked is whose last hour was asked for, and when.
type hourAsked struct {
	job string
	at  time.Time
}

// due is the job that is shown, if its hour is to be asked for now.
func (h *hourAsked) due(shown *string, now time.Time) string {
	if shown == nil || *shown == h.job && now.Sub(h.at) < hourEach {
		return ""
	}
	h.job, h.at = *shown, now
	return h.job
}

// poller asks the daemon again and again.
type poller struct {
	client   *client.Client
	interval time.Duration
	// now asks as soon as may be, without waiting for the interval.
	now chan struct{}
	// job is the key of the container that is shown alone, whose last hour is asked for too; nil: none is.
	job *atomic.Pointer[string]
}

// start asks in a goroutine that ends with ctx, and then closes the channel. No question is
// asked before the answer to the last.
func (p poller) start(ctx context.Context) <-chan top.Msg {
	out := make(chan top.Msg)
	send := func(m top.Msg) bool {
		select {
		case out <- m:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(out)
		var last hourAsked
		for {
			began := time.Now()
			if !send(top.Asked{At: began}) || !send(p.answer(ctx, last.due(p.job.Load(), began))) {
				return
			}
			p.rest(ctx, time.Since(began))
		}
	}()
	return out
}

// rest waits until the next question, after an answer that took so long. Who asks at once skips the
// interval, and not what keeps the daemon from answering top all the time.
func (p poller) rest(ctx context.Context, took time.Duration) {
	due, soonest := time.After(pause(p.interval, took)), time.After(pause(minInterval, took))
	select {
	case <-due:
		return
	case <-ctx.Done():
		return
	case <-p.now:
	}
	select {
	case <-soonest:
	case <-ctx.Done():
	}
}

// pause is how long to wait after an answer that took so long.
func pause(interval, took time.Duration) time.Duration {
	return max(interval, min(pauseShare*took, maxPause))
}

// answer is what the daemon says, or that it says nothing. A panic is told like that too: it would end
// the process in this goroutine, which cannot give the terminal back.
func (p poller) answer(ctx context.Context, job string) (msg top.Msg) {
	defer func() {
		if r := recover(); r != nil {
			msg = top.Failed{Text: fmt.Sprintf("reading the answer failed: %v", r), Hint: "this is a bug of trimtab"}
		}
	}()
	d, err := p.ask(ctx, job)
	if err == nil {
		return d
	}
	e := withHint(err)
	return top.Failed{Text: e.Text, Hint: e.Hint}
}

// ask asks for all that is shown, and for the last hour of a job, if one is named.
func (p poller) ask(parent context.Context, job string) (d top.Data, err error) {
	ctx, cancel := context.WithTimeout(parent, topPatience)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil && parent.Err() == nil {
			err = fmt.Errorf("%w in %s", client.ErrNoAnswer, topPatience)
		}
	}()
	if d.Status, err = p.client.Status(ctx); err != nil {
		return d, err
	}
	all, err := p.client.Containers(ctx)
	if err != nil {
		return d, err
	}
	d.Containers = all.Containers
	if job != "" {
		d.Hour, _ = p.client.Series(ctx, job) // else the bars begin with what top has seen
	}
	d.Devices, err = p.client.Devices(ctx)
	d.At = time.Now()
	return d, err
}
