package sdp

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/virtual"
)

var (
	errBubble      = fmt.Errorf("a fabric of shared memory in a bubble of testing/synctest, use mem:NAME: %w", errors.ErrUnsupported)
	errOtherBubble = fmt.Errorf("a Fabric that was opened outside of this bubble of testing/synctest: %w", errors.ErrUnsupported)
)

// bubbleUntil is long after the clock of a bubble begins, at 2000-01-01, and lies in
// the past.
var bubbleUntil = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// inBubble reports whether the goroutine runs in a bubble of testing/synctest whose
// clock has not reached 2020. Only the first line of a stack trace shows that. The clock
// is checked first, since that costs little.
func inBubble() bool {
	if time.Now().After(bubbleUntil) {
		return false
	}
	var head [128]byte
	line, _, _ := bytes.Cut(head[:runtime.Stack(head[:], false)], []byte("\n"))
	return bytes.Contains(line, []byte("synctest bubble "))
}

// forBubble refuses a fabric that would hold up a bubble's clock. It makes waits of
// other fabrics not poll that clock, which stands still meanwhile.
func forBubble(spec *spec.Spec) error {
	if spec.Backend != "mem" {
		return errBubble
	}
	if virtual.Poll == nil {
		spec.Spin = 0
	}
	return nil
}

// usable returns an error if the goroutine is in a bubble of testing/synctest and the
// stack is not. What they share would end the test.
func (s *stack) usable() error {
	if s.bubble || !inBubble() {
		return nil
	}
	return errOtherBubble
}
