package ring

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// recorded is a service that records messages.
type recorded struct {
	mu       sync.Mutex
	messages [][]byte
	got      chan struct{} // capacity 1
}

func (e *recorded) Open(*link.Peer) link.Handler { return e }

func (e *recorded) Message(m []byte) error {
	e.mu.Lock()
	e.messages = append(e.messages, append([]byte(nil), m...))
	e.mu.Unlock()
	select {
	case e.got <- struct{}{}:
	default:
	}
	return nil
}

func (e *recorded) Down(error) {}

func (e *recorded) wait(t *testing.T, cond func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		e.mu.Lock()
		ok := cond()
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-e.got:
		case <-deadline:
			t.Fatal("did not happen within 60 s")
		}
	}
}

var services sync.Map // the recorded of a *Node that joined made

// joined returns a node of a fabric. Its service records messages.
func joined(t testing.TB, id link.ID, o Options) *Node {
	t.Helper()
	e := &recorded{got: make(chan struct{}, 1)}
	ln := link.NewNode(id)
	ln.Register(link.ServiceSDP, e)
	n, err := Join(ln, o)
	require.NoError(t, err)
	services.Store(n, e)
	t.Cleanup(func() { services.Delete(n) })
	return n
}

// serviceOf returns the service of a node that joined made.
func serviceOf(n *Node) *recorded {
	e, _ := services.Load(n)
	return e.(*recorded)
}

// ends requires that f returns.
func ends(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s has not ended within 30 s", what)
	}
}

// flips is a device whose peer has written another epoch at each look.
type flips struct {
	ntb.Device
	epoch int
	looks atomic.Uint32
}

func (d *flips) Spad(i int) uint32 {
	if i == d.epoch {
		return d.looks.Add(1)%3 + 1
	}
	return d.Device.Spad(i)
}

// nextVersion is a device whose user has the next version of a bring-up. The version that it
// stores is one more than what its user stores, and the one that it reads is one less, so that
// its user counts itself as this version.
type nextVersion struct {
	ntb.Device
	spad int    // which scratchpad has the version
	one  uint32 // what is added for the next one
}

func (d nextVersion) SetPeerSpad(i int, v uint32) {
	if i == d.spad {
		v += d.one
	}
	d.Device.SetPeerSpad(i, v)
}

func (d nextVersion) Spad(i int) uint32 {
	v := d.Device.Spad(i)
	if i == d.spad && v != 0 && v != link.Gone {
		v -= d.one
	}
	return v
}
