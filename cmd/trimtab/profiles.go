package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/profiles/disk"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

func profilesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "List, forget and share the jobs that trimtab knows again by what they do",
	}
	list := &cobra.Command{
		Use:   "ls",
		Short: "List known jobs: what a step costs them, what CPUs buy them, how often they were met",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := daemonClient(cmd).Fingerprints(cmd.Context())
			return showAnswer(cmd, all, err, func() string { return render.Fingerprints(all, localClock()) })
		},
	}
	forget := &cobra.Command{
		Use:               "forget {NUMBER | NAME | --host HOST | --all}",
		Short:             "Forget known jobs, on disk too; containers that run are measured and remembered anew",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeProfiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			var req state.ForgetRequest
			req.All, _ = cmd.Flags().GetBool("all")
			req.Host, _ = cmd.Flags().GetString("host")
			if len(args) > 0 == (req.All || req.Host != "") || req.All && req.Host != "" {
				return fmt.Errorf("name one, by its number or its name, or --host, or --all")
			}
			if len(args) > 0 {
				if id, err := strconv.ParseUint(args[0], 10, 64); err == nil && id > 0 {
					req.ID = id
				} else {
					req.Name = args[0]
				}
			}
			results, err := daemonClient(cmd).Forget(cmd.Context(), req)
			return showResults(cmd, results, err)
		},
	}
	forget.Flags().Bool("all", false, "all of them")
	forget.Flags().String("host", "", "all that came from another `HOST`, and how often its book misled")
	_ = forget.RegisterFlagCompletionFunc("host", completeHosts) // it is there
	cmd.AddCommand(list, forget)
	cmd.AddCommand(bookCommands()...)
	return cmd
}

// knownJobs keeps the known jobs on disk, and in the headers of recordings.
type knownJobs struct {
	state    *statefile.Store
	recorder *recorder              // nil: none
	marks    stored[profiles.Marks] // what is remembered of other hosts' books
	saved    profiles.Marks
}

// openKnown loads what is known; whatever is wrong with it costs memory alone.
func openKnown(s *statefile.Store, rec *recorder, log *slog.Logger) (*profiles.Store, *knownJobs) {
	profileStore, err := disk.Load(s, time.Now().UnixNano())
	if err != nil {
		log.Warn("known jobs: some or all are lost, and are learned anew", "error", err)
	}
	k := &knownJobs{state: s, recorder: rec, marks: stored[profiles.Marks]{s, "books"}}
	if k.saved, err = k.marks.Load(); err != nil {
		log.Warn("which entries of other hosts' books had misled is lost", "error", err)
	}
	k.saved = k.saved.Clone()
	profileStore.Mark(k.saved, time.Now().UnixNano())
	k.record(profileStore.All())
	return profileStore, k
}

// Save implements agent.Known.
func (k *knownJobs) Save(kept agent.Kept) error {
	k.record(kept.All)
	err := disk.Save(k.state, profiles.Own(kept.All))
	if reflect.DeepEqual(kept.Marks, k.saved) {
		return err
	}
	failed := k.marks.Save(kept.Marks)
	if failed == nil {
		k.saved = kept.Marks
	}
	return errors.Join(err, failed)
}

// maxRecorded of the known jobs stand at the head of each segment of the flight recorder, those that
// are worth the most: more of them would leave its ring to heads.
const maxRecorded = 512

func (k *knownJobs) record(all []profiles.Known) {
	if k.recorder == nil {
		return
	}
	first, _ := profiles.Divide(all, maxRecorded)
	if text, err := disk.Encode(first); err == nil {
		k.recorder.know(text)
	}
}

// know replaces the known jobs that streams begin with from here on.
func (r *recorder) know(text json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Known = text
}
