package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Exchange is the bring-up of one side of a device. Each side writes words to the other's
// scratchpads, until both have seen each other's.
//
// The last two words are the side's epoch, a random number, and the other side's epoch as
// this one has seen it. So neither takes what a former process has left for an answer. Word 0
// names the protocol and its version, and is written last.
//
// A side that refuses the other goes on until the other has seen enough to refuse as well.
type Exchange struct {
	Device ntb.Device
	Words  []uint32 // what this side writes; Run fills the last two
	// Check checks the words of the other side. ErrNotYet means that they are not all
	// there, any other error that they are refused.
	Check func() error
	// Written, if not nil, is called when the words have been written.
	Written func()
	// Doorbell, if not nil, receives when the other side may have written.
	Doorbell <-chan struct{}
	// Down, if not nil, is closed when the link is down.
	Down <-chan struct{}
	// Every is how often this side looks, and repeats its words: what it wrote while the
	// other side was down is lost.
	Every time.Duration
}

// ErrNotYet reports that the other side has not written all its scratchpads. What it
// writes while the bridge is being set up vanishes, up to some word.
var ErrNotYet = errors.New("link: not all is there yet")

// Absent reports whether one of these words, none of which is ever 0, has not been written, or the link is down. When
// the other side writes its words again, word 0 may be there before the others.
func Absent(words ...uint32) bool { return slices.Contains(words, 0) || slices.Contains(words, Gone) }

// Run makes the exchange, and returns both sides' epochs. Its errors are that of Check,
// ErrDown, and that of ctx. A refusal ends with ctx too, with the error of Check.
func (x *Exchange) Run(ctx context.Context) (ours, theirs uint32, err error) {
	seenAt := len(x.Words) - 1
	epochAt := seenAt - 1
	ours = NewEpoch()
	x.Words[epochAt] = ours
	retry := time.NewTicker(x.Every)
	defer retry.Stop()
	var refused error // why this side refuses the other; nil if it does not
	written := false  // all that there is to write now
	for x.Device.LinkUp() {
		if !written {
			x.write(theirs)
			written = true
		}
		if err := x.Check(); err != ErrNotYet {
			refused = cmp.Or(refused, err)
			was := theirs
			theirs = x.Device.Spad(epochAt)
			written = written && theirs == was
			if x.Device.Spad(seenAt) == ours && theirs == was && theirs != 0 {
				return ours, theirs, refused // the other side can see that we have seen it
			}
			if was == 0 && theirs != 0 {
				continue // once: the other side may change its epoch at each look
			}
		}
		select {
		case <-x.Doorbell: // nothing is written for that alone: two sides would ring in turns
		case <-retry.C:
			written = false
		case <-x.Down:
			return ours, theirs, cmp.Or(refused, ErrDown)
		case <-ctx.Done():
			return ours, theirs, cmp.Or(refused, fmt.Errorf("link: the other side does not answer: %w", ctx.Err()))
		}
	}
	return ours, theirs, cmp.Or(refused, ErrDown)
}

// write writes the words, with the epoch of the other side.
func (x *Exchange) write(seen uint32) {
	x.Words[len(x.Words)-1] = seen
	for i, v := range x.Words[1:] {
		x.Device.SetPeerSpad(i+1, v)
	}
	x.Device.SetPeerSpad(0, x.Words[0])
	if x.Written != nil {
		x.Written()
	}
}

// NewEpoch returns a random number by which sides distinguish sessions. It is not 0, and not
// what a scratchpad reads when the link is down.
func NewEpoch() uint32 { return rand.Uint32N(Gone-1) + 1 }
