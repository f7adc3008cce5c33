package ntb

import "context"

// Attachment is this side's end of a bridge for as long as the program keeps it. It has what
// outlasts a session: descriptors, registers, memory that is pinned or mapped. Memory that it
// keeps is the same for every session.
//
// A [Device] is one session. It begins when both sides have opened one, and ends with its
// link. From then on it is as if its cable was cut: what is stored through it vanishes, and
// its inbound window stays as it was until its Close. Neither disturbs a later session, which
// finds the windows and the scratchpads zero, and no doorbell rung.
type Attachment interface {
	// Open ends the session before, if it has not ended, and begins another. It returns
	// the device when the peer has begun one as well, or the reason when ctx ends. The
	// peer may be on another machine, so Open knows no other limit. Of two calls at the
	// same time one waits for the other. The error wraps ErrClosed after Close,
	// ErrVersion if the peer's side is of another version, and ErrInUse if another process
	// has a session at this end, as far as a backend can find that out.
	Open(ctx context.Context) (Device, error)

	// Close ends the session and releases what the attachment keeps. A call of Open that
	// is under way returns. Devices keep their memory until they are closed.
	Close() error
}
