//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	closed = []error{net.ErrClosed}
	late   = []error{os.ErrDeadlineExceeded}
)

// expected are the errors that users of package net expect, by kind of call.
type expected struct {
	read, write, dial []error
	over              []error // of CloseRead and CloseWrite
	full              bool    // a Write of more than all buffers hold fails
	// told waits until another call on the connection has returned the reset, which only
	// one call does; the others then find its end. It is nil where there is no reset.
	told func() error
}

// expectedOf returns the errors to expect after an event. A process that is stopped is not
// dead: deadlines pass, and nothing else happens.
func expectedOf(event string) *expected {
	if event == "stopped" {
		return &expected{read: late, write: late, dial: late, full: true}
	}
	return &expected{
		read:  append(late, syscall.ECONNRESET),
		write: append(late, syscall.ECONNRESET, syscall.EPIPE),
		dial:  append(late, syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ECONNRESET),
		over:  []error{syscall.ENOTCONN},
	}
}

// ended judges the error of a Read.
func (e *expected) ended(err error) error {
	if err == io.EOF && e.told != nil {
		return e.told()
	}
	return verdict(err, e.read)
}

// drained judges the error of what reads until the end.
func (e *expected) drained(err error) error {
	if err == nil && e.told != nil {
		return e.told()
	}
	return must(err, e.read)
}

// much judges the error of a Write of more than all buffers hold.
func (e *expected) much(err error) error {
	if e.full {
		return must(err, e.write)
	}
	return verdict(err, e.write)
}

// shut returns the errors of a Write after CloseWrite.
func (e *expected) shut() []error { return append(e.write, syscall.EPIPE) }

// verdict returns nil if err is nil, or if it is a *net.OpError with one of the
// expected causes or with a Timeout because of a deadline.
func verdict(err error, expected []error) error {
	if err == nil {
		return nil
	}
	if op := (*net.OpError)(nil); !errors.As(err, &op) {
		return fmt.Errorf("%w: not a *net.OpError", err)
	} else if op.Timeout() != errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: Timeout is %v", err, op.Timeout())
	}
	if slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return fmt.Errorf("%w: want one of %v", err, expected)
}

// must is verdict for a call that must fail.
func must(err error, expected []error) error {
	if err == nil {
		return fmt.Errorf("no error, want one of %v", expected)
	}
	return verdict(err, expected)
}

// outcome is the result of a call.
type outcome struct {
	Call  string
	Wrong string // "" if it went well
}

// callAll makes all calls at once, and returns those that went wrong.
func (s *subject) callAll(e *expected) []outcome {
	type result struct {
		call string
		err  error
	}
	before := s.dialled.Load()
	calls := map[string]func() error{}
	for _, c := range connCalls {
		own := *e
		if told := s.resets[c.name]; told != nil && e.over != nil {
			own.told = func() error { return waitFor("another call has returned the reset", told.Load) }
		}
		calls[c.name] = func() error { return c.do(s.conns[c.name], &own) }
	}
	for _, c := range fabricCalls {
		calls[c.name] = func() error { return c.do(s.fabric, s.target, e) }
	}
	if s.state == "dialling" {
		calls["dials"] = func() error {
			return waitFor("each has dialled once more", func() bool { return s.dialled.Load() >= before+16 })
		}
	}
	results := make(chan result, len(calls))
	for name, do := range calls {
		go func() { results <- result{name, do()} }()
	}
	var wrong []outcome
	var hang strings.Builder
	guard := time.After(matrixTimeout)
	for len(calls) > 0 {
		select {
		case r := <-results:
			delete(calls, r.call)
			if r.err != nil {
				wrong = append(wrong, outcome{r.call, r.err.Error()})
			}
		case <-guard:
			for name := range calls {
				wrong = append(wrong, outcome{name, errHangs.Error()})
				hang.WriteString(name + ", ")
			}
			hangs(hang.String())
			return wrong
		}
	}
	return wrong
}
