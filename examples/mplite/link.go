package mplite

import "github.com/ntbnet/ntbnet/shmem"

// link is what a PE knows of one PE, which may be itself.
type link struct {
	c  *Comm
	pe int

	// As the sender.

	out     queue               // the send queue there
	sent    uint64              // entries written to it
	taken   uint64              // of them, those that PE has taken: wordTaken
	tags    []int64             // of messages in its slots; noTag for other entries
	posts   []posted            // receives that PE has posted, in their order
	sends   []*Request          // sends not begun, in order
	granted []give              // data that PE has asked for
	waiting map[uint32]*Request // announced messages, by number
	bufs    map[uint32]extent   // buffered messages, by number
	gotten  uint64              // entries taken from its receive queue here
	toldGot uint64              // gotten, as last told to that PE

	replies queue // its receive queue here

	// As the receiver.

	in         queue               // its send queue here
	arrived    uint64              // entries in it: wordHeaders
	got        uint64              // of them, those taken
	toldTaken  uint64              // got, as last told to that PE
	unexpected []message           // messages without a receive, in order
	asked      map[uint32]*Request // receives whose message was announced, by its number
	back       queue               // the receive queue there
	wrote      uint64              // entries written to it
	drained    uint64              // of them, those that PE has taken: wordDrained
	backlog    []entry             // replies for which there is no room yet
	lastPost   uint32              // number of the last receive that was posted there
	landing    []*Request          // receives that need the landing pieces; the first has them
}

// noTag is not the tag of any message.
const noTag = -1 << 40

// posted is a receive that another PE has posted here.
type posted struct {
	number uint32
	tag    int32
	off    uint64
	size   int64
}

// give is data that a PE has asked this one for.
type give struct {
	r      *Request
	number uint32
	off    uint64
	size   int64
}

// message is a header that has not met a receive.
type message struct {
	entry
	number uint32
}

func newLink(c *Comm, pe int) link {
	slots := c.opts.Slots
	return link{
		c: c, pe: pe,
		out: newQueue(c.senders, c.me, slots), in: newQueue(c.senders, pe, slots),
		back: newQueue(c.replies, c.me, 2*slots), replies: newQueue(c.replies, pe, 2*slots),
		tags: make([]int64, slots), waiting: map[uint32]*Request{}, bufs: map[uint32]extent{}, asked: map[uint32]*Request{},
	}
}

// word returns a word that the other PE has written, loaded at once.
func (l *link) word(k int) uint64 {
	i := l.pe*wordsPerPE + k
	v := shmem.AtomicFetch(l.c.ctx, l.c.words, i, l.c.me)
	l.c.heard[i] = v
	return v
}

// tell stores this PE's word k at the other PE. A PE that sees it also sees all
// that was stored there before.
func (l *link) tell(k int, v uint64) {
	l.c.ctx.Fence()
	shmem.P(l.c.ctx, l.c.words, l.c.me*wordsPerPE+k, v, l.pe)
}

// room reports whether the send queue has a free slot.
func (l *link) room() bool { return l.sent-l.taken < l.out.slots }

// header writes an entry to the send queue, which has room, and returns its number.
func (l *link) header(e entry) uint32 {
	tag := int64(noTag)
	if e.kind.carries() {
		tag = int64(e.tag)
	}
	l.tags[l.sent%l.out.slots] = tag
	e.encode(l.c.scratch)
	shmem.Put(l.c.ctx, l.out.slot(l.sent), l.c.scratch, l.pe)
	number := uint32(l.sent)
	l.sent++
	l.tell(wordHeaders, l.sent)
	return number
}

// spare reports whether the receive queue has a free slot besides the kept ones.
// Those are for replies to messages that meet a posted receive on their way, one
// for each slot of the send queue.
func (l *link) spare() bool { return l.back.slots-(l.wrote-l.drained) > l.in.slots }

// reply writes an entry to the receive queue, which has room.
func (l *link) reply(e entry) {
	e.encode(l.c.scratch)
	shmem.Put(l.c.ctx, l.back.slot(l.wrote), l.c.scratch, l.pe)
	l.wrote++
	l.tell(wordReplies, l.wrote)
}

// replyLater writes a reply, at once or as soon as there is room.
func (l *link) replyLater(e entry) {
	l.backlog = append(l.backlog, e)
	l.flush()
}

func (l *link) flush() {
	n := 0
	for n < len(l.backlog) && l.spare() {
		l.reply(l.backlog[n])
		n++
	}
	l.backlog = l.backlog[:copy(l.backlog, l.backlog[n:])]
}

// credit sends the other PE how many entries were taken.
func (l *link) credit() {
	if l.toldTaken != l.got {
		l.toldTaken = l.got
		l.tell(wordTaken, l.got)
	}
	if l.toldGot != l.gotten {
		l.toldGot = l.gotten
		l.tell(wordDrained, l.gotten)
	}
}

// untaken reports whether a message that may be for a receive of tag is still in
// the send queue, and went without a posted receive.
func (l *link) untaken(tag int32) bool {
	for i := l.taken; i != l.sent; i++ {
		if t := l.tags[i%l.out.slots]; t != noTag && (tag == AnyTag || int64(tag) == t) {
			return true
		}
	}
	return false
}
