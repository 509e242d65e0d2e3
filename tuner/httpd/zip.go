package httpd

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
)

// Zip compresses what write writes, at a level of gzip's from 1 to 9.
func Zip(level int, write func(io.Writer)) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, level) // there are these levels
	write(z)
	_ = z.Close() // memory takes all
	return out.Bytes()
}
