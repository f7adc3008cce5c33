//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// attachment implements ntb.Attachment.
type attachment struct {
	config  Config                  // immutable
	opening chan struct{}           // capacity 1: Open is under way
	closed  chan struct{}           // closed by Close
	looking sync.WaitGroup          // listen or poll
	hurried chan struct{}           // capacity 1: an answer may come soon, where a goroutine polls
	once    sync.Once               // for Close
	session atomic.Pointer[session] // the latest; stored while opening is held
	epoch   uint32                  // of the latest session; guarded by opening
	claim   claim                   // guarded by opening
	err     error                   // result of Close; guarded by once
}

// Attach returns this side's end of a bridge. It maps nothing before Open.
func Attach(c Config) (ntb.Attachment, error) {
	for _, m := range []Memory{c.Own, c.Peer} {
		if m.Len < 2*PageSize || m.Len%PageSize != 0 {
			return nil, fmt.Errorf("ntbfixed: memory of %d bytes, want a multiple of %d from %d on", m.Len, PageSize, 2*PageSize)
		}
	}
	a := &attachment{
		config: c, opening: make(chan struct{}, 1), closed: make(chan struct{}),
		hurried: make(chan struct{}, 1), epoch: rand.Uint32(), claim: claim{dead: c.deadTicks()},
	}
	if !a.polls() {
		for _, wait := range c.Wait {
			a.looking.Go(func() { a.listen(wait) })
		}
		return a, nil
	}
	a.looking.Go(func() { a.poll(a.closed) })
	return a, nil
}

// polls reports whether this side takes no interrupts.
func (a *attachment) polls() bool { return len(a.config.Wait) == 0 }

// listen passes interrupts on to the session.
func (a *attachment) listen(wait func() error) {
	for wait() == nil {
		if s := a.session.Load(); s != nil {
			s.interrupted()
		}
	}
}

// poll looks from time to time in place of interrupts, until stop is closed.
func (a *attachment) poll(stop <-chan struct{}) {
	short, err := newAlarm()
	if err != nil {
		slog.Warn("ntbfixed: short pauses take longer", "reason", err)
	} else {
		defer short.Close()
	}
	var pace pace
	timer := time.NewTimer(pace.next(true))
	defer timer.Stop()
	for {
		soon := false
		select {
		case <-timer.C:
		case <-a.hurried:
			soon = true
		case <-stop:
			return
		}
		if s := a.session.Load(); s != nil && s.polled() {
			soon = true
		}
		pause := pace.next(soon)
		if pause < timerStep && err == nil && short.sleep(pause) {
			pause = 0
		}
		timer.Reset(pause)
	}
}

// hurry has poll look sooner, if it is under way, since the peer is about to answer.
func (a *attachment) hurry() {
	select {
	case a.hurried <- struct{}{}:
	default:
	}
}

// A side repeats its words during bring-up, since what it stored while the other side was not set up has
// vanished. It does so soon after it began, and then later and later up to each retryEvery. After retryFast
// tries it does so each retrySlow.
const (
	retryEvery = 5 * time.Millisecond
	retryFast  = 200
	retrySlow  = 50 * time.Millisecond
)

// Open implements ntb.Attachment.
func (a *attachment) Open(ctx context.Context) (ntb.Device, error) {
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-a.closed:
		return nil, ntb.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("ntbfixed: another call opens a session: %w", ctx.Err())
	}
	select {
	case <-a.closed:
		return nil, ntb.ErrClosed
	default:
	}
	if err := a.end(); err != nil {
		return nil, err
	}
	if a.epoch++; a.epoch+1 <= 1 { // neither 0 nor all ones
		a.epoch = 1
	}
	s, err := newSession(a)
	if err != nil {
		return nil, err
	}
	a.session.Store(s)
	if !a.config.Sole {
		a.claim.far = s.peer.mem[:PageSize:PageSize]
		err = a.takeEnd(ctx, s)
	}
	if err == nil {
		err = a.bringUp(ctx, s)
	}
	a.claim.far = nil
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.begin()
	return s, nil
}

