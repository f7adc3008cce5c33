package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/heapmem"
)

// serve answers the cables that other processes connect.
func (f *Fabric) serve() {
	for {
		c, err := f.registry.accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if Forbidden(err) {
			f.refused.report(err)
			continue
		}
		if err != nil {
			// For example, there are no descriptors left. The other side's dial
			// fails or waits.
			f.refused.half(err)
			if c != nil {
				f.turnAway(c, err)
			}
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		who, err := c.Peer() // later the device owns the cable
		if err != nil {
			f.refused.half(err)
			f.turnAway(c, err)
			continue
		}
		g := f.foreign.enter(who)
		tooMany, tell := g.check()
		if tooMany != nil {
			f.refused.report(tooMany)
		}
		if !tell {
			g.leave()
			c.Close()
			continue
		}
		f.wg.Go(func() { f.answer(c, who, g, tooMany) })
	}
}

// turnAway says why a process, of which nothing is known, is not answered, and hangs up.
func (f *Fabric) turnAway(c cable, why error) {
	if noDescriptors(why) {
		answer := f.greeting("")
		answer.Refused, answer.Full = why.Error(), true
		_ = c.SetDeadline(time.Now().Add(refuseTimeout)) // it is the first on this cable, so it does not wait
		_ = greeting.Write(c, answer)                    // or the other side finds that this one hangs up
	}
	c.Close()
}

// incoming returns the link that a process of this host asks for, or nil if it asks for none. It makes one more, even if
// there is one.
func (f *Fabric) incoming(who Peer, g *greeting.Message) *linkEnd {
	l := &linkEnd{to: f.spec.Node, pid: g.PID, uid: who.UID}
	switch g.Want {
	case greeting.WantProcess:
		l.kind, l.tried = toProcess, make(chan struct{})
	case greeting.WantUplink:
		l.kind, l.process = toMember, g.Process
	default:
		return nil
	}
	f.note(l, asked, nil)
	return l
}

// acceptPause is how long to wait after accept has failed.
const acceptPause = 20 * time.Millisecond

// answer reads a greeting of a process of a user, answers it, and does what it asks for. If
// tooMany is not nil, it only answers with that. It leaves admission g, unless a
// link does.
func (f *Fabric) answer(c cable, who Peer, g *admission, tooMany error) {
	limit := linkTimeout
	if tooMany != nil {
		limit = refuseTimeout
	}
	ctx, cancel := context.WithTimeout(f.ctx, limit)
	defer cancel()
	release := context.AfterFunc(ctx, func() { c.Close() })
	defer release()
	l := f.agree(ctx, c, who, tooMany)
	if l == nil {
		c.Close()
		g.leave()
		return
	}
	// From here on the deadline of the device counts.
	dev, err := f.bridge(c, who, l.kind)
	if err == nil && !release() {
		dev.Close()
		err = ctx.Err()
	}
	f.refused.half(err)
	switch {
	case err != nil:
		g.leave()
	case g != nil:
		dev = &countedDevice{dev, g}
	}
	if err == nil && l.kind == toMember {
		f.admit(ctx, l)
	}
	switch err = f.finish(ctx, l, dev, err); {
	case err != nil: // the other side gets it, or tries again
		if l.kind != toNode {
			f.refused.check(err)
		}
	case l.kind == toMember:
		f.attend(l)
	case l.kind == toProcess:
		f.enter(l)
	}
}

// agree reads a greeting and answers it. It returns the link for which the cable becomes a bridge, or nil if it does not.
// If tooMany is not nil, it refuses.
func (f *Fabric) agree(ctx context.Context, c cable, who Peer, tooMany error) *linkEnd {
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	g, err := greeting.Read(c, greeting.MaxMessage)
	if err != nil {
		if errors.Is(err, greeting.ErrNoGreeting) {
			f.refused.add(err)
		}
		return nil
	}
	var l *linkEnd
	answer := f.greeting("")
	if g.Want == greeting.WantFile && g.Version == greeting.Version && tooMany == nil {
		f.lend(c, who, g, answer)
		return nil
	}
	if tooMany != nil {
		answer.Refused, answer.Full = tooMany.Error(), true
	} else if l, err = f.judge(who, g, answer); err != nil {
		answer.Refused = err.Error()
		f.refused.add(err)
	}
	err = nil
	goesOn := l != nil && !answer.Busy
	if goesOn {
		err = c.TakeFiles()
	}
	if err == nil {
		err = greeting.Write(c, answer)
	}
	if err != nil || !goesOn {
		if l != nil && !answer.Busy {
			f.fail(l, err)
		}
		return nil
	}
	return l
}

// lend answers a process of a user that asks for a file. Whether it would fit into the fabric does
// not matter.
func (f *Fabric) lend(c cable, who Peer, g, answer *greeting.Message) {
	file, err := heapmem.Lent(g.Key, who)
	to, ok := c.(interface {
		SendFile(frame []byte, f *os.File) error
	})
	if err == nil && !ok {
		err = heapmem.ErrNoFile
	}
	if err != nil {
		answer.Refused = err.Error()
		f.refused.add(fmt.Errorf("pid %d, uid %d asks for a file: %w", who.PID, who.UID, err))
		_ = greeting.Write(c, answer) // the other side hangs up if it does not get it
		return
	}
	frame, err := answer.Bytes()
	if err == nil {
		_ = to.SendFile(frame, file) // likewise
	}
}

// judge decides how to answer a greeting of a process of a user. If it returns a link and the answer is
// not busy, the caller makes that link.
func (f *Fabric) judge(who Peer, g, answer *greeting.Message) (*linkEnd, error) {
	if g.Want == greeting.WantStatus && g.Version == greeting.Version {
		trusted := who.UID == 0 || who.UID == os.Geteuid()
		if answer.Status = f.status(trusted); !trusted {
			answer.Status = answer.Status.ForOthers()
		}
		return nil, nil
	}
	if g.Want == greeting.WantOwner {
		f.mu.Lock()
		f.change() // as if a link had changed; if it does not fit, the error of the link shows that
		f.mu.Unlock()
	}
	if err := answer.Fits(g); err != nil {
		return nil, err
	}
	switch {
	case g.Node == f.spec.Node && f.judgeOwn(g):
		return f.incoming(who, g), nil
	case g.Node == f.spec.Node:
		return nil, fmt.Errorf("%w: node %d runs already, in process %d; process %d was to be the same",
			greeting.ErrMismatch, g.Node, os.Getpid(), g.PID)
	case g.Want == greeting.WantCheck:
		return nil, nil
	case g.Want == greeting.WantLink && !g.Member:
		for _, l := range f.links {
			if l.wire.Number == g.Wire && l.to == g.Node && l.bySocket() {
				answer.Busy = !f.note(l, asked, nil) // then the neighbour has to wait for us
				return l, nil
			}
		}
		return nil, fmt.Errorf("%w: no wire %d from node %d leads to node %d", greeting.ErrMismatch, g.Wire, g.Node, f.spec.Node)
	}
	return nil, fmt.Errorf("%w: node %d wants %.20q", greeting.ErrMismatch, g.Node, g.Want)
}
