package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
)

// Values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputCSV   = "csv" // of commands that are annotated so
)

func outputsOf(cmd *cobra.Command) []string {
	if _, ok := cmd.Annotations[outputCSV]; ok {
		return []string{outputTable, outputJSON, outputCSV}
	}
	return []string{outputTable, outputJSON}
}

func checkOutput(cmd *cobra.Command) error {
	allowed := outputsOf(cmd)
	format, _ := cmd.Flags().GetString("output")
	if slices.Contains(allowed, format) {
		return nil
	}
	return fmt.Errorf("--output %q: allowed are %s", format, strings.Join(allowed, ", "))
}

// show prints v as JSON, or as the text that a person reads.
func show(cmd *cobra.Command, v any, text func() string) error {
	if format, _ := cmd.Flags().GetString("output"); format == outputJSON {
		return writeJSON(cmd.OutOrStdout(), v)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text())
	return err
}

// showAnswer shows what the daemon answered.
func showAnswer(cmd *cobra.Command, v any, err error, text func() string) error {
	if err != nil {
		return err
	}
	return show(cmd, v, text)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(printable{w})
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable escapes in JSON what a terminal would act on: encoding/json leaves C1's control
// characters as they are, and those that turn the direction of writing.
type printable struct{ io.Writer }

func (w printable) Write(text []byte) (int, error) {
	var out []byte
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) { // JSON's other white space is not written
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	if _, err := w.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// showGraded shows v, and lets the process end with a code.
func showGraded(cmd *cobra.Command, v any, code int, text func() string) error {
	if err := show(cmd, v, text); err != nil || code == 0 {
		return err
	}
	return &exitError{code: code}
}

// showResults prints what became of an action; the exit code is 1 if any part of
// it was not done.
func showResults(cmd *cobra.Command, results []state.ActionResult, err error) error {
	if err != nil {
		return err
	}
	code := 0
	if slices.ContainsFunc(results, func(r state.ActionResult) bool { return !r.OK }) {
		code = 1
	}
	return showGraded(cmd, results, code, func() string { return render.Results(results) })
}

// daemonClient is the client for the daemon that the flags name.
func daemonClient(cmd *cobra.Command) *client.Client {
	socket, _ := cmd.Flags().GetString("socket")
	return client.New(socket)
}

func localClock() render.Clock { return render.Clock{Now: time.Now(), Zone: time.Local} }

// completionPatience is how long a shell waits for a daemon that may be stuck: nothing is shown
// meanwhile, and no key answered.
const completionPatience = time.Second

// complete offers a word of each that the daemon lists, each once and "" never, or nothing if that
// takes too long: no file is meant. One of other characters than engines give is left out: the shell
// would print it, and put it on the line.
func complete[T any](cmd *cobra.Command, list func(*client.Client, context.Context) ([]T, error), word func(T) string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	all, err := list(daemonClient(cmd), ctx)
	if err != nil {
		all = nil
	}
	var words []string
	for _, x := range all {
		if w := word(x); plainName(w) && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNames offers the names of running containers, if the daemon answers.
func completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := func(daemon *client.Client, ctx context.Context) ([]state.Container, error) {
		all, err := daemon.Containers(ctx)
		return all.Containers, err
	}
	return complete(cmd, list, func(c state.Container) string { return c.Name })
}

// completeNameAndDevices offers a name, and after it the devices that this container was granted.
func completeNameAndDevices(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeNames(cmd, args, typed)
	}
	return complete(cmd, (*client.Client).GPUs, func(g state.GPUVisibility) string {
		if g.Name != args[0] || slices.Contains(args[1:], g.Device) {
			return ""
		}
		return g.Device
	})
}

// completeProfiles offers the names of known jobs.
func completeProfiles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(cmd, (*client.Client).Fingerprints, func(f state.Fingerprint) string { return f.Name })
}

// completeHosts offers the hosts whose known jobs are used.
func completeHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return complete(cmd, (*client.Client).Fingerprints, func(f state.Fingerprint) string { return f.Host })
}

// plainName tells names as Docker and containerd allow them, and HOST/NAME of other hosts' known jobs; a label of containerd's may hold anything.
func plainName(name string) bool {
	const begin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && strings.Contains(begin, name[:1]) && strings.Trim(name, begin+"_.-/") == ""
}
