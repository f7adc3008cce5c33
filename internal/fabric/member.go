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
func (f *Fabric) judgeOwn(g *greeting.Message) bool {
	if g.Want == greeting.WantProcess {
		return true
	}
	if !f.several() {
		return false
	}
	switch g.Want {
	case greeting.WantUplink:
		return g.Member && !f.spec.IsMember()
	case greeting.WantCheck:
		return g.Member
	case greeting.WantOwner:
		return f.spec.IsMember() && !g.Member
	}
	return false
}

// joinOwner compares a member with the owner, if that runs, and makes the link to
// it. Like join, it is called after serve.
func (f *Fabric) joinOwner() error {
	connect := func(ctx context.Context) (cable, error) { return f.registry.connect(ctx, f.spec.Node, 0) }
	if ok, err := f.registry.present(f.spec.Node); err == nil && ok {
		if answer, err := f.check(f.ctx, greeting.WantCheck, connect); err == nil {
			if err := f.greeting("").Verdict(answer); err != nil {
				return fmt.Errorf("fabric %s:%s: %w", f.spec.Kind, f.spec.Name, err)
			}
		}
	}
	f.wg.Go(func() { f.keep(f.links[0]) })
	if f.spec.TakesOver() && f.takeOver != nil {
		f.wg.Go(f.awaitTakeover)
	}
	return nil
}

// adopt takes the plan from the owner's answer. The answer must fit a plan that was
// taken before.
func (f *Fabric) adopt(answer *greeting.Message) error {
	if f.plan.Load() != nil {
		return nil
	}
	plan := *f.spec
	plan.Nodes, plan.Lanes, plan.Slots, plan.FrameBytes = answer.Nodes, answer.Lanes, answer.Slots, answer.Frame
	o := plan.LinkOptions()
	o.Member = true
	if plan.Nodes < spec.MinNodes || plan.Nodes > spec.MaxNodes || plan.Lanes < 1 {
		return fmt.Errorf("%w: the owner of the links of %s is of %s", greeting.ErrMismatch, spec.NodeName(f.spec.Node), answer.Plan())
	}
	if err := f.joinRing(o); err != nil {
		return fmt.Errorf("%w: %w", greeting.ErrMismatch, err)
	}
	f.plan.Store(&plan)
	return nil
}

// callMembers informs the processes that run already that the links have an owner.
// Processes that start later ask for it.
func (f *Fabric) callMembers() {
	all, err := f.registry.Processes()
	if err != nil {
		return // the owner is found when they ask
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, process := range all {
		if process == f.number {
			continue
		}
		wg.Go(func() {
			answer, err := f.check(f.ctx, greeting.WantOwner, func(ctx context.Context) (cable, error) {
				return f.registry.connect(ctx, f.spec.Node, process)
			})
			if err != nil {
				return
			}
			if err := f.greeting("").Verdict(answer); err != nil {
				f.refused.add(err)
			}
		})
	}
}

// MemberIs reports whether the link to the process of that number, a member of this host, is one of
// the users'. It does not wait. In a process that is a member itself it is false.
func (f *Fabric) MemberIs(process int, users ...int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[process]
	return m != nil && slices.Contains(users, m.uid)
}

// replaceWait is how long the owner waits until a link is down that its member has
// made again.
const replaceWait = time.Second

// admit waits until the link is down that a member has made before this one. If it does not end, another process has
// greeted in the member's name, and gets an error.
func (f *Fabric) admit(ctx context.Context, l *linkEnd) {
	f.mu.Lock()
	old := f.members[l.process]
	f.mu.Unlock()
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
func (f *Fabric) attend(l *linkEnd) {
	f.mu.Lock()
	f.members[l.process] = l
	f.mu.Unlock()
	select {
	case <-l.ring.Done():
	case <-f.ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step(l, ended)
	if f.members[l.process] == l {
		delete(f.members, l.process)
	}
}
