package arq

// Kind is the purpose of a frame. The numbers are those of the wire.
type Kind uint8

const (
	None   Kind = iota // no frame
	Data               // in sequence
	Ack                // only an acknowledgement, not in sequence
	Open               // asks the other process for the other end
	Accept             // answers open
	Close              // the last frame, in sequence
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	return [...]string{"none", "data", "ack", "open", "accept", "close", "kind 6", "kind 7"}[k&7]
}

// Frame is a frame that is to be sent.
type Frame struct {
	Kind Kind
	Seq  uint32 // of data and close
	Ack  uint32 // the sequence number expected next
	Asks bool   // for an acknowledgement at once
	Body []byte // of data; valid until the next call of a method of its End
}
