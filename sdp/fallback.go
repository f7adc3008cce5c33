package sdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// What network "tcp" uses TCP for, where it could be SDP.
const (
	tcpNoFabric = "this system has no fabrics"
	tcpLack     = "the fabric cannot be joined now, and is tried again"
	tcpNoLookup = "the kernel does not say which socket TCP would reach"
	tcpFailed   = "SDP has failed"
	tcpNotOurs  = "a process of another user serves the socket"
	tcpNode     = "the address is a node's, and SDP is not possible"
)

// tcpReason is a reason for which TCP is used. Errors with the same number are one reason, as
// their texts may have ports and processes in them.
type tcpReason struct {
	what  string
	errno syscall.Errno
}

var tcpLogged sync.Map // of tcpReason to nothing

// logTCP logs, once for each reason, that network "tcp" uses TCP where it could be SDP.
func logTCP(what string, err error) {
	r := tcpReason{what: what}
	_ = errors.As(err, &r.errno) // 0 if there is none
	if _, before := tcpLogged.LoadOrStore(r, nil); !before {
		slog.Warn(`sdp: network "tcp" uses TCP: `+what, "reason", err)
	}
}

// tcpAlone reports whether network "tcp" is TCP because the default Fabric could not be opened:
// this system has none, or there is a lack of something. Where a fabric is refused, or another user
// has its path, it is not.
func tcpAlone(f *Fabric, err error) bool {
	return f == nil && (fabric.Impossible(err) || fabric.Lacking(err))
}

// logAlone logs an error of tcpAlone.
func logAlone(err error) {
	if fabric.Impossible(err) {
		logTCP(tcpNoFabric, err)
	} else {
		logTCP(tcpLack, err)
	}
}

// lackKept is how long network "tcp" is TCP before the default Fabric is tried again.
const lackKept = time.Second

// knownLack is why the default Fabric could not be opened when it was tried last, by an error of
// tcpAlone. The zero knownLack is none.
type knownLack struct {
	name string // of the fabric
	err  error
	at   time.Time
}

// after returns the error if it counts for a fabric of that name now.
func (l *knownLack) after(name string, now time.Time) error {
	if age := now.Sub(l.at); name == l.name && 0 <= age && age < lackKept { // the clock of a bubble is another one
		return l.err
	}
	return nil
}

// useForTCP is use for a call of network "tcp". Where that would be TCP alone, it opens the default
// Fabric once in lackKept at most.
func (f *Fabric) useForTCP(ctx context.Context) (_ *Fabric, done func(), err error) {
	if f == nil {
		defaultFabric.mu.Lock()
		if defaultFabric.fabric == nil && defaultFabric.opening == nil && defaultFabric.lack.err != nil {
			name, _, _ := spec.Default() // where it fails, use has the error
			err = defaultFabric.lack.after(name, time.Now())
		}
		defaultFabric.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
	return f.use(ctx)
}

// sparePipes is how many pipes, of two descriptors each, a process has room for when it has joined
// the default Fabric. TCP needs some, also for the questions to the kernel.
const sparePipes = 4

// spare makes the pipes. done closes them.
func spare() (done func(), err error) {
	var ends []*os.File
	done = func() {
		for _, f := range ends {
			f.Close()
		}
	}
	for range sparePipes {
		r, w, err := os.Pipe()
		if fabric.Lacking(err) {
			done()
			return nil, fmt.Errorf("fabric: leave %d descriptors for TCP: %w", 2*sparePipes, err)
		}
		if err == nil {
			ends = append(ends, r, w)
		}
	}
	return done, nil
}
