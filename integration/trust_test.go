//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	fabrics "github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/listen"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	changerPort = 4000
	// changed is how many bytes the changer sends: one record, whose payload begins a line
	// behind its header, in a queue of the first size.
	changed = 400
)

// playChanger sends one record of a's to each that connects, and makes them b's where they lie
// when it is told to. Its arguments are the fabric.
func playChanger(p *self) error {
	spec, err := spec.Parse(p.args[0])
	if err != nil {
		return err
	}
	c := &changer{table: listen.NewTable(), payloads: make(chan ntb.Window, 1)}
	ln := c.table.Listen(changerPort, listen.Config{})
	f, err := fabrics.Open(spec, func(f *fabrics.Fabric) { f.Node().Register(link.ServiceSDP, c) })
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ClaimPort(changerPort); err != nil {
		return err
	}
	p.printf("ready")
	for {
		a, err := ln.Accept()
		if err != nil {
			return err
		}
		if _, err := a.Pair.Write(bytes.Repeat([]byte{'a'}, changed)); err != nil {
			return err
		}
		p.printf("sent")
		if _, ok := p.readLine(); !ok {
			return a.Pair.Close()
		}
		payload := <-c.payloads
		payload.Write(0, bytes.Repeat([]byte{'b'}, changed))
		payload.Publish64(0, 0x6262626262626262)
		if frames := a.Pair.Peer().Frames(); frames != nil {
			frames.Arrived(time.Minute)
		} else {
			a.Pair.Peer().Order()
		}
		p.printf("changed")
		p.readLine()
		a.Pair.Close()
	}
}

type changer struct {
	table    *listen.Table
	payloads chan ntb.Window // of the connection that is open
}

type changing struct {
	*changer
	pool *bounce.Pool
}

func (c *changer) Open(p *link.Peer) link.Handler {
	return &changing{c, bounce.NewPool(p, bounce.Options{})}
}

func (c *changing) Down(error) { c.pool.Down() }

func (c *changing) Message(m []byte) error {
	msg, err := hello.Parse(m)
	if asks, ok := msg.(*hello.Hello); err == nil && ok {
		far := c.pool.Peer().Remote()
		c.payloads <- far.Slice(int(asks.Endpoint.Offset)+64, changed)
		return c.table.Hello(c.pool, asks)
	}
	return err
}

// startChanger starts a changer, of a user if uid is not root's.
func startChanger(t *testing.T, exe, fabric string, uid int) *peer {
	t.Helper()
	var options []peerOption
	if uid != 0 {
		options = append(options, asUser(exe, uid), inGroups(inShop))
	}
	p := startPeer(t, "changer", []string{fabric}, options...)
	require.Equal(t, "ready", p.readLine())
	return p
}

// A process of another user cannot change what it has sent once this process has seen it, since
// this process then has a copy. A process of the same user can: it is trusted, and what it sends
// is used where it lies.
func TestAStrangerCannotChangeWhatItHasSent(t *testing.T) {
	dir, exe := shop(t)
	for name, test := range map[string]struct {
		fabric, far, between string
		uid                  int
		copied               bool
	}{
		"same user":    {fabric: "shm:" + dir, far: "shm:" + dir},
		"another user": {fabric: "shm:" + dir, far: "shm:" + dir, uid: userB, copied: true},
		"user of a node that is not known": {
			fabric: "line:" + dir + "?node=1&nodes=3", between: "line:" + dir + "?node=2&nodes=3", far: "line:" + dir + "?node=3&nodes=3",
			uid: userB, copied: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := fmt.Sprint("localhost:", changerPort)
			if test.between != "" {
				if raceEnabled {
					t.Skip("what the other side changes is stored by this process, which is the race that this test makes")
				}
				between := startUser(t, exe, test.between, userA, inShop)
				between.meets("listen sdp :7 between")
				defer between.end()
				address = fmt.Sprint("node3:", changerPort)
			}
			far := startChanger(t, exe, test.far, test.uid)
			f, err := sdp.Open(test.fabric)
			require.NoError(t, err)
			defer f.Close()
			sent, after := repeat('a'), repeat('b')
			if test.copied {
				after = sent
			}
			connect := func() *sdp.Conn {
				c, err := f.Dial("sdp", address)
				require.NoError(t, err)
				require.Equal(t, "sent", far.readLine())
				return c.(*sdp.Conn)
			}
			t.Run("Peek", func(t *testing.T) {
				c := connect()
				b, err := c.Peek()
				require.NoError(t, err)
				require.Equal(t, sent, string(b))
				require.Equal(t, "changed", far.ask("change"))
				assert.Equal(t, after, string(b))
				c.Discard(100)
				b, err = c.Peek()
				require.NoError(t, err)
				assert.Equal(t, after[100:], string(b))
				c.Discard(100)
				rest := make([]byte, changed-200)
				_, err = io.ReadFull(c, rest)
				require.NoError(t, err)
				assert.Equal(t, after[200:], string(rest))
				fmt.Fprintln(far.in)
				_, err = c.Peek()
				require.Equal(t, io.EOF, err)
				require.NoError(t, c.Close())
			})
			t.Run("WriteTo a file", func(t *testing.T) {
				c := connect()
				r, w, err := os.Pipe()
				require.NoError(t, err)
				defer r.Close()
				full := fill(t, w)
				copied := make(chan error, 1)
				go func() {
					_, err := c.WriteTo(w)
					w.Close()
					copied <- err
				}()
				until(t, "WriteTo waits for room in the pipe", writingTo)
				require.Equal(t, "changed", far.ask("change"))
				_, err = io.CopyN(io.Discard, r, int64(full))
				require.NoError(t, err)
				fmt.Fprintln(far.in)
				b, err := io.ReadAll(r)
				require.NoError(t, err)
				assert.Equal(t, after, string(b))
				require.NoError(t, <-copied)
				require.NoError(t, c.Close())
			})
			t.Run("WriteTo a slow Writer", func(t *testing.T) {
				c := connect()
				w := &doubting{t: t, between: func() { require.Equal(t, "changed", far.ask("change")); fmt.Fprintln(far.in) }}
				_, err := io.Copy(w, c)
				require.NoError(t, err)
				assert.Equal(t, sent, w.all)
				require.NoError(t, c.Close())
			})
			c := connect()
			far.end()
			require.NoError(t, c.Close())
		})
	}
}

// repeat returns the bytes of a changer's record.
func repeat(b byte) string { return strings.Repeat(string(b), changed) }

// doubting is a Writer that looks at what it gets twice.
type doubting struct {
	t       *testing.T
	between func()
	all     string
}

func (d *doubting) Write(p []byte) (int, error) {
	before := string(p)
	d.between()
	assert.Equal(d.t, before, string(p))
	d.all += before
	return len(p), nil
}

// fill fills a pipe and returns how much it has taken.
func fill(t *testing.T, w *os.File) (n int) {
	t.Helper()
	raw, err := w.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for {
			k, err := unix.Write(int(fd), make([]byte, 4096))
			if err == unix.EAGAIN {
				return
			}
			require.NoError(t, err)
			n += k
		}
	}))
	return n
}

// writingTo reports whether a WriteTo of a connection waits for room in a file.
func writingTo() bool {
	text := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if strings.Contains(g, "[IO wait") && strings.Contains(g, "(*Conn).WriteTo") {
			return true
		}
	}
	return false
}

// inGroups gives a process of asUser groups.
func inGroups(groups []uint32) peerOption {
	return func(c *exec.Cmd) { c.SysProcAttr.Credential.Groups = groups }
}
