package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
	"github.com/gdamore/tcell/v3/tty"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/top"
	"github.com/trimtab/trimtab/policies"
)

// topScreen shows the model on the terminal until the user quits, ctx ends or the terminal is
// gone. Whatever ends it, the terminal is as it was before. tcell draws cells, so what a frame
// holds is never read as anything but text.
func topScreen(ctx context.Context, p poller, m *top.Model) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGHUP, unix.SIGTERM, unix.SIGQUIT, os.Interrupt)
	defer stop()
	resized := make(chan os.Signal, 1) // from before the size is read first
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	screen, err := newScreen()
	if err != nil {
		return fmt.Errorf("terminal: %w (`trimtab top --once` needs none; LC_ALL=C.UTF-8 where the character set is not known)", err)
	}
	defer screen.Fini()
	for sign, instead := range map[rune]string{'…': "~", '≈': "~", '·': ".", '×': "x", '—': "-", '–': "-", '±': "+"} {
		screen.RegisterRuneFallback(sign, instead) // where the terminal is not of UTF-8
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	p.now = make(chan struct{}, 1)
	t := terminal{screen: screen, model: m, continued: continued, resized: resized, refresh: p.now, job: p.job}
	return t.run(ctx, p.start(ctx))
}

// newScreen takes the terminal.
func newScreen() (tcell.Screen, error) {
	device, err := tty.NewDevTty()
	if err != nil {
		return nil, err
	}
	// The terminal is asked nothing: over a slow line its answers would come late, as keys.
	screen, err := tcell.NewTerminfoScreenFromTty(quietTty{device}, tcell.OptNegotiation(false), tcell.OptSanitizeContent(true))
	if err != nil {
		return nil, err
	}
	return screen, screen.Init()
}

// quietTty tells tcell of no resize. Told, tcell 3.6 draws in a goroutine that it does not wait for,
// and that may still write when the terminal has been given back. terminal.run resizes instead.
type quietTty struct{ tcell.Tty }

func (quietTty) NotifyResize(chan<- bool) {}

// terminal joins a model and a screen.
type terminal struct {
	screen    tcell.Screen
	model     *top.Model
	continued <-chan os.Signal
	resized   <-chan os.Signal
	refresh   chan<- struct{}
	job       *atomic.Pointer[string] // that is shown alone: the poller asks for its hour
}

func (t terminal) run(ctx context.Context, msgs <-chan top.Msg) error {
	ticks := time.Tick(time.Second)
	t.model.Update(top.Tick{Now: time.Now()})
	for {
		t.draw()
		action := top.ActionNone
		select {
		case <-ctx.Done():
			return nil
		case msg, open := <-msgs:
			if !open {
				return nil
			}
			t.model.Update(msg)
		case now := <-ticks:
			t.model.Update(top.Tick{Now: now})
		case <-t.continued: // after a stop that was not by ctrl-Z
			if err := errors.Join(t.screen.Suspend(), t.resume()); err != nil {
				return err
			}
		case <-t.resized:
			t.screen.Sync() // takes the new size, and tells it as an event
		case ev := <-t.screen.EventQ():
			switch ev := ev.(type) {
			case *tcell.EventError:
				return fmt.Errorf("terminal: %w", ev)
			case *tcell.EventResize:
				width, height := ev.Size()
				t.model.Update(top.Resized{Width: width, Height: height})
			case *tcell.EventKey:
				if k, ok := key(ev); ok {
					action = t.model.Update(k)
				}
			}
		}
		job := t.model.Job()
		t.job.Store(&job)
		if done, err := t.act(action); done || err != nil {
			return err
		}
	}
}

func (t terminal) act(a top.Action) (done bool, err error) {
	switch a {
	case top.ActionQuit:
		return true, nil
	case top.ActionSuspend:
		return false, t.suspend()
	case top.ActionRedraw:
		t.draw()
		t.screen.Sync()
	case top.ActionRefresh:
		select {
		case t.refresh <- struct{}{}:
		default: // it is being asked already
		}
	}
	return false, nil
}

// suspend gives the terminal back and stops the process group, as ctrl-Z would without us.
func (t terminal) suspend() error {
	if err := t.screen.Suspend(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	select {
	case <-t.continued:
	case <-time.After(time.Second): // there is no shell to continue it, so the kernel did not stop it
	}
	return t.resume()
}

// resume takes the terminal again, as it is now.
func (t terminal) resume() error {
	if err := t.screen.Resume(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	width, height := t.screen.Size()
	t.model.Update(top.Resized{Width: width, Height: height})
	t.model.Update(top.Tick{Now: time.Now()})
	return nil
}

// draw shows the model's frame; only cells that changed are written.
func (t terminal) draw() {
	f, coloured := t.model.View(), t.screen.Colors() > 0
	for y := range f.Height {
		for x := range f.Width {
			if c := f.At(x, y); c.Rune != 0 {
				t.screen.Put(x, y, string(c.Rune), look(c.Style, coloured))
			}
		}
	}
	t.screen.Show()
}

// look is how a style looks. Without colours all that matters is still told apart.
func look(s top.Style, coloured bool) tcell.Style {
	plain := tcell.StyleDefault
	switch {
	case s == top.StyleTitle, s == top.StyleHeader:
		return plain.Bold(true)
	case s == top.StyleSorted:
		return plain.Bold(true).Underline(true)
	case s == top.StyleSelected:
		return plain.Reverse(true)
	case s == top.StyleFaint:
		return plain.Dim(true)
	case s == top.StyleAlarm && coloured:
		return plain.Bold(true).Foreground(color.Red)
	case s == top.StyleAlarm:
		return plain.Bold(true).Reverse(true)
	case s >= top.StylePart && coloured:
		return plain.Foreground(color.Black).Background(partColour(policies.Part(s - top.StylePart)))
	}
	return plain
}

// partColour tells parts of a breakdown apart: what works is green and blue, what waits for CPU
// red, for data yellow.
func partColour(p policies.Part) tcell.Color {
	switch p {
	case policies.PartCompute:
		return color.Green
	case policies.PartDevice:
		return color.Teal
	case policies.PartThrottled, policies.PartInputThrottled:
		return color.Maroon
	case policies.PartContended, policies.PartInputContended:
		return color.Purple
	case policies.PartInputStorage, policies.PartInputRemote, policies.PartInputWorkers:
		return color.Olive
	case policies.PartCommunication, policies.PartReclaim:
		return color.Navy
	}
	return color.Silver
}

// key is what a key means to the model; not ok: nothing.
func key(ev *tcell.EventKey) (k top.Key, ok bool) {
	if ev.Key() != tcell.KeyRune {
		return top.Key{Code: ev.Key()}, true
	}
	r := []rune(ev.Str())
	if len(r) == 0 || ev.Modifiers()&(tcell.ModCtrl|tcell.ModAlt|tcell.ModMeta) != 0 {
		return k, false
	}
	return top.Key{Code: tcell.KeyRune, Rune: r[0]}, true
}
