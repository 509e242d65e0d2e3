package httpd

import (
	"io"
	"net/http"
)

// Recorder is a ResponseWriter that keeps what a handler answers, so that it can be sent to many.
type Recorder struct {
	Status int // 200 unless the handler says another
	To     io.Writer
	header http.Header
}

// NewRecorder writes the body to another place.
func NewRecorder(to io.Writer) *Recorder {
	return &Recorder{Status: http.StatusOK, To: to, header: http.Header{}}
}

// Header is what the handler sets.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader keeps the status.
func (r *Recorder) WriteHeader(status int) { r.Status = status }

func (r *Recorder) Write(p []byte) (int, error) { return r.To.Write(p) }
