package page

import (
	"testing"
	"testing/synctest"
	"time"
)

// A list that is dear keeps nobody from the page's other first answers. It serves, older than it is meant to
// be, until it is paid for.
func TestFirstAnswersComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(daemon)
		s := newShared(d, d.latest)
		cost, spent := 160*time.Millisecond, time.Duration(0)
		s.snapshot.clock = func() time.Duration { spent += cost; return spent } // called twice for each
		began := time.Now()
		look := func(target string) {
			t.Helper()
			d.unixNs.Add(1)
			if w := ask(s, "GET", target, "Accept-Encoding", "gzip"); w.Code != 200 {
				t.Fatalf("%s: %d", target, w.Code)
			}
		}
		look("/v1/containers")
		cost = time.Millisecond
		for _, target := range []string{"/v1/status", "/v1/containers/a", "/v1/series?name=a", "/v1/containers"} {
			look(target)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the first answers took %s", waited)
		}
		asked := d.asked.Load()
		for cost = 160 * time.Millisecond; time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			look("/v1/containers")
		}
		if n := d.asked.Load() - asked; n < 12 || n > 18 { // each is paid for in 40 s
			t.Errorf("the list was made %d times in 10 min", n)
		}
		if waited := time.Since(began); waited > 10*time.Minute+time.Second {
			t.Errorf("10 min of looking took %s", waited)
		}
	})
}
