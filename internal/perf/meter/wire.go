package meter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// version is that of the protocol between a client and a server.
const version = 5

// A connection begins with a preamble of as many bytes as the cookie of iperf3, so that each of
// the two programs answers the other at once:
//
//	"sdpperf" version(2) kind(1) run(26) "\n"
//
// The version is decimal, the run's name is that of rand.Text. Behind it a control connection has
// lines of JSON, and a data connection the data.
const (
	magic        = "sdpperf"
	preambleSize = 37
	control      = 'c'
	data         = 'd'
)

// ErrIperf3 is the error of a connection whose other end is iperf3.
var ErrIperf3 = errors.New("iperf3 is at the other end, which measures TCP only and has another protocol: run sdp-perf at both ends")

var (
	errNotPerf = errors.New("the other end is not sdp-perf")
	errVersion = errors.New("the other end is an sdp-perf of another version")
)

func preamble(kind byte, run string) []byte {
	return fmt.Appendf(nil, "%s%02d%c%s\n", magic, version, kind, run)
}

// readPreamble reads and checks a preamble. The first bytes of another program are enough to
// refuse it.
func readPreamble(r io.Reader) (kind byte, run string, err error) {
	var b [preambleSize]byte
	if _, err := io.ReadFull(r, b[:len(magic)+2]); err != nil {
		return 0, "", err
	}
	if begin := string(b[:len(magic)+2]); !strings.HasPrefix(begin, magic) {
		if strings.Trim(begin, "abcdefghijklmnopqrstuvwxyz234567") == "" { // a cookie of iperf3 has only these
			return 0, "", ErrIperf3
		}
		return 0, "", errNotPerf
	}
	if _, err := io.ReadFull(r, b[len(magic)+2:]); err != nil {
		return 0, "", err
	}
	theirs, err := strconv.ParseUint(string(b[7:9]), 10, 8)
	switch kind = b[9]; {
	case err != nil:
		return 0, "", errNotPerf
	case theirs != version:
		return 0, "", fmt.Errorf("%w: version %d here, %d there", errVersion, version, theirs)
	case kind != control && kind != data || b[preambleSize-1] != '\n':
		return 0, "", errNotPerf
	}
	return kind, string(b[10 : preambleSize-1]), nil
}

// message is a line of a control connection. A client sends Params; "run", when all streams are there;
// and "stop", when it has done its part. A server answers Params by "ready", and "stop" by its Side.
type message struct {
	Do     string  `json:"do,omitempty"`
	Params *Params `json:"params,omitempty"`
	Side   *Side   `json:"side,omitempty"`
	Error  string  `json:"error,omitempty"`  // in place of an answer
	Output string  `json:"output,omitempty"` // of a server, behind its Side, if Params ask for it
}

// maxLine bounds a line of a server, most of which is a histogram and the counts of each stream. maxOrder bounds one of a
// client.
const (
	maxLine  = 8 << 20
	maxOrder = 4 << 10
)

// controlConn is a control connection.
type controlConn struct {
	net.Conn
	lines *bufio.Scanner
	trace io.Writer // see Target
}

// newControlConn makes one of whose other end lines are not longer than most.
func newControlConn(c net.Conn, most int) *controlConn {
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, most)
	lines.Split(splitLines)
	return &controlConn{Conn: c, lines: lines}
}

// splitLines splits lines, and refuses what is none of ours at its first byte. A server of iperf3 sends
// the number of a state: exchange parameters, or access denied, since it is busy.
func splitLines(b []byte, end bool) (advance int, line []byte, err error) {
	switch {
	case len(b) == 0 || b[0] == '{':
		return bufio.ScanLines(b, end)
	case b[0] == 9 || b[0] == 0xff:
		return 0, nil, ErrIperf3
	}
	return 0, nil, errNotPerf
}

// controlSlack is how long the other side may take to read a line, or to answer it.
const controlSlack = 30 * time.Second

func (c *controlConn) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if c.trace != nil {
		fmt.Fprintf(c.trace, "send %.2000q\n", b)
	}
	if err := c.SetWriteDeadline(time.Now().Add(controlSlack)); err != nil {
		return err
	}
	_, err = c.Write(append(b, '\n'))
	return err
}

// receive returns the next message, within a time if it is not 0.
func (c *controlConn) receive(within time.Duration) (m message, err error) {
	if within > 0 {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return m, err
		}
		defer c.SetReadDeadline(time.Time{})
	}
	if !c.lines.Scan() {
		if err := c.lines.Err(); err != nil {
			return m, err
		}
		return m, io.EOF
	}
	if c.trace != nil {
		fmt.Fprintf(c.trace, "receive %.2000q\n", c.lines.Bytes())
	}
	if json.Unmarshal(c.lines.Bytes(), &m) != nil {
		return m, errNotPerf
	}
	if m.Error != "" {
		return m, errors.New(m.Error)
	}
	return m, nil
}
