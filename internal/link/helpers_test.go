package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

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

// soon returns a context that ends soon, for a peer that never answers.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
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

// nextVersion is a device whose user has the next version of a bring-up. What it says is one
// more than what it is told to say, and what it hears is one less, so that its user counts
// itself as this version.
type nextVersion struct {
	ntb.Device
	spad int // which scratchpad has the version
}

func (d nextVersion) SetPeerSpad(i int, v uint32) {
	if i == d.spad {
		v++
	}
	d.Device.SetPeerSpad(i, v)
}

func (d nextVersion) Spad(i int) uint32 {
	v := d.Device.Spad(i)
	if i == d.spad && v != 0 && v != Gone {
		v--
	}
	return v
}
