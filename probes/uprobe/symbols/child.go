package symbols

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// childCommand is the argument with which the binary reads files for a [Reader].
const childCommand = "symbols-child"

// ChildMain is for the first line of a program's main: where a [Reader] started it, it reads the files
// that it is sent, and exits with its parent's side of the socket.
func ChildMain() {
	if !isChild() {
		return
	}
	if err := childMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func isChild() bool { return len(os.Args) > 1 && os.Args[1] == childCommand }

var errNoFile = errors.New("a request without its file")

// socketFD is where the child finds the socket to its parent.
const socketFD = 3

func childMain() error {
	if kind, err := unix.GetsockoptInt(socketFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return fmt.Errorf("%s is started by trimtab alone", childCommand)
	}
	unix.CloseOnExec(socketFD)
	conn, err := packets(os.NewFile(socketFD, "parent"))
	if err != nil {
		return err
	}
	if err := confine(); err != nil {
		return err
	}
	for {
		if err := serve(conn); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// packets takes over a socket that keeps packets apart.
func packets(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	// The connection has a descriptor of its own.
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a socket of type %T", conn), conn.Close())
	}
	return unixConn, nil
}

// serve answers one request.
func serve(conn *net.UnixConn) error {
	q, file, err := receive(conn)
	if err != nil {
		return err
	}
	found, err := Find(file, q.Want, time.Now().Add(q.Limit))
	// Opened for reading: closing it cannot fail usefully.
	_ = file.Close()
	for _, a := range answersTo(found, err) {
		b, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("encode an answer: %w", err)
		}
		if _, err := conn.Write(b); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return nil
}

func receive(conn *net.UnixConn) (q request, file *os.File, err error) {
	packet, rights := make([]byte, maxPacketBytes), make([]byte, unix.CmsgSpace(4))
	n, nr, _, _, err := conn.ReadMsgUnix(packet, rights)
	if err != nil {
		return q, nil, fmt.Errorf("a request: %w", err)
	}
	if n == 0 {
		return q, nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nr])
	if err != nil || len(messages) != 1 {
		return q, nil, errors.Join(errNoFile, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return q, nil, errors.Join(errNoFile, err)
	}
	file = os.NewFile(uintptr(fds[0]), "file")
	if err := json.Unmarshal(packet[:n], &q); err != nil {
		return q, nil, errors.Join(fmt.Errorf("a request: %w", err), file.Close())
	}
	return q, file, nil
}
