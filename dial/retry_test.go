package dial

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errDown = fmt.Errorf("it is cut: %w", ErrLinkDown)
	errFull = fmt.Errorf("the window is full: %w", syscall.ENOBUFS)
)

// fails is a failure, and what is to follow.
type fails struct {
	err  error
	next Next
}

func TestWhatFollowsAFailure(t *testing.T) {
	redirected := &RedirectError{Process: 7}
	again, redirect, open := Next{Step: Reach}, Next{Step: Redirect, Process: 7}, Next{Step: Open}
	pause := func(ms int) Next { return Next{Step: Open, Pause: time.Duration(ms) * time.Millisecond} }
	for name, tc := range map[string]struct {
		retry Retry
		steps []fails
		last  error // it is final
		want  error // which the error of the dial is
	}{
		"nobody listens":                {last: syscall.ECONNREFUSED, want: syscall.ECONNREFUSED},
		"another version":               {last: syscall.EPROTONOSUPPORT, want: syscall.EPROTONOSUPPORT},
		"links go down here":            {steps: []fails{{errDown, again}, {errDown, again}}, last: errDown, want: syscall.ECONNREFUSED},
		"links go down to another host": {retry: Retry{Far: true}, steps: []fails{{errDown, again}, {errDown, again}}, last: errDown, want: syscall.EHOSTUNREACH},
		"the port passes on here":       {steps: []fails{{redirected, again}, {errDown, again}}, last: redirected, want: syscall.ECONNREFUSED},
		"redirects without end": {
			retry: Retry{Far: true},
			steps: []fails{
				{redirected, redirect}, {redirected, redirect}, {redirected, redirect}, {redirected, redirect}, {redirected, again},
				{redirected, redirect}, {errDown, again},
				{redirected, redirect}, {redirected, redirect}, {redirected, redirect}, {redirected, redirect},
			},
			last: redirected, want: syscall.EHOSTUNREACH,
		},
		"a redirect that cannot be reached": {
			retry: Retry{Far: true},
			steps: []fails{{redirected, redirect}, {fmt.Errorf("%w: %w", redirected, ErrLinkDown), again}},
			last:  syscall.ECONNREFUSED, want: syscall.ECONNREFUSED,
		},
		"a full backlog": {
			steps: []fails{{errBacklog, pause(1)}, {errBacklog, pause(2)}, {errBacklog, pause(4)}, {errBacklog, pause(8)},
				{errBacklog, pause(16)}, {errBacklog, pause(32)}, {errBacklog, pause(50)}, {errBacklog, pause(50)}},
			last: os.ErrPermission, want: os.ErrPermission,
		},
		"a full window without a deadline": {last: errFull, want: syscall.ENOBUFS},
		"a full window with a deadline": {
			retry: Retry{Patient: true}, steps: []fails{{errFull, pause(1)}, {errBacklog, pause(2)}, {errFull, pause(4)}},
			last: syscall.ECONNREFUSED, want: syscall.ECONNREFUSED,
		},
		"a port that is taken": {steps: []fails{{ErrAddressTaken, open}, {errBacklog, pause(1)}, {ErrAddressTaken, open}}, last: syscall.ECONNREFUSED, want: syscall.ECONNREFUSED},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.retry
			for i, s := range tc.steps {
				next, err := r.After(s.err)
				require.NoError(t, err, i)
				require.Equal(t, s.next, next, i)
			}
			_, err := r.After(tc.last)
			require.ErrorIs(t, err, tc.want)
		})
	}
}

func TestPortsThatAreTakenHaveAnEnd(t *testing.T) {
	var r Retry
	for range maxPorts - 1 {
		_, err := r.After(ErrAddressTaken)
		require.NoError(t, err)
	}
	_, err := r.After(ErrAddressTaken)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
}

// A dial that ends while it waits for room says so.
func TestTheEndOfADialNamesWhatItWaitedFor(t *testing.T) {
	r := Retry{Patient: true}
	require.Equal(t, context.Canceled, r.Ended(context.Canceled))
	r.After(errFull)
	require.ErrorIs(t, r.Ended(context.Canceled), context.Canceled)
	require.ErrorIs(t, r.Ended(context.Canceled), syscall.ENOBUFS)
	r.After(errDown)
	require.Equal(t, context.Canceled, r.Ended(context.Canceled))
}
