// Command hash compresses and hashes blocks on two goroutines; a step is a block.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

func work(done *atomic.Int64) {
	block := bytes.Repeat([]byte("some text that compresses well enough, "), 4000)
	for {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(block) // to memory
		_ = w.Close()
		sum := sha256.Sum256(out.Bytes())
		block[int(sum[0])] ^= 1
		done.Add(1)
	}
}

func main() {
	var done atomic.Int64
	for range 2 {
		go work(&done)
	}
	began, told, at := time.Now(), int64(0), time.Now()
	boot := uptime()
	for range time.Tick(500 * time.Millisecond) {
		n, now := done.Load(), time.Now()
		if n > told {
			fmt.Printf("step=%d t=%f dt=%f\n", n, boot+now.Sub(began).Seconds(), now.Sub(at).Seconds()/float64(n-told))
			told, at = n, now
		}
	}
}

// uptime is CLOCK_MONOTONIC, as /proc tells it.
func uptime() float64 {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		panic(err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		panic(err)
	}
	return seconds
}
