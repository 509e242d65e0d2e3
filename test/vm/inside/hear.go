package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// heard is one request that hear was sent.
type heard struct {
	Path          string `json:"path"`
	Type          string `json:"type"`
	Authorization string `json:"authorization"`
	Body          string `json:"body"`
}

// hear takes whatever is sent to 127.0.0.1:port and appends it to a file, a line of JSON each.
func hear(port, file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // the server below ends with the process
	lines := make(chan heard)
	go func() {
		to := json.NewEncoder(f)
		for h := range lines {
			_ = to.Encode(h) // what is not there the test misses
		}
	}()
	return http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines <- heard{r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), string(body)}
	}))
}

// steps sends a step so many times a second, as docs/rate.md has a job do. A daemon that is away is no reason to end.
func steps(perSecond string) error {
	per, err := strconv.ParseFloat(perSecond, 64)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		time.Sleep(time.Duration(float64(time.Second) / per))
		if c, err := net.Dial("unixgram", "/run/trimtab/rate/rate.sock"); err == nil {
			_, _ = fmt.Fprintf(c, "step=%d", n)
			_ = c.Close()
		}
	}
}
