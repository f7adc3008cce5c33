package bounce

import (
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// reader is the half of a connection that reads: the queue in our memory.
type reader struct {
	// Immutable.
	control *control
	state   *state

	mu callLock[lock.Read] // held by a call, also while it waits
	// mu guards the following.
	rx        rx
	revocable ntb.Revocable // the memory that is read, or nil if it stays; constant
	arms      uint32        // counts the arms
	spaceSeen uint32        // the peer's space arm that was answered
	dma       *dmaTx        // has what we wrote and the peer may have to read first; constant after Connect

	waiter  waiter
	granter granter
	saved   snapshot[readCounts]
}

func (r *reader) init(c *control, s *state, p *Pool, q queue) {
	r.control, r.state = c, s
	r.rx.free = p.release
	caps := p.peer.Caps()
	r.rx.private.wanted, r.revocable = caps.Untrusted, caps.Revocable
	r.rx.start(q)
	r.waiter.init(r, c, &p.opts)
	r.waiter.takeTurns()
	r.granter.init(c, &r.waiter.stop, p, &r.rx.granted, len(q.mem), p.opts.Buffer)
}

// read is Pair.Read, but for errors of the whole connection.
func (r *reader) read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readHeld(p, true)
}

// readHeld is read for a caller that holds mu. If waits is false, it returns EAGAIN where it would wait for data.
func (r *reader) readHeld(p []byte, waits bool) (int, error) {
	if len(p) == 0 {
		if r.state.closed() {
			return 0, ErrClosed
		}
		return 0, nil
	}
	for {
		end, err := r.before()
		if err != nil {
			return 0, err
		}
		n, err := r.rx.get(p)
		if n > 0 && !r.gone() {
			if waits && r.rx.within {
				n += r.gather(p[n:max(n, min(len(p), socketRoom))])
			}
			r.returnCredit()
			return n, nil
		}
		if !waits && end == goesOn && err == nil {
			return 0, syscall.EAGAIN
		}
		if err := r.nothing(end, err); err != nil {
			return 0, err
		}
	}
}

const (
	partTimeout  = time.Millisecond // how long a Read waits for the next part of a Write
	wholeTimeout = 16 * partTimeout // for all parts: a peer may send them one by one for ever
)

// gather reads into p what follows of the Write under way, and returns how much. It waits for
// each part of it, but not for long, and for all of them neither. Reasons to stop, as that the connection has ended, are
// errors of the next call. The caller holds mu.
func (r *reader) gather(p []byte) (n int) {
	end := time.Now().Add(wholeTimeout)
	for waits := true; waits && n < len(p) && r.rx.within; {
		r.publishCredit()
		waits = r.waiter.waitAtMost(partTimeout) && time.Now().Before(end)
		k, err := r.rx.get(p[n:]) // what came before a reason to stop, too
		if err != nil || r.gone() {
			break
		}
		n += k
	}
	return n
}

// gone reports whether the memory has gone, so that what was copied from it must not be used. The
// link soon goes down, and with it the connection.
func (r *reader) gone() bool { return r.revocable != nil && r.revocable.Gone() }

// ending is why a call that finds nothing does not wait.
type ending uint8

const (
	goesOn   ending = iota
	isShut          // CloseRead was called; more may arrive
	wasReset        // by the peer or a bad word, or the link is down
)

// before is called before a check of the queue. It returns an error if the queue must not
// be checked, since the memory may be gone after Close. It also returns whether the
// connection has ended, so that what arrived before the end is read first. The caller
// holds mu.
func (r *reader) before() (ending, error) {
	stop := r.waiter.stop.Load()
	if stop != 0 {
		if err := stopErr(stop); err != nil {
			return goesOn, err
		}
	}
	switch {
	case r.ended() || stop&(stopDown|stopBroken) != 0:
		return wasReset, nil
	case stop != 0:
		return isShut, nil
	}
	return goesOn, nil
}

// nothing is called after a check of the queue that found no data. It returns the error of
// the end, or waits. The caller holds mu.
func (r *reader) nothing(end ending, err error) error {
	switch {
	case err == io.EOF:
		return err
	case err != nil:
		return violation{err}
	case end == wasReset:
		return r.state.resetErr(io.EOF)
	case end == isShut:
		return io.EOF
	}
	r.wait()
	return nil
}

// wait waits for data. The peer may have to read what a DMA engine has not moved yet
// before it answers. The caller holds mu.
func (r *reader) wait() {
	r.dma.flush()
	r.waiter.wait()
}

// look is Pair.Look.
func (r *reader) look(f func(next []byte, ended bool) (taken int, done bool, err error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		end, err := r.before()
		if err != nil {
			return err
		}
		next, bad := r.rx.view()
		if r.gone() {
			next = nil
		}
		ended := len(next) == 0 && (bad != nil || end != goesOn)
		taken, done, err := f(next, ended)
		if taken > 0 {
			r.rx.taken(taken)
			r.returnCredit()
		}
		switch {
		case err != nil || done:
			return err
		case ended || len(next) > 0 && taken == 0:
			for stopErr(r.waiter.stop.Load()) == nil {
				<-r.waiter.wake
			}
		case taken == 0:
			r.wait()
		}
	}
}

