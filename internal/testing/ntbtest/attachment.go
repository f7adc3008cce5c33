package ntbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// RunAttachments tests the attachments that pair makes: that a device is a session. Each call
// of pair must return the two ends of a new bridge, whose windows have at least 4 KiB. It
// closes both. It must not run beside other tests, because it counts goroutines.
func RunAttachments(t *testing.T, pair func(t *testing.T) (a, b ntb.Attachment)) {
	run := func(name string, f func(s *sessions)) {
		before := runtime.NumGoroutine()
		ok := t.Run(name, func(t *testing.T) {
			s := &sessions{T: t}
			s.ends[0], s.ends[1] = pair(t)
			t.Cleanup(s.close)
			f(s)
		})
		if ok {
			goroutinesEnd(t, name, before)
		}
	}
	run("a session has fresh windows, scratchpads and doorbells", func(s *sessions) { s.fresh(s.open()) })
	run("an old session that still stores reaches nobody", oldSessionStores)
	run("closing an old session leaves the new one alone", oldSessionCloses)
	run("an old session keeps what it was sent", oldSessionReads)
	run("one side opens again and the other follows", oneSideOpens)
	run("open ends with its context, and the next one works", openEnds)
	run("close ends the session and open", closeEnds)
	run("quick re-links", quickLinks)
}

// sessions are two attachments under test.
type sessions struct {
	*testing.T
	ends  [2]ntb.Attachment
	round uint64
	left  []ntb.Device // to be closed
}

func (s *sessions) close() {
	for _, d := range s.left {
		if err := d.Close(); err != nil {
			s.Errorf("Close of a device: %v", err)
		}
	}
	for range 2 {
		for _, a := range s.ends {
			if err := a.Close(); err != nil {
				s.Errorf("Close: %v", err)
			}
		}
	}
}

// open opens a session on both sides. They are closed at the end.
func (s *sessions) open() [2]ntb.Device {
	s.Helper()
	d := s.openBoth()
	s.left = append(s.left, d[0], d[1])
	return d
}

func (s *sessions) openBoth() (d [2]ntb.Device) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d[1], errs[1] = s.ends[1].Open(ctx)
	}()
	d[0], errs[0] = s.ends[0].Open(ctx)
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		s.Fatalf("Open: %v", err)
	}
	return d
}

// until waits for cond.
func (s *sessions) until(what string, cond func() bool) {
	s.Helper()
	for deadline := time.Now().Add(limit); !cond(); {
		if time.Now().After(deadline) {
			s.Fatalf("after %v: still not: %s", limit, what)
		}
		runtime.Gosched()
	}
}

// fresh checks that a session is one: that nothing of an earlier one is found in it, and that
// each side reaches the other.
func (s *sessions) fresh(d [2]ntb.Device) {
	s.Helper()
	for side, dev := range d {
		s.untouched(side, dev)
	}
	s.talk(d)
}

// untouched checks that nothing was stored to a side.
func (s *sessions) untouched(side int, dev ntb.Device) {
	s.Helper()
	if !dev.LinkUp() {
		s.Fatalf("side %d: the link is down", side)
	}
	in := dev.Inbound()
	if len(in) < minWindow {
		s.Fatalf("side %d: window of %d bytes, the suite needs %d", side, len(in), minWindow)
	}
	for off := 0; off < len(in); off += 8 {
		if v := ntb.Load64(in, off); v != 0 {
			s.Fatalf("side %d: the word at %d of a new session is %#x", side, off, v)
		}
	}
	if !allSpads(dev, 0) {
		s.Fatalf("side %d: a scratchpad of a new session is not 0", side)
	}
}

// talk stores a line, a scratchpad and a doorbell in each direction.
func (s *sessions) talk(d [2]ntb.Device) {
	s.Helper()
	s.round++
	line := bytes.Repeat([]byte{byte(s.round)}, 56)
	for side, from := range d {
		out := from.Outbound()
		out.Write(64, line)
		out.Publish64(0, s.round)
		from.SetPeerSpad(1, uint32(s.round))
		to := d[1-side]
		s.until(fmt.Sprintf("word %d arrives", s.round), func() bool {
			return ntb.Load64(to.Inbound(), 0) == s.round && to.Spad(1) == uint32(s.round)
		})
		if got := to.Inbound()[64 : 64+len(line)]; !bytes.Equal(got, line) {
			s.Fatalf("% x arrived, want % x", got, line)
		}
		woken := make(chan error, 1)
		go func() { woken <- to.WaitDoorbell(0) }()
		from.RingDoorbell(0)
		for deadline, seen := time.Now().Add(limit), false; !seen; {
			select {
			case err := <-woken:
				if seen = true; err != nil {
					s.Fatalf("WaitDoorbell: %v", err)
				}
			case <-time.After(ringAgain):
				if time.Now().After(deadline) {
					s.Fatalf("after %v: a doorbell was not heard", limit)
				}
				if from.Caps().LossyDoorbells {
					from.RingDoorbell(0)
				}
			}
		}
	}
}

// oldSessionStores has the program go on storing through a session while the next one comes
// up, is used, and is replaced in turn.
func oldSessionStores(s *sessions) {
	for range 3 {
		old := s.open()
		s.talk(old)
		stop := make(chan struct{})
		ended := make(chan struct{}, len(old))
		var storms [2]atomic.Int64
		for side, dev := range old {
			go func() {
				defer func() { ended <- struct{}{} }()
				storm(dev, uint64(side), &storms[side], stop)
			}()
		}
		calm := sync.OnceFunc(func() {
			close(stop)
			<-ended
			<-ended
		})
		defer calm()
		// blow waits until all has been stored to again.
		blow := func() {
			for side := range storms {
				n := storms[side].Load() + 3
				s.until("an old session stores", func() bool { return storms[side].Load() >= n })
			}
		}
		blow()
		now := s.open()
		for side, dev := range now {
			s.untouched(side, dev)
		}
		for range 20 {
			blow()
			for _, dev := range now {
				dev.Order()
			}
		}
		for side, dev := range now {
			s.untouched(side, dev)
		}
		s.talk(now)
		for _, dev := range old {
			if dev.LinkUp() {
				s.Error("the old session's link is up")
			}
			if err := dev.WaitDoorbell(0); !errors.Is(err, ntb.ErrLinkDown) {
				s.Errorf("WaitDoorbell of the old session: %v, want %v", err, ntb.ErrLinkDown)
			}
		}
		calm()
	}
}

