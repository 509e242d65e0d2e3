// Command gaveltable makes test/lab/tables/data/gavel.csv from Gavel's
// scheduler/simulation_throughputs.json (a megabyte, of which the simulator needs
// jobs on one GPU). It prints to standard output.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gaveltable FILE > test/lab/tables/data/gavel.csv")
		os.Exit(2)
	}
	raw, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = transcribe(raw, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gaveltable:", err)
		os.Exit(1)
	}
}

// config is one line of the table but its device.
type config struct {
	key, model string
	batch      int
}

// devices are Gavel's names of GPUs in one place; its "_unconsolidated" ones differ
// for jobs on several GPUs alone.
func devices() []string { return []string{"k80", "p100", "v100"} }

func transcribe(raw []byte, out io.Writer) error {
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# simulation_throughputs.json, SHA-256 %x; see README.md\n", sha256.Sum256(raw))
	for _, device := range devices() {
		configs, err := onOneGPU(all[device])
		if err != nil {
			return fmt.Errorf("%s: %w", device, err)
		}
		for _, c := range configs {
			line, err := figures(all[device], configs, c)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", device, c.key, err)
			}
			fmt.Fprintf(&text, "%s,%s,%d%s\n", device, c.model, c.batch, line)
		}
	}
	_, err := out.Write(text.Bytes())
	return err
}

var keyForm = regexp.MustCompile(`^\('([^(']+?)(?: \(batch size (\d+)\))?', 1\)$`)

// onOneGPU lists the configurations by model and batch size.
func onOneGPU(rates map[string]map[string]json.RawMessage) ([]config, error) {
	var out []config
	for key := range rates {
		if m := keyForm.FindStringSubmatch(key); m != nil {
			batch, _ := strconv.Atoi(m[2]) // none where the name holds none
			out = append(out, config{key, m[1], batch})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no job on one GPU in it")
	}
	slices.SortFunc(out, func(a, b config) int {
		if a.model != b.model {
			return bytes.Compare([]byte(a.model), []byte(b.model))
		}
		return a.batch - b.batch
	})
	return out, nil
}

func figures(rates map[string]map[string]json.RawMessage, configs []config, c config) (string, error) {
	var alone float64
	if err := json.Unmarshal(rates[c.key]["null"], &alone); err != nil {
		return "", fmt.Errorf("alone: %w", err)
	}
	line := "," + four(alone)
	for _, other := range configs {
		var pair [2]float64
		if err := json.Unmarshal(rates[c.key][other.key], &pair); err != nil {
			return "", fmt.Errorf("beside %s: %w", other.key, err)
		}
		line += "," + four(pair[0])
	}
	return line, nil
}

func four(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
