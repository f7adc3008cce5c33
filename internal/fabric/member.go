package fabric

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// A member is a process of a host whose links another process owns. It has one
// link, to the owner, and makes that again as owners do theirs. It takes the plan
// of the fabric from the first owner that it meets.

// judgeOwn reports whether a greeting of a process of this host is accepted.
func (h *hosts) judgeOwn(g *greeting.Message) bool {
	if g.Want == greeting.WantProcess {
		return true
	}
	if !h.several() {
		return false
	}
	switch g.Want {
	case greeting.WantUplink:
		return g.Member && !h.spec.IsMember()
	case greeting.WantCheck:
		return g.Member
	case greeting.WantOwner:
		return h.spec.IsMember() && !g.Member
	}
	return false
}

// stir wakes all that wait for a change, as if a link had changed.
func (h *hosts) stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.change()
}

// joinOwner compares a member with the owner, if that runs, and makes the link to
// it. Like join, it is called after serve.
func (h *hosts) joinOwner() error {
	connect := func(ctx context.Context) (cable, error) { return h.registry.connect(ctx, h.spec.Node, 0) }
	if ok, err := h.registry.present(h.spec.Node); err == nil && ok {
		if answer, err := h.check(h.ctx, greeting.WantCheck, connect); err == nil {
			if err := h.greeting("").Verdict(answer); err != nil {
				return fmt.Errorf("fabric %s:%s: %w", h.spec.Kind, h.spec.Name, err)
			}
		}
	}
	h.wg.Go(func() { h.keep(h.links[0]) })
	if h.spec.Succeeds() && h.inherit != nil {
		h.wg.Go(h.succeed)
	}
	return nil
}

// adopt takes the plan from the owner's answer. The answer must fit a plan that was
// taken before.
func (h *hosts) adopt(answer *greeting.Message) error {
	if h.plan.Load() != nil {
		return nil
	}
	plan := *h.spec
	plan.Nodes, plan.Lanes, plan.Slots, plan.Frame = answer.Nodes, answer.Lanes, answer.Slots, answer.Frame
	o := plan.LinkOptions()
	o.Member = true
	if plan.Nodes < spec.MinNodes || plan.Nodes > spec.MaxNodes || plan.Lanes < 1 {
		return fmt.Errorf("%w: the owner of the links of %s is of %s", greeting.ErrMismatch, spec.NodeName(h.spec.Node), answer.Plan())
	}
	if err := h.joinRing(o); err != nil {
		return fmt.Errorf("%w: %w", greeting.ErrMismatch, err)
	}
	h.plan.Store(&plan)
	return nil
}

// callMembers informs the processes that run already that the links have an owner.
// Processes that start later ask for it.
func (h *hosts) callMembers() {
	all, err := h.registry.Processes()
	if err != nil {
		return // the owner is found when they ask
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, process := range all {
		if process == h.number {
			continue
		}
		wg.Go(func() {
			answer, err := h.check(h.ctx, greeting.WantOwner, func(ctx context.Context) (cable, error) {
				return h.registry.connect(ctx, h.spec.Node, process)
			})
			if err != nil {
				return
			}
			if err := h.greeting("").Verdict(answer); err != nil {
				h.refused.add(err)
			}
		})
	}
}

// MemberIs reports whether the link to the process of that number, a member of this host, is one of
// the users'. It does not wait. In a process that is a member itself it is false.
func (f *Fabric) MemberIs(process int, users ...int) bool {
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	m := f.net.members[process]
	return m != nil && slices.Contains(users, m.uid)
}

// replaceWait is how long the owner waits until a link is down that its member has
// made again.
const replaceWait = time.Second

// admit waits until the link is down that a member has made before this one. If it does not end, another process has
// greeted in the member's name, and gets an error.
func (h *hosts) admit(ctx context.Context, l *linkEnd) {
	h.mu.Lock()
	old := h.members[l.process]
	h.mu.Unlock()
	if old == nil {
		return
	}
	select {
	case <-old.ring.Done():
	case <-time.After(replaceWait):
	case <-ctx.Done():
	}
}

// attend has the link to a member, which is up, among the others until it is down.
func (h *hosts) attend(l *linkEnd) {
	h.mu.Lock()
	h.members[l.process] = l
	h.mu.Unlock()
	select {
	case <-l.ring.Done():
	case <-h.ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step(l, ended)
	if h.members[l.process] == l {
		delete(h.members, l.process)
	}
}
