package sdp

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/fabric"
)

// What network "tcp" uses TCP for, where it could be SDP.
const (
	tcpNoFabric = "this system has no fabrics"
	tcpNoLookup = "the kernel does not say which socket TCP would reach"
	tcpFailed   = "SDP has failed"
	tcpNotOurs  = "a process of another user serves the socket"
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
// this system has none. Where a fabric is refused, or another user has its place, it is not.
func tcpAlone(f *Fabric, err error) bool { return f == nil && fabric.Impossible(err) }
