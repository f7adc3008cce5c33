package meter

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// version is that of the protocol between a client and a server.
const version = 4

// A connection begins with a preamble of as many bytes as the cookie of iperf3, so that each of
// the two programs answers the other at once:
//
//	"sdpperf" version(2) kind(1) stream(6) run(20) "\n"
//
// Numbers are decimal, the run's name is hexadecimal. Behind it a control connection has lines of
// JSON, and a data connection the data.
const (
	magic        = "sdpperf"
	preambleSize = 37
	control      = 'c'
	data         = 'd'
)

// preamble says what a connection is for.
type preamble struct {
	kind   byte
	stream int
	run    string // 20 characters, by which a server finds the run
}

// ErrIperf3 is the error of a connection whose other end is iperf3.
var ErrIperf3 = errors.New("iperf3 is at the other end, which measures TCP only and has another protocol: run sdp-perf at both ends")

var (
	errNotPerf = errors.New("the other end is not sdp-perf")
	errVersion = errors.New("the other end is an sdp-perf of another version")
)

func newRunName() string {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (p preamble) bytes() []byte {
	return fmt.Appendf(nil, "%s%02d%c%06d%s\n", magic, version, p.kind, p.stream, p.run)
}

// readPreamble reads and checks a preamble. The first bytes of another program are enough to
// refuse it.
func readPreamble(r io.Reader) (p preamble, err error) {
	var b [preambleSize]byte
	if _, err := io.ReadFull(r, b[:len(magic)+2]); err != nil {
		return p, err
	}
	if string(b[:len(magic)]) != magic {
		for _, c := range b[:len(magic)+2] { // a cookie of iperf3 has only these
			if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
				return p, errNotPerf
			}
		}
		return p, ErrIperf3
	}
	if _, err := io.ReadFull(r, b[len(magic)+2:]); err != nil {
		return p, err
	}
	theirs, err := strconv.ParseUint(string(b[7:9]), 10, 8)
	if err != nil {
		return p, errNotPerf
	}
	if theirs != version {
		return p, fmt.Errorf("%w: version %d here, %d there", errVersion, version, theirs)
	}
	stream, err := strconv.ParseUint(string(b[10:16]), 10, 32)
	if err != nil || b[9] != control && b[9] != data || b[preambleSize-1] != '\n' {
		return p, errNotPerf
	}
	return preamble{kind: b[9], stream: int(stream), run: string(b[16:36])}, nil
}

// message is a line of a control connection.
type message struct {
	// Of the client: start, with Params; run, when all streams are there; usage; stop, when it has
	// done its part. Of the server: ready, attached, usage and result, in answer to these.
	Do     string  `json:"do,omitempty"`
	Params *Params `json:"params,omitempty"`
	Side   *Side   `json:"side,omitempty"`
	Error  string  `json:"error,omitempty"` // in place of an answer
}

// maxLine bounds a line, most of which is a histogram and the counts of each stream.
const maxLine = 8 << 20

// controlConn is a control connection. One goroutine reads it, several may write.
type controlConn struct {
	net.Conn
	lines *bufio.Scanner
	mu    sync.Mutex // held by a writer
}

func newControlConn(c net.Conn) *controlConn {
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, maxLine)
	return &controlConn{Conn: c, lines: lines}
}

// controlSlack is how long the other side may take to read a line.
const controlSlack = 30 * time.Second

func (c *controlConn) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(controlSlack)); err != nil {
		return err
	}
	_, err = c.Write(append(b, '\n'))
	return err
}

// receive returns the next message. Its error says what an answer that is none is.
func (c *controlConn) receive() (m message, err error) {
	if !c.lines.Scan() {
		if err := c.lines.Err(); err != nil {
			return m, err
		}
		return m, io.EOF
	}
	line := c.lines.Bytes()
	if err := json.Unmarshal(line, &m); err != nil {
		return m, errNotPerf
	}
	if m.Error != "" {
		return m, errors.New(m.Error)
	}
	return m, nil
}

// first looks at the first byte of an answer, by which a server of iperf3 is recognized: it sends
// the number of a state, not a line.
func (c *controlConn) first() error {
	r := bufio.NewReader(c.Conn)
	b, err := r.Peek(1)
	if err == io.EOF {
		return errNotPerf
	}
	if err != nil {
		return err
	}
	switch b[0] {
	case '{':
		c.lines = bufio.NewScanner(r)
		c.lines.Buffer(nil, maxLine)
		return nil
	case 9, 0xff: // exchange parameters; access denied, since it is busy
		return ErrIperf3
	}
	return errNotPerf
}