// peek is Pair.Peek, but for errors of the whole connection. Without an error, mu stays
// locked.
func (r *reader) peek() ([]byte, error) {
	r.mu.Lock()
	b, err := r.next()
	if err == nil {
		err = r.state.lease(leaseRead)
	}
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	r.mu.Lend()
	return b, nil
}

// next waits for data, and returns some of it in place. The caller holds mu.
func (r *reader) next() ([]byte, error) {
	for {
		end, err := r.before()
		if err != nil {
			return nil, err
		}
		b, err := r.rx.view()
		if len(b) > 0 && !r.gone() {
			return b, nil
		}
		if err := r.nothing(end, err); err != nil {
			return nil, err
		}
	}
}

// discard ends the lease of peek, and unlocks mu.
func (r *reader) discard(n int) {
	if lent := r.rx.lent(); n < 0 || n > lent {
		panic(fmt.Sprintf("bounce: discard %d of %d bytes", n, lent))
	}
	if n > 0 {
		r.rx.taken(n)
	}
	if !r.state.closed() {
		r.returnCredit()
	}
	r.state.unlease(leaseRead)
	if r.state.closed() {
		r.save() // Close left that to the lease
	}
	r.mu.Unlock()
}

// leave waits until a call under way has left, and reports whether data has arrived that
// was not read. The reader is closed: what it has counted is saved for good.
func (r *reader) leave() (unread bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.save()
	return r.rx.unread()
}

// takeMoves takes a move if no call is under way and the move is next. It is called as
// [link.Notified] is, since the application may be idle.
func (r *reader) takeMoves() {
	if !r.mu.visit() {
		return // the call that is under way takes it
	}
	defer r.mu.leave()
	if r.waiter.stop.Load()&(stopClosed|stopBroken) == 0 {
		r.rx.takeMoves()
	}
}

// shrink has the peer go on in a small queue if nothing is read. It reports whether to
// check again.
func (r *reader) shrink() bool {
	r.takeMoves() // a move that came when a call was ending
	return r.granter.shrink(r.bytesRead())
}

// bytesRead returns how much was read, if no call is under way that may read more.
func (r *reader) bytesRead() (n uint64, known bool) {
	if r.mu.visit() {
		defer r.mu.leave()
		return r.rx.st.bytes, true
	}
	return r.saved.load().bytes, r.waiter.parked.Load() // saved before it parked
}

// returnCredit is called after a read. It publishes credit when enough is owed, and at
// once if the peer's writer has announced that it is about to sleep. The caller holds mu.
func (r *reader) returnCredit() {
	if r.rx.recv.Due() || armed(r.control.spaceArm(), r.spaceSeen) {
		r.publishCredit()
	}
}

// publishCredit pairs with wait as announce does (pair S2). Where nothing is owed, the peer's
// arm stays for when something is. The caller holds mu.
func (r *reader) publishCredit() {
	if r.rx.recv.Owed() == 0 {
		return
	}
	credit := r.rx.credit()
	if r.control.frames != nil {
		// The credit itself wakes the peer. It answers the arm of before. A writer
		// that arms later may have used it already, and want more.
		r.spaceSeen = r.control.spaceArm()
		r.control.far.Update64(offCredit, credit)
		return
	}
	r.control.far.Update64(offCredit, credit)
	if arm := r.control.peerArm(offSpaceArm, r.spaceSeen); armed(arm, r.spaceSeen) {
		r.spaceSeen = arm
		r.control.notifyWriter()
	}
}

// The methods of half.

func (r *reader) Ready() bool { return r.rx.ready() }

func (r *reader) Stopped() bool { return r.waiter.interrupted() || r.ended() }

// ended reports whether the peer gave the connection up.
func (r *reader) ended() bool { return r.control.state()&stateReset != 0 }

// arm announces that the reader is about to sleep, unless what frames bring wakes it. If
// the peer needs credit before we wake, it arms, in its control block, which is watched too.
func (r *reader) arm() {
	if r.control.frames != nil {
		return
	}
	r.publishCredit() // all of it: the writer may need it before we wake
	r.arms++
	r.publishArm(armedBit | parkingBit)
}

// publishArm publishes the arm word with the given low bits.
func (r *reader) publishArm(bits uint32) { r.control.far.Update32(offDataArm, r.arms<<armShift|bits) }

func (r *reader) line() int { return (r.rx.off + r.rx.pos) / line }

func (r *reader) beforeSleep() {
	if r.control.frames == nil || armed(r.control.spaceArm(), r.spaceSeen) {
		r.publishCredit()
	}
	r.rx.private.release()
	r.save()
}

// save copies the counters to where Stats finds them while mu is held. The caller holds mu.
func (r *reader) save() {
	r.saved.store(readCounts{r.rx.st, uint64(r.rx.gen - 1), r.waiter.counts()})
}

// busy reports whether the call that holds mu may last long.
func (r *reader) busy() bool { return r.waiter.parked.Load() || r.state.leased(leaseRead) }
