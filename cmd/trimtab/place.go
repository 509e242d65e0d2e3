package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/place"
	"github.com/trimtab/trimtab/tuner/state"
)

// exitNoneFree is EX_TEMPFAIL of sysexits(3): asked again later, it may be otherwise.
const exitNoneFree = 75

func placeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "place {IMAGE [ARG...] | --jobs FILE}",
		Short: "Rank this host's GPUs for a job that is to start, by what jobs like it did",
		Long: "Rank this host's GPUs and MIG slices for a job that is to start, by what jobs like it did. Each has its expected rate, CPUs\n" +
			"and memory, and who holds it now. With --docker, --containerd or --compose, print the arguments that give the job the best\n" +
			"free device. It is then held until a container starts on it, for a minute at the most. No running job is moved.\n" +
			"Without a GPU on this host nothing is printed then, and the exit status is 0. With no device free it is 75.",
		Example: "  trimtab place pytorch/pytorch python train.py --lr 0.1\n" +
			"  devices=$(trimtab place --docker pytorch/pytorch) && docker run $devices pytorch/pytorch python train.py --lr 0.1\n" +
			"  trimtab place --jobs night.jsonl --policy similarity",
		Args: func(cmd *cobra.Command, args []string) error {
			if file, _ := cmd.Flags().GetString("jobs"); (file == "") == (len(args) == 0) {
				return errors.New("name an image, or --jobs FILE")
			}
			return nil
		},
		RunE:              runPlace,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the image is the job's
	form := func(name, allowed, usage string) {
		f.String(name, "", usage)
		f.Lookup(name).NoOptDefVal = allowed
	}
	form("docker", string(place.DockerGPUs), "print arguments of docker run: =docker (--gpus), =cdi, =docker-device")
	form("containerd", string(place.Ctr), "print arguments of containerd's tools: =ctr (--gpus), =cdi (ctr, nerdctl), =docker (nerdctl --gpus)")
	form("compose", "-", "print the service's devices for docker compose; =SERVICE prints a whole file to merge")
	f.Bool("json", false, "the same as --output json")
	f.Bool("no-hold", false, "hold no device for the job")
	f.Bool("share", false, "also devices that others use, if none is free")
	f.Int("gpus", 1, "how many devices of one model the job wants")
	f.String("jobs", "", "a list of jobs, JSON or YAML, or - for standard input: which runs where, and when")
	f.String("policy", place.Policies()[0], "of a list: similarity, fastest-first or fifo")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(place.Policies(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runPlace(cmd *cobra.Command, args []string) error {
	req, err := placeRequest(cmd, args)
	if err != nil {
		return err
	}
	form, service, err := placeForm(cmd)
	if err != nil {
		return err
	}
	if form == "" {
		answer, err := daemonClient(cmd).Place(cmd.Context(), req)
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON && err == nil {
			return writeJSON(cmd.OutOrStdout(), answer)
		}
		return showAnswer(cmd, answer, err, func() string { return render.Placement(answer, localClock()) })
	}
	if len(req.Jobs) != 1 || req.Jobs[0].Count > 1 {
		return errors.New("arguments are printed of one job alone, not of a list")
	}
	answer, err := placeHeld(cmd, req)
	if err != nil {
		return err
	}
	return printArguments(cmd, answer, form, service)
}

// placeHeld asks for devices and holds them. Who may only look gets them without a hold, and is told.
func placeHeld(cmd *cobra.Command, req state.PlaceRequest) (state.Placement, error) {
	noHold, _ := cmd.Flags().GetBool("no-hold")
	req.Hold = !noHold
	answer, err := daemonClient(cmd).Place(cmd.Context(), req)
	var refused *api.Error
	if req.Hold && errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		req.Hold = false
		if answer, err = daemonClient(cmd).Place(cmd.Context(), req); err == nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "trimtab: the device is not held: %s\n", render.Clean(refused.Error()))
		}
	}
	return answer, err
}

// printArguments prints the chosen devices alone, so that a shell can take them in.
func printArguments(cmd *cobra.Command, answer state.Placement, form place.Form, service string) error {
	j := answer.Jobs[0]
	if len(j.Choices) == 0 {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "trimtab: no GPU here (%s): the job starts without one\n", render.Clean(answer.Why))
		return err
	}
	if len(j.Chosen) == 0 {
		return &exitError{exitNoneFree, &api.Error{Text: render.Clean(j.Why), Hint: "`trimtab place IMAGE` says who holds which; --share takes one that others use"}}
	}
	text, err := place.Arguments(j, form, service)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// placeForm is the form that was asked for; "": a table.
func placeForm(cmd *cobra.Command) (form place.Form, service string, err error) {
	asked := 0
	for name, allowed := range map[string][]place.Form{"docker": {place.DockerGPUs, place.CDI, place.DockerDevice}, "containerd": {place.Ctr, place.CDI, place.DockerGPUs}, "compose": nil} {
		if !cmd.Flags().Changed(name) {
			continue
		}
		asked++
		text, _ := cmd.Flags().GetString(name)
		if form = place.Form(text); name == "compose" {
			form = place.Compose
			if text != "-" {
				service = text
			}
		}
		if form != place.Compose && !slices.Contains(allowed, form) {
			return "", "", fmt.Errorf("--%s=%s: allowed are %v", name, text, allowed)
		}
	}
	if asked > 1 {
		return "", "", errors.New("one of --docker, --containerd and --compose")
	}
	return form, service, nil
}

func placeRequest(cmd *cobra.Command, args []string) (req state.PlaceRequest, err error) {
	req.Share, _ = cmd.Flags().GetBool("share")
	req.Policy, _ = cmd.Flags().GetString("policy")
	gpus, _ := cmd.Flags().GetInt("gpus")
	file, _ := cmd.Flags().GetString("jobs")
	if file == "" {
		req.Jobs = []state.PlaceJob{{Image: args[0], Args: args[1:], GPUs: gpus}}
	} else if req.Jobs, err = readJobs(cmd.InOrStdin(), file); err != nil {
		return req, err
	}
	return req, api.CheckPlace(req)
}

// maxJobsBytes of a list are read: as much as the daemon takes.
const maxJobsBytes = 64 << 10

// readJobs reads a list of jobs: JSON values one after the other, or a list in JSON or YAML.
func readJobs(stdin io.Reader, file string) (jobs []state.PlaceJob, err error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxJobsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > maxJobsBytes {
		return nil, fmt.Errorf("%s: longer than %d bytes; equal jobs can be one line with a count", file, maxJobsBytes)
	}
	if text = bytes.TrimSpace(text); len(text) > 0 && text[0] != '{' { // a list; YAML reads JSON's too
		var list []map[string]any
		if err := yaml.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		text = nil
		for _, j := range list {
			line, err := json.Marshal(j)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			text = append(text, line...)
		}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	for {
		var j state.PlaceJob
		switch err := dec.Decode(&j); {
		case errors.Is(err, io.EOF):
			return jobs, nil
		case err != nil:
			return nil, fmt.Errorf("%s: job %d: %w", file, len(jobs)+1, err)
		}
		jobs = append(jobs, j)
	}
}