// takeEnd waits until it is known that no other process has a session at this end.
func (a *attachment) takeEnd(ctx context.Context, s *session) error {
	found := a.claim.first(a.config.Former)
	if found == unknown {
		tick := time.NewTicker(Tick)
		defer tick.Stop()
		for found == unknown {
			if err := a.pause(ctx, nil, tick.C); err != nil {
				return err
			}
			if s.lost() {
				return errGone
			}
			found = a.claim.next()
		}
	}
	if found == inUse {
		return fmt.Errorf("ntbfixed: %w", ntb.ErrInUse)
	}
	return nil
}

// errGone reports that memory has gone: a file is shorter than it was, or the system has no page for it.
var errGone = errors.New("ntbfixed: memory has gone: its file was made smaller, or the system has no more")

// errDown reports that Config.Down is closed.
var errDown = fmt.Errorf("ntbfixed: the link to the other side's memory has ended: %w", ntb.ErrLinkDown)

// pause waits for an interrupt or a tick. It returns an error if Open is to end.
func (a *attachment) pause(ctx context.Context, kick <-chan struct{}, tick <-chan time.Time) error {
	select {
	case <-kick:
	case <-tick:
	case <-a.config.Down:
		return errDown
	case <-a.closed:
		return ntb.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("ntbfixed: the other side opens no session: %w", ctx.Err())
	}
	return nil
}

// bringUp writes this side's words until both sides have answered each other.
func (a *attachment) bringUp(ctx context.Context, s *session) error {
	pause := firstLook
	retry := time.NewTicker(pause)
	defer retry.Stop()
	a.claim.begin(s.page.epoch)
	for tries := 0; ; tries++ {
		switch {
		case tries == retryFast:
			retry.Reset(retrySlow)
		case pause < retryEvery:
			pause = min(2*pause, retryEvery)
			retry.Reset(pause)
		}
		s.page.publish()
		step, err := s.page.look()
		if err != nil {
			return err
		}
		switch step {
		case newPeer:
			s.clear()
			s.page.answer()
			s.interrupt(0)
			continue
		case ready:
			s.page.publish() // an earlier answer may have vanished
			s.interrupt(0)
			return s.fit()
		}
		if err := a.pause(ctx, s.kick, retry.C); err != nil {
			return err
		}
		if s.lost() {
			return errGone
		}
		if !a.config.Sole && !a.claim.holds() {
			return fmt.Errorf("ntbfixed: %w", ntb.ErrInUse)
		}
	}
}

// end ends the session, and waits until nothing of it reaches the memory or calls a function of the Config. The caller
// holds opening.
func (a *attachment) end() error {
	s := a.session.Load()
	if s == nil {
		return nil
	}
	s.Disable()
	if s.ended != nil {
		<-s.ended
	}
	return s.cutErr
}

// linger waits until the peer has ended the last session, as far as that is to be waited for.
func (a *attachment) linger() {
	s := a.session.Load()
	if !a.config.Lingers || s == nil || s.ended == nil {
		return
	}
	own, err := mapMemory(Memory{a.config.Own.FD, a.config.Own.Offset, PageSize}, nil) // that of the session is a copy
	if err != nil {
		return // it has gone
	}
	defer own.unmap()
	page := s.page.behind(own.mem)
	const look = Tick / 40
	tick := time.NewTicker(look)
	defer tick.Stop()
	for range time.Second / look {
		if page.hasEnded() || own.guard.Lost() {
			return
		}
		select {
		case <-tick.C:
		case <-a.config.Down:
			return
		}
	}
}

// Close implements ntb.Attachment.
func (a *attachment) Close() error {
	a.once.Do(func() {
		close(a.closed)
		a.opening <- struct{}{}
		a.err = a.end()
		a.linger()
		a.config.Stop()
		a.looking.Wait()
		<-a.opening
	})
	return a.err
}