// storm stores to all of the window, and to everything else, until stop is closed.
func storm(dev ntb.Device, seed uint64, rounds *atomic.Int64, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(seed, 7))
	out := dev.Outbound()
	p := bytes.Repeat([]byte{0xee}, 200)
	for {
		select {
		case <-stop:
			return
		default:
		}
		for range 20 {
			out.Write(rng.IntN(out.Len()-len(p)), p)
			out.Store64(8*rng.IntN(out.Len()/8), ^uint64(0))
			out.Publish64(8*rng.IntN(out.Len()/8), ^uint64(0))
			out.Publish32(4*rng.IntN(out.Len()/4), ^uint32(0))
		}
		useAll(dev)
		rounds.Add(1)
		runtime.Gosched()
	}
}

func oldSessionCloses(s *sessions) {
	for side := range 2 {
		old := s.openBoth()
		now := s.open()
		s.talk(now)
		for _, i := range []int{side, 1 - side} {
			if err := old[i].Close(); err != nil {
				s.Errorf("Close: %v", err)
			}
			s.talk(now)
		}
	}
}

func oldSessionReads(s *sessions) {
	old := s.open()
	s.talk(old)
	var before [2][]byte
	for i, dev := range old {
		before[i] = bytes.Clone(dev.Inbound())
	}
	now := s.open()
	for _, dev := range now {
		out := dev.Outbound()
		out.Write(8, bytes.Repeat([]byte{0xdd}, out.Len()-8)) // talk polls the word before it
	}
	s.talk(now)
	for i, dev := range old {
		if !bytes.Equal(dev.Inbound(), before[i]) {
			s.Errorf("side %d: what an old session was sent has changed", i)
		}
	}
}

// oneSideOpens is a restart of one side, as the other one sees it.
func oneSideOpens(s *sessions) {
	for round := range 6 {
		side := round % 2
		old := s.open()
		s.talk(old)
		ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
		defer cancel()
		type result struct {
			dev ntb.Device
			err error
		}
		again := make(chan result, 1)
		go func() {
			dev, err := s.ends[side].Open(ctx)
			again <- result{dev, err}
		}()
		s.until("the other side sees that the session has ended", func() bool { return !old[1-side].LinkUp() })
		other, err := s.ends[1-side].Open(ctx)
		r := <-again
		if err = errors.Join(err, r.err); err != nil {
			s.Fatalf("Open: %v", err)
		}
		s.left = append(s.left, other, r.dev)
		now := [2]ntb.Device{}
		now[side], now[1-side] = r.dev, other
		s.fresh(now)
	}
}

func openEnds(s *sessions) {
	for side := range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		dev, err := s.ends[side].Open(ctx)
		cancel()
		if dev != nil || !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("Open without the other side: %v, %v, want %v", dev, err, context.DeadlineExceeded)
		}
		s.fresh(s.open())
	}
}

func closeEnds(s *sessions) {
	d := s.open()
	opened := make(chan error, 1)
	if err := s.ends[0].Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	for _, dev := range d {
		s.until("link down", func() bool { return !dev.LinkUp() })
		_ = dev.Inbound()[len(dev.Inbound())-1]
	}
	go func() { _, err := s.ends[1].Open(context.Background()); opened <- err }()
	for range 2 {
		if dev, err := s.ends[0].Open(context.Background()); dev != nil || !errors.Is(err, ntb.ErrClosed) {
			s.Fatalf("Open after Close: %v, %v, want %v", dev, err, ntb.ErrClosed)
		}
	}
	if err := s.ends[1].Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	select {
	case err := <-opened:
		if !errors.Is(err, ntb.ErrClosed) {
			s.Errorf("Open beside Close: %v, want %v", err, ntb.ErrClosed)
		}
	case <-time.After(3 * limit):
		s.Fatal("Close leaves Open waiting")
	}
}

// quickLinks opens one session after the other. What ends one is each time something else.
func quickLinks(s *sessions) {
	rounds := 2000
	switch {
	case testing.Short():
		rounds = 300
	case os.Getenv("NTBNET_LONG") != "":
		rounds = 10_000
	}
	var old [2]ntb.Device // ended by Open, and closed when the next session is up
	for round := range rounds {
		d := s.openBoth()
		if old[0] != nil {
			old[0].Close()
			old[1].Close()
			old = [2]ntb.Device{}
		}
		s.fresh(d)
		switch round % 4 {
		case 1:
			d[1].Disable()
		case 2:
			old = d
			continue
		case 3:
			d[0], d[1] = d[1], d[0]
		}
		d[0].Close()
		d[1].Close()
	}
	if old[0] != nil {
		s.left = append(s.left, old[:]...)
	}
}

// goroutinesEnd fails if more goroutines are left than before.
func goroutinesEnd(t *testing.T, name string, before int) {
	for deadline := time.Now().Add(limit); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 64<<10)
			t.Errorf("%s: %d goroutines left after Close\n%s", name, runtime.NumGoroutine()-before,
				stacks[:runtime.Stack(stacks, true)])
			return
		}
	}
}
