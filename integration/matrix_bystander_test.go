//go:build linux

package integration

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/sdp"
)

// bystander is a part of a process that has nothing to do with the process that is
// stopped, killed or cut off. It dials another one and listens all the time. None of
// that may fail.
type bystander struct {
	over    atomic.Bool
	running sync.WaitGroup
	dials   atomic.Int64 // of the other process
	listens atomic.Int64 // listeners that took a connection of this process

	mu     sync.Mutex
	broken error // the first failure; guarded by mu
}

func (b *bystander) begin(f *sdp.Fabric, other string) {
	b.loop(&b.dials, func() error { return echoedBy(f, other) })
	b.loop(&b.listens, func() error { return listenOnce(f) })
}

// loop calls do again and again, and counts the calls.
func (b *bystander) loop(n *atomic.Int64, do func() error) {
	b.running.Go(func() {
		for !b.over.Load() {
			if err := do(); err != nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.broken == nil {
					b.broken = err
				}
				return
			}
			n.Add(1)
		}
	})
}

// listenOnce listens, dials the listener, and accepts.
func listenOnce(f *sdp.Fabric) error {
	ln, err := f.Listen("sdp", ":0")
	if err != nil {
		return err
	}
	defer ln.Close()
	c, err := dialNode(f, ln.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := ln.Accept()
	if err != nil {
		return err
	}
	return a.Close()
}

func (b *bystander) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// progress waits until both were done more times more.
func (b *bystander) progress(more string) error {
	n, err := strconv.ParseInt(more, 10, 64)
	if err != nil {
		return err
	}
	for what, count := range map[string]*atomic.Int64{"dial": &b.dials, "listen": &b.listens} {
		was := count.Load()
		err := waitFor("the bystander does one more "+what, func() bool { return b.err() != nil || count.Load() >= was+n })
		if err == nil {
			err = b.err()
		}
		if err != nil {
			return fmt.Errorf("bystander, after %d dials and %d listeners: %w", b.dials.Load(), b.listens.Load(), err)
		}
	}
	return nil
}

func (b *bystander) end() error {
	b.over.Store(true)
	if !returns(b.running.Wait) {
		return hangs("the bystander")
	}
	return b.err()
}
