package ring

import (
	"encoding/binary"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
)

func newTurn() (*link.Turn, chan struct{}) {
	woken := make(chan struct{}, 1)
	return &link.Turn{Wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}, woken
}

// publishes returns the body of a frame that publishes words of 8 bytes, given by
// offset and value.
func publishes(words ...[2]uint64) (body []byte) {
	for _, w := range words {
		const publish = 3 // the kind of an entry
		body = binary.LittleEndian.AppendUint64(body, w[0]|8<<32|publish<<56)
		body = binary.LittleEndian.AppendUint64(body, w[1])
	}
	return body
}

// kept returns how many frames of a tunnel are not acknowledged.
func (t *tunnelEnd) kept() (n int) {
	t.Step(func(e *arq.End, _ time.Time) { n = e.Kept() })
	return n
}

// goes has a tunnel send over a link, which nothing else uses.
func (t *tunnelEnd) goes(l *Link) {
	t.router.links[l.key()] = l
	t.Reroute()
	delete(t.router.links, l.key())
}
