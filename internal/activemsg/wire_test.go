package activemsg

import (
	"bytes"
	"math"
	"net"
	"testing"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

func TestARequestIsWhatWasEncoded(t *testing.T) {
	var b [requestBytes]byte
	want := request{opAtomic, symheap.Xor, 8, 7, 0x1000, 1 << 63, math.MaxUint64, 3}
	want.encode(b[:])
	require.Equal(t, want, decodeRequest(b[:]))
}

func TestRequestsOutsideOfTheHeapAreRefused(t *testing.T) {
	const size, huge = 1 << 20, math.MaxUint64
	for name, c := range map[string]struct {
		r  request
		ok bool
	}{
		"put":                         {request{op: opPut, off: 4096, a: 8}, true},
		"put of all":                  {request{op: opPut, off: 4096, a: size - 4096}, true},
		"put past the end":            {request{op: opPut, off: 4096, a: size - 4095}, false},
		"put that wraps":              {request{op: opPut, off: 8192, a: huge - 8191}, false},
		"put before objects":          {request{op: opPut, off: 0, a: 8}, false},
		"put from past the end":       {request{op: opPut, off: size + 1}, false},
		"put with a number":           {request{op: opPut, off: 4096, a: 8, number: 1}, false},
		"get":                         {request{op: opGet, off: size - 8, a: 8, number: 1}, true},
		"get without a number":        {request{op: opGet, off: 4096, a: 8}, false},
		"get of too much":             {request{op: opGet, off: 4096, a: maxGet + 1, number: 1}, false},
		"blocks":                      {request{op: opPutStrided, off: 4096, a: 8, b: 16, c: 10}, true},
		"blocks that overlap":         {request{op: opPutStrided, off: 4096, a: 17, b: 16, c: 10}, false},
		"blocks past the end":         {request{op: opPutStrided, off: size - 16, a: 8, b: 16, c: 2}, false},
		"blocks whose product wraps":  {request{op: opPutStrided, off: 4096, a: 1 << 33, b: 1 << 33, c: 1 << 31}, false},
		"strides whose product wraps": {request{op: opPutStrided, off: 4096, a: 1, b: size, c: 1 << 50}, false},
		"atomic":                      {request{op: opAtomic, amo: symheap.Add, width: 4, off: 4100}, true},
		"atomic across a line":        {request{op: opAtomic, amo: symheap.Add, width: 8, off: 4100}, false},
		"atomic of another size":      {request{op: opAtomic, amo: symheap.Add, width: 2, off: 4100}, false},
		"atomic at the end":           {request{op: opAtomic, amo: symheap.Add, width: 8, off: size - 4}, false},
		"unknown atomic":              {request{op: opAtomic, amo: symheap.LastOp + 1, width: 8, off: 4096}, false},
		"unknown":                     {request{op: opDead + 1, off: 4096}, false},
		"nothing":                     {request{}, false},
	} {
		err := c.r.check(size)
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
	}
}

// tape is a connection from which prepared bytes are read, and to which anything
// can be written.
type tape struct {
	net.Conn
	*bytes.Reader
}

func (t tape) Read(p []byte) (int, error)  { return t.Reader.Read(p) }
func (t tape) Write(p []byte) (int, error) { return len(p), nil }
func (t tape) Close() error                { return nil }

// counting counts what is written.
type counting struct {
	tape
	n int
}

func (c *counting) Write(p []byte) (int, error) { c.n++; return len(p), nil }

// A word that PEs wait for needs no acknowledgement. What is put does, also before such a word.
func TestTellIsNotAcknowledged(t *testing.T) {
	conn := new(counting)
	c := NewChannel(conn)
	require.NoError(t, c.Tell(4096, 1))
	require.NoError(t, c.Ack())
	require.Equal(t, 1, conn.n)
	require.NoError(t, c.PutShort(4096, make([]byte, 8)))
	require.NoError(t, c.Tell(4096, 2))
	require.NoError(t, c.Ack())
	require.Equal(t, 4, conn.n)
}

// noting is a Target that counts the calls of Stored.
type noting struct {
	deaf
	stored *int
}

func (n noting) Stored() { *n.stored++ }

// Requests that store nothing wake nobody.
func TestOnlyStoresAreTold(t *testing.T) {
	for op, want := range map[operation]int{opPut: 1, opPutStrided: 1, opAtomic: 1, opGet: 0, opGetStrided: 0, opAck: 0} {
		r := request{op: op, off: 4096, a: 8, b: 8, c: 1}
		switch op {
		case opAtomic:
			r.amo, r.width = symheap.Add, 8
		case opGet, opGetStrided, opAck:
			r.number = 1
		}
		if op == opAck {
			r = request{op: op, number: 1}
		}
		var b [requestBytes + 8]byte
		r.encode(b[:])
		m := symheap.NewGo(1<<20, 7)
		defer symheap.ForgetGo(7)
		stored := 0
		s := &server{conn: tape{Reader: bytes.NewReader(b[:])}, heap: symheap.New(m, symheap.Shared), to: noting{stored: &stored}}
		require.NoError(t, s.next(), op)
		require.Equal(t, want, stored, op)
	}
}

// A PE may send anything. That must neither stop the server's process nor reach
// anything but objects.
func FuzzServer(f *testing.F) {
	add := func(requests ...request) {
		var b []byte
		for _, r := range requests {
			var one [requestBytes]byte
			r.encode(one[:])
			b = append(append(b, one[:]...), make([]byte, min(r.a*max(1, r.c), 100))...)
		}
		f.Add(b)
	}
	add(request{op: opPut, off: 4096, a: 8}, request{op: opAck, number: 3})
	add(request{op: opGet, off: 8192, a: 100, number: 1}, request{op: opBye})
	add(request{op: opPutStrided, off: 4096, a: 4, b: 8, c: 5})
	add(request{op: opGetStrided, off: 4096, a: 4, b: 8, c: 5, number: 1})
	add(request{op: opAtomic, amo: symheap.Swap, width: 8, off: 4096, number: 2}, request{op: opDead, c: 1}, request{op: opWake})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := symheap.NewGo(1<<20, 7)
		defer symheap.ForgetGo(7)
		h := symheap.New(m, symheap.Shared)
		before := bytes.Clone(h.Bytes[:symheap.Shared])
		require.Error(t, Serve(tape{Reader: bytes.NewReader(b)}, h, deaf{}))
		require.Equal(t, before, h.Bytes[:symheap.Shared], "it wrote where no object is")
	})
}

// deaf is a Target that does nothing.
type deaf struct{}

func (deaf) Stored()  {}
func (deaf) Wake()    {}
func (deaf) Dead(int) {}
func (deaf) Exit(int) {}
