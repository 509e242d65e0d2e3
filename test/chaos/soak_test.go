package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSlope(t *testing.T) {
	var all []use
	for i := range 100 {
		all = append(all, use{at: time.Duration(i) * time.Minute, rss: 50 + float64(i)/60*3 + float64(i%2), descriptors: 40})
	}
	if got := slope(all, func(u use) float64 { return u.rss }); math.Abs(got-3) > 0.1 {
		t.Errorf("%.2f MiB an hour, 3 were put in", got)
	}
	if got := slope(all, func(u use) float64 { return u.descriptors }); math.Abs(got) > 1e-9 {
		t.Errorf("%.2f descriptors an hour of a constant", got)
	}
	if got := slope(all[:1], func(u use) float64 { return u.rss }); got != 0 {
		t.Errorf("%.2f of one reading", got)
	}
	var out strings.Builder
	if err := table(&out, all, 10); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 13 || !strings.HasPrefix(strings.TrimSpace(lines[12]), "an hour") { // head, 10, the last, slopes
		t.Errorf("%d lines:\n%s", len(lines), &out)
	}
	if err := table(&out, nil, 10); err != nil {
		t.Error(err)
	}
}
