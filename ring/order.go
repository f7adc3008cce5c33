package ring

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// orders are those asked for in a tunnel. A tunnel's mu guards them.
type orders struct {
	asked, answered uint32 // numbers; 0 is none
	waiting         []*order
}

// order is one that was asked for and not answered.
type order struct {
	number uint32
	// delivery: it is done already when the frame that asks is acknowledged.
	delivery bool
	done     chan struct{} // closed by its answer, or with the tunnel's end
}

// add is the next order.
func (o *orders) add(delivery bool) *order {
	o.asked++
	if o.asked == 0 {
		o.asked++
	}
	w := &order{number: o.asked, delivery: delivery, done: make(chan struct{})}
	o.waiting = append(o.waiting, w)
	return w
}

// answer takes the answer to an order, which answers those before it. Answers to what was
// not asked are ignored.
func (o *orders) answer(number uint32) {
	if int32(number-o.answered) <= 0 || int32(o.asked-number) < 0 {
		return
	}
	o.answered = number
	o.remove(func(w *order) bool { return int32(number-w.number) >= 0 })
}

// arrived takes the acknowledgement of the frame that asks for an order.
func (o *orders) arrived(number uint32) {
	o.remove(func(w *order) bool { return w.delivery && int32(number-w.number) >= 0 })
}

// leave ends the wait for w.
func (o *orders) leave(w *order) { o.remove(func(other *order) bool { return other == w }) }

// end ends all waits.
func (o *orders) end() { o.remove(func(*order) bool { return true }) }

// remove ends the waits of those for which done returns true.
func (o *orders) remove(done func(*order) bool) {
	left := o.waiting[:0]
	for _, w := range o.waiting {
		if done(w) {
			close(w.done)
		} else {
			left = append(left, w)
		}
	}
	clear(o.waiting[len(left):])
	o.waiting = left
}

// order asks for an order: a request in sequence, that the other end answers in
// sequence. When the answer is here, all that was stored here before is there; and all
// that was stored there before our stores arrived is here. It returns nil if the link is
// down, and for how long the other end has acknowledged nothing of what it was sent
// before. One for a delivery does not wait for the answer, only until all is there.
func (t *tunnel) order(delivery bool) (w *order, silent time.Duration) {
	lock.Device()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() != tunnelUp {
		return nil, 0
	}
	if t.kept.count > 0 {
		silent = time.Since(t.silent)
	}
	w = t.orders.add(delivery)
	t.ask = w.number
	t.endFrame()
	t.signal()
	t.push(false)
	return w, silent
}

// Order implements ntb.Device. It ends with the link, if not before.
func (t *tunnel) Order() {
	if w, _ := t.order(false); w != nil {
		<-w.done
	}
}

// deliver waits until the other end has what was stored before, the link is down, or it
// has acknowledged nothing for d. An acknowledgement says that it has it: one that answers
// nothing, though it takes what others store, keeps nobody here.
func (t *tunnel) deliver(d time.Duration) {
	w, silent := t.order(true)
	if w == nil {
		return
	}
	limit := time.NewTimer(d - silent)
	defer limit.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-limit.C:
		}
		t.mu.Lock()
		left := d - time.Since(t.silent)
		if left <= 0 {
			t.orders.leave(w) // what was asked is answered later, or with the end
		}
		t.mu.Unlock()
		if left <= 0 {
			return
		}
		limit.Reset(left)
	}
}
