package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/moby/moby/client"
)

// logHeaderBytes precede each piece of a log whose container has no terminal:
// the stream, three zeros, and the length, big endian.
const logHeaderBytes = 8

// Logs follows what a container logs from now on, with whatever log driver that
// Docker can read. Each line begins with its RFC 3339 time and a space. The reader
// ends with the container, with the connection, or with ctx; the caller closes it.
func (e *Engine) Logs(ctx context.Context, containerID string) (io.ReadCloser, error) {
	short, cancel := context.WithTimeout(ctx, e.opts.CallTimeout)
	defer cancel()
	answer, err := e.client.ContainerInspect(short, containerID, client.ContainerInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("log of container %.12s: %w", containerID, classifyDocker(err))
	}
	// Tail 0: with Since alone, Docker would read the whole log to find the place.
	stream, err := e.client.ContainerLogs(ctx, containerID, client.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: true, Tail: "0"})
	if err != nil {
		return nil, fmt.Errorf("log of container %.12s: %w", containerID, classifyDocker(err))
	}
	if answer.Container.Config != nil && answer.Container.Config.Tty {
		return stream, nil
	}
	return &demultiplexed{ReadCloser: stream}, nil
}

// demultiplexed reads a log's two streams as one, in Docker's order.
type demultiplexed struct {
	io.ReadCloser
	left uint32 // of the current piece
}

// Read returns nothing for a piece that is empty: of a log that has only such, its reader takes so many.
func (d *demultiplexed) Read(b []byte) (int, error) {
	if d.left == 0 {
		var header [logHeaderBytes]byte
		if _, err := io.ReadFull(d.ReadCloser, header[:]); err != nil {
			return 0, err
		}
		if header[0] > 2 || header[1] != 0 || header[2] != 0 || header[3] != 0 {
			return 0, errors.New("Docker sent a log in a form that is not known")
		}
		if d.left = binary.BigEndian.Uint32(header[4:]); d.left == 0 {
			return 0, nil
		}
	}
	n, err := d.ReadCloser.Read(b[:min(len(b), int(d.left))])
	d.left -= uint32(n)
	return n, err
}
