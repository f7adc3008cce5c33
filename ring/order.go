package ring

import (
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// orders are those requested in a tunnel. The tunnel's mu guards them.
type orders struct {
	asked, answered uint32 // numbers; 0 for none
	wanted          uint32 // the last one that the other end has asked for; 0 for none
	waiting         []*order
}

// order is one that was requested and not answered.
type order struct {
	number uint32
	// delivery means that the order is done when the frame that requests it is
	// acknowledged.
	delivery bool
	done     chan struct{} // closed by its answer, or with the tunnel's end
}

// add adds the next order and returns it.
func (o *orders) add(delivery bool) *order {
	o.asked++
	if o.asked == 0 {
		o.asked++
	}
	w := &order{number: o.asked, delivery: delivery, done: make(chan struct{})}
	o.waiting = append(o.waiting, w)
	return w
}

// want handles a request of the other end. It reports whether that is the last one so far: a
// goroutine that took an earlier frame may come later.
func (o *orders) want(number uint32) bool {
	if int32(number-o.wanted) <= 0 {
		return false
	}
	o.wanted = number
	return true
}

// answer handles the answer to an order. It also answers those before it. Answers to
// orders that were not requested are ignored.
func (o *orders) answer(number uint32) {
	if int32(number-o.answered) <= 0 || int32(o.asked-number) < 0 {
		return
	}
	o.answered = number
	o.remove(func(w *order) bool { return int32(number-w.number) >= 0 })
}

// arrived handles the acknowledgement of the frame that requests an order.
func (o *orders) arrived(number uint32) {
	o.remove(func(w *order) bool { return w.delivery && int32(number-w.number) >= 0 })
}

// leave ends the wait for w.
func (o *orders) leave(w *order) { o.remove(func(other *order) bool { return other == w }) }

// end ends all waits.
func (o *orders) end() { o.remove(func(*order) bool { return true }) }

// remove ends the waits of the orders for which done returns true.
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

// order requests an order: a request in sequence, which the other end answers in
// sequence. When the answer has come, all that was stored here before is there, and all
// that was stored there before our stores arrived is here. If delivery is true, the
// order only waits until all is there. order returns nil if the link is down. It also
// returns for how long the other end has acknowledged nothing of what it was sent
// before.
func (t *tunnel) order(delivery bool) (w *order, silent time.Duration) {
	lock.Device()
	t.mu.Lock()
	defer t.unlockAndSend()
	if t.current() != arq.Up {
		return nil, 0
	}
	now := time.Now()
	silent = t.arq.Silent(now)
	w = t.orders.add(delivery)
	t.marks.Ask = w.number
	t.mark(now)
	return w, silent
}

// Order implements ntb.Device. It ends at the latest with the link.
func (t *tunnel) Order() {
	if w, _ := t.order(false); w != nil {
		<-w.done
	}
}

// deliverLimits is for how many times the limit without an acknowledgement a delivery
// goes on at the most: the other end may acknowledge as little as it likes each time.
const deliverLimits = 5

// Deliver waits until the other end has what was stored before, the link is down, or it
// has acknowledged nothing for d, and for deliverLimits times d at the most. An
// acknowledgement shows that it has it: one that answers nothing, though it takes what
// others store, keeps nobody here.
func (t *tunnel) Deliver(d time.Duration) {
	w, silent := t.order(true)
	if w == nil {
		return
	}
	end := time.Now().Add(deliverLimits * d)
	limit := time.NewTimer(d - silent)
	defer limit.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-limit.C:
		}
		t.mu.Lock()
		now := time.Now()
		left := min(d-t.arq.Silent(now), end.Sub(now))
		if left <= 0 {
			t.orders.leave(w) // the answer comes later, or with the end
		}
		t.mu.Unlock()
		if left <= 0 {
			return
		}
		limit.Reset(left)
	}
}
