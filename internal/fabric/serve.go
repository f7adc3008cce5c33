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
	"github.com/ntbnet/ntbnet/ntb"
)

// serve answers the cables that other processes connect.
func (h *hosts) serve(accepted func(ntb.Device)) {
	h.accepted = accepted
	h.wg.Go(func() {
		for {
			c, err := h.registry.accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if Forbidden(err) {
				h.refused.report(err)
				continue
			}
			if err != nil {
				// For example, there are no descriptors left. The other side's dial
				// fails or waits.
				h.refused.half(err)
				if c != nil {
					h.turnAway(c, err)
				}
				select {
				case <-h.ctx.Done():
					return
				case <-time.After(acceptPause):
				}
				continue
			}
			who, err := c.Peer() // later the device owns the cable
			if err != nil {
				h.refused.half(err)
				h.turnAway(c, err)
				continue
			}
			g := h.foreign.enter(who)
			tooMany, tell := g.check()
			if tooMany != nil {
				h.refused.report(tooMany)
			}
			if !tell {
				g.leave()
				c.Close()
				continue
			}
			h.wg.Go(func() { h.answer(c, who, g, tooMany) })
		}
	})
}

// turnAway says why a process, of which nothing is known, is not answered, and hangs up.
func (h *hosts) turnAway(c cable, why error) {
	if noDescriptors(why) {
		answer := h.greeting("")
		answer.Refused, answer.Full = why.Error(), true
		_ = c.SetDeadline(time.Now().Add(refuseTimeout)) // it is the first on this cable, so it does not wait
		_ = greeting.Write(c, answer)                    // or the other side finds that this one hangs up
	}
	c.Close()
}

// acceptPause is how long to wait after accept has failed.
const acceptPause = 20 * time.Millisecond

// answer reads a greeting of a process of a user, answers it, and does what it asks for. If
// tooMany is not nil, it only answers with that. It leaves admission g, unless a
// link does.
func (h *hosts) answer(c cable, who Peer, g *admission, tooMany error) {
	limit := linkTimeout
	if tooMany != nil {
		limit = refuseTimeout
	}
	ctx, cancel := context.WithTimeout(h.ctx, limit)
	defer cancel()
	release := context.AfterFunc(ctx, func() { c.Close() })
	defer release()
	asks, l := h.agree(ctx, c, who, tooMany)
	if asks == nil {
		c.Close()
		g.leave()
		return
	}
	// From here on the deadline of the device counts.
	dev, err := h.bridge(c, who, asks.Want)
	if err == nil && !release() {
		dev.Close()
		err = ctx.Err()
	}
	if l == nil { // otherwise finish does
		h.refused.half(err)
	}
	if err == nil {
		dev = g.counted(dev)
	} else {
		g.leave()
	}
	switch {
	case l != nil:
		h.finish(ctx, l, dev, err)
	case err != nil:
		h.refused.check(err)
	case asks.Want == greeting.WantUplink:
		h.addMember(ctx, asks, who.UID, dev)
	default:
		h.accepted(dev)
	}
}

// agree reads a greeting and answers it. It returns the greeting if the cable becomes a bridge,
// with the link for that, if it is one to another node. If tooMany is not nil, it refuses.
func (h *hosts) agree(ctx context.Context, c cable, who Peer, tooMany error) (asks *greeting.Message, l *nodeLink) {
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	g, err := greeting.Read(c, greeting.MaxMessage)
	if err != nil {
		if errors.Is(err, greeting.ErrNoGreeting) {
			h.refused.add(err)
		}
		return nil, nil
	}
	answer := h.greeting("")
	if g.Want == greeting.WantFile && g.Version == greeting.Version && tooMany == nil {
		h.lend(c, who, g, answer)
		return nil, nil
	}
	if tooMany != nil {
		answer.Refused, answer.Full = tooMany.Error(), true
	} else if l, err = h.judge(who, g, answer); err != nil {
		answer.Refused = err.Error()
		h.refused.add(err)
	}
	err = nil
	goesOn := answer.Refused == "" && !answer.Busy && g.Bridges()
	if goesOn {
		err = c.TakeFiles()
	}
	if err == nil {
		err = greeting.Write(c, answer)
	}
	if err != nil || !goesOn {
		if l != nil && !answer.Busy {
			h.fail(l, err)
		}
		return nil, nil
	}
	return g, l
}

// lend answers a process of a user that asks for a file. Whether it would fit into the fabric does
// not matter.
func (h *hosts) lend(c cable, who Peer, g, answer *greeting.Message) {
	f, err := heapmem.Lent(g.Key, who)
	to, ok := c.(interface {
		SendFile(frame []byte, f *os.File) error
	})
	if err == nil && !ok {
		err = heapmem.ErrNoFile
	}
	if err != nil {
		answer.Refused = err.Error()
		h.refused.add(fmt.Errorf("pid %d, uid %d asks for a file: %w", who.PID, who.UID, err))
		_ = greeting.Write(c, answer) // the other side hangs up if it does not get it
		return
	}
	frame, err := answer.Bytes()
	if err == nil {
		_ = to.SendFile(frame, f) // likewise
	}
}

// judge decides how to answer a greeting of a process of a user. If it returns a link and the answer is
// not busy, the caller makes that link.
func (h *hosts) judge(who Peer, g, answer *greeting.Message) (*nodeLink, error) {
	if g.Want == greeting.WantStatus && g.Version == greeting.Version {
		trusted := who.UID == 0 || who.UID == os.Geteuid()
		if answer.Status = h.status(trusted); !trusted {
			answer.Status = answer.Status.ForOthers()
		}
		return nil, nil
	}
	if g.Want == greeting.WantOwner {
		h.stir() // if it does not fit, the error of the link shows that
	}
	if err := answer.Fits(g); err != nil {
		return nil, err
	}
	switch {
	case g.Node == h.spec.Node && h.judgeOwn(g):
		return nil, nil
	case g.Node == h.spec.Node:
		return nil, fmt.Errorf("%w: node %d runs already, in process %d; process %d was to be the same",
			greeting.ErrMismatch, g.Node, os.Getpid(), g.PID)
	case g.Want == greeting.WantCheck:
		return nil, nil
	case g.Want == greeting.WantLink && !g.Member:
		for _, l := range h.links {
			if l.wire.Number == g.Wire && l.to == g.Node && l.bySocket() {
				answer.Busy = !h.take(l)
				return l, nil
			}
		}
		return nil, fmt.Errorf("%w: no wire %d from node %d leads to node %d", greeting.ErrMismatch, g.Wire, g.Node, h.spec.Node)
	}
	return nil, fmt.Errorf("%w: node %d wants %.20q", greeting.ErrMismatch, g.Node, g.Want)
}
