package meter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
)

func TestMain(m *testing.M) { fabrictest.Main(m) }

// serving returns a target at which a server of this process listens.
func serving(t *testing.T, transport string) Target {
	t.Helper()
	return servingBy(t, transport, &Server{})
}

func servingBy(t *testing.T, transport string, s *Server) Target {
	t.Helper()
	address := map[string]string{"sdp": "localhost:0", "tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[transport]
	ln, err := Listen(t.Context(), transport, "", address)
	require.NoError(t, err)
	done := make(chan error, 1)
	ctx, end := context.WithCancel(context.Background())
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-done)
	})
	if transport != "unix" {
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		address = net.JoinHostPort("localhost", port)
	}
	return Target{Transport: transport, Address: address, Timeout: time.Minute}
}

// each runs a test on each transport.
func each(t *testing.T, f func(t *testing.T, to Target)) {
	for _, transport := range Transports {
		t.Run(transport, func(t *testing.T) { f(t, serving(t, transport)) })
	}
}

func TestEachByteOfAnAmountArrives(t *testing.T) {
	each(t, func(t *testing.T, to Target) {
		for _, p := range []Params{
			{Streams: 1}, {Streams: 3}, {Streams: 2, Reverse: true}, {Streams: 2, Bidir: true},
		} {
			p.Test, p.Size, p.Bytes = Bandwidth, 10_000, 5_000_003
			r, err := Run(t.Context(), to, p, Observer{})
			require.NoError(t, err)
			var sent, received [2]uint64 // by the client, by the server
			for i, side := range []*Side{r.Here, r.There} {
				for _, s := range side.Streams {
					if s.Sends {
						sent[i] += s.Bytes
					} else {
						received[1-i] += s.Bytes
					}
				}
			}
			require.Equal(t, sent, received)
			for i, sends := range []bool{!p.Reverse, p.Reverse || p.Bidir} {
				if sends {
					require.Equal(t, p.Bytes*uint64(1), sent[i])
				}
			}
		}
	})
}

func TestRoundTripsAreCountedAndTimed(t *testing.T) {
	each(t, func(t *testing.T, to Target) {
		for _, p := range []Params{
			{Test: Latency, Streams: 1, Size: 1}, {Test: Latency, Streams: 4, Size: 64 << 10},
			{Test: Loaded, Streams: 2, Size: 64, Rate: 100_000}, {Test: Connect, Streams: 2, Size: 10},
		} {
			p.Bytes = uint64(100 * p.Size)
			r, err := Run(t.Context(), to, p, Observer{})
			require.NoError(t, err)
			require.EqualValues(t, 100, r.Here.Times.Count())
			require.Positive(t, r.Here.Times.Min())
			ops := uint64(0)
			for _, s := range r.There.Streams {
				ops += s.Ops
			}
			require.EqualValues(t, 100, ops)
		}
	})
}

func TestVerifyAndIdle(t *testing.T) {
	each(t, func(t *testing.T, to Target) {
		require.NoError(t, Verify(t.Context(), to, 3, 1<<20))
		r, err := Run(t.Context(), to, Params{Test: Idle, Streams: 20, Size: 1, Time: 10 * time.Millisecond}, Observer{})
		require.NoError(t, err)
		require.Len(t, r.Connected, 20)
		require.NotNil(t, r.There)
	})
}

func TestAnInterruptEndsARunWithWhatWasMeasured(t *testing.T) {
	each(t, func(t *testing.T, to Target) {
		for _, p := range []Params{
			{Test: Bandwidth}, {Test: Bandwidth, Reverse: true}, {Test: Bandwidth, Bidir: true}, {Test: Latency},
			{Test: Loaded, Rate: 1}, {Test: Connect}, {Test: Idle},
		} {
			p.Streams, p.Size, p.Time = 1, 1000, time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			r, err := Run(ctx, to, p, Observer{Every: time.Millisecond, Interval: func(_ *Result, in Interval) {
				if p.Test == Idle || in.Streams[0].Bytes > 0 {
					cancel()
				}
			}})
			require.ErrorIs(t, err, context.Canceled, p)
			require.NotNil(t, r, p)
			require.NotNil(t, r.There, p)
			if p.Test != Idle {
				require.Positive(t, r.Here.Streams[0].Bytes+r.There.Streams[0].Bytes, p)
			}
		}
	})
}

// A sender at a rate keeps to it until the end, where its pause ends before it is to stop.
func TestARateHoldsToTheEnd(t *testing.T) {
	each(t, func(t *testing.T, to Target) {
		r, err := Run(t.Context(), to, Params{Test: Bandwidth, Streams: 1, Size: 1000, Rate: 8e6, Time: 300 * time.Millisecond}, Observer{})
		require.NoError(t, err)
		sent := r.Here.Streams[0]
		require.Less(t, float64(sent.Bytes), 1.1e6*sent.Took.Seconds()+2000)
	})
}

// What is omitted is marked, and times begin anew behind it. A server says by which transport a client came.
func TestIntervalsOfAServer(t *testing.T) {
	for _, transport := range Transports {
		var all []Interval
		by, ended := "", make(chan struct{})
		o := Observer{
			Every:     50 * time.Millisecond,
			Connected: func(r *Result) { by = r.Transport },
			Interval:  func(_ *Result, in Interval) { all = append(all, in) },
			Ended:     func(*Result, error) { close(ended) },
		}
		to := servingBy(t, transport, &Server{Observe: func(Params) Observer { return o }})
		p := Params{Test: Bandwidth, Streams: 1, Size: 1000, Omit: 150 * time.Millisecond, Time: 150 * time.Millisecond}
		_, err := Run(t.Context(), to, p, Observer{})
		require.NoError(t, err)
		<-ended
		require.Equal(t, transport, by)
		first := slices.IndexFunc(all, func(in Interval) bool { return !in.Omitted })
		require.Positive(t, first)
		for i, in := range all {
			require.Equal(t, i < first, in.Omitted)
			if in.Omitted {
				require.Less(t, in.Start, p.Omit)
			} else if i > first {
				require.Equal(t, all[i-1].End, in.Start)
			}
		}
		require.Equal(t, max(all[first-1].End-p.Omit, 0), all[first].Start, "since the measurement began")
	}
}

// A server of both networks says by which of them a client came.
func TestAServerOfBothNetworksKnowsItsClients(t *testing.T) {
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	by := make(chan string, 2)
	s := &Server{Observe: func(Params) Observer {
		return Observer{Connected: func(r *Result) {
			assert.Len(t, r.Connected, 1)
			by <- r.Transport
		}}
	}}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for _, transport := range []string{"sdp", "tcp"} {
		to := Target{Transport: transport, Address: net.JoinHostPort("localhost", port), Timeout: time.Minute}
		_, err := Run(t.Context(), to, Params{Test: Bandwidth, Streams: 1, Size: 1, Bytes: 1}, Observer{})
		require.NoError(t, err)
		require.Equal(t, transport, <-by)
	}
	end()
	require.NoError(t, <-done)
}

// A proxy that changes one byte is found out, whatever the direction.
func TestAWrongByteIsFound(t *testing.T) {
	to := serving(t, "tcp")
	for _, direction := range []int{0, 1} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		go func() {
			for n := 0; ; n++ {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				s, err := net.Dial("tcp", to.Address)
				if err != nil {
					return
				}
				for i, way := range [][2]net.Conn{{c, s}, {s, c}} {
					go func() {
						defer way[1].Close()
						if n == 1 && i == direction { // the second connection is that of the data
							if _, err := io.CopyN(way[1], way[0], 5000); err != nil {
								return
							}
							b := make([]byte, 1)
							if _, err := io.ReadFull(way[0], b); err != nil {
								return
							}
							b[0] ^= 1
							if _, err := way[1].Write(b); err != nil {
								return
							}
						}
						io.Copy(way[1], way[0])
					}()
				}
			}
		}()
		err = Verify(t.Context(), Target{Transport: "tcp", Address: ln.Addr().String(), Timeout: time.Minute}, 1, 1<<20)
		require.ErrorContains(t, err, "wrong data on stream 1: byte ")
	}
}

// What is no preamble, or no message, ends the connection and nothing else.
func TestNonsenseEndsItsConnectionOnly(t *testing.T) {
	to := serving(t, "tcp")
	good := string(preamble(control, rand.Text()))
	for _, text := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", good[:20], good + "x\n", good + "{}\n", good + `{"params":{"test":"bw","streams":2,"size":1,"time":1}}` + "\n" + `{"do":"run"}` + "\n", good + `{"do":"start","params":{"test":"bw","streams":1000000,"size":1,"time":1}}` + "\n",
		good + `{"do":"start","params":{"test":"bw","streams":1,"size":1,"time":-1}}` + "\n", good + `{"do":"start","params":{"test":"bw","streams":1,"size":1,"time":1}}` + "\n" + `{"do":"run"}` + "\n",
		string(preamble(data, rand.Text())) + "data",
	} {
		c, err := net.Dial("tcp", to.Address)
		require.NoError(t, err)
		_, err = c.Write([]byte(text))
		require.NoError(t, err)
		_ = c.(*net.TCPConn).CloseWrite() // the server may have closed already
		io.Copy(io.Discard, c)            // until the server closes
		c.Close()
	}
	require.NoError(t, Verify(t.Context(), to, 1, 1000))
}

func TestAServerBoundsItsRuns(t *testing.T) {
	to := serving(t, "tcp")
	begin := func() *controlConn {
		raw, err := to.dial(t.Context(), control, rand.Text(), 0)
		require.NoError(t, err)
		t.Cleanup(func() { raw.Close() })
		c := newControlConn(raw, maxLine)
		require.NoError(t, c.send(message{Params: &Params{Test: Latency, Streams: 1, Size: 1, Time: time.Hour}}))
		return c
	}
	var last *controlConn
	for range maxRuns {
		last = begin()
		_, err := last.receive(time.Minute)
		require.NoError(t, err)
	}
	_, err := begin().receive(time.Minute)
	require.ErrorContains(t, err, "the server carries out 32 runs, and no more at the same time")
	require.ErrorContains(t, Verify(t.Context(), to, 1, 1), "try again later")
	last.Close()
	require.Eventually(t, func() bool { return Verify(t.Context(), to, 1, 1) == nil }, time.Minute, time.Millisecond)
}

// Whatever clients ask for, what a server takes for them has a bound, and comes back when they have left.
func TestAServerBoundsItsMemory(t *testing.T) {
	to := serving(t, "tcp")
	taken := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before, goroutines := taken(), runtime.NumGoroutine()
	var all []net.Conn
	dial := func(kind byte, name string) net.Conn {
		c, err := net.Dial("tcp", to.Address)
		require.NoError(t, err)
		_, err = c.Write(preamble(kind, name))
		require.NoError(t, err)
		all = append(all, c)
		return c
	}
	ready := 0
	for i, p := range []Params{
		{Test: Connect, Streams: 16, Size: 16 << 20},
		{Test: Idle, Streams: MaxIdle, Size: 1, Bidir: true},
		{Test: Bandwidth, Streams: 16, Size: 16 << 20, Reverse: true},
		{Test: Bandwidth, Streams: 1000, Size: 1},
		{Test: Latency, Streams: 16, Size: 16 << 20},
		{Test: verifying, Streams: 1000, Size: 1},
	} {
		for range 32 {
			name := rand.Text()
			c := newControlConn(dial(control, name), maxLine)
			p.Time = time.Hour
			require.NoError(t, c.send(message{Params: &p}))
			if m, err := c.receive(time.Minute); err != nil {
				require.Regexp(t, "use fewer|no more at the same time", err.Error())
				continue
			} else if ready++; m.Do == "ready" && p.Test != Connect {
				continue
			}
			for range 100 {
				dial(data, name) // and read nothing
			}
		}
		require.Less(t, taken()-before, 64<<20, "of %d", i)
	}
	require.Positive(t, ready)
	for _, c := range all {
		c.Close()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 && taken()-before < 4<<20 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, Verify(t.Context(), to, 1, 1000))
}

// A peer may not have this side make counters for any range that it likes.
func TestTimesOfAnotherRangeAreRefused(t *testing.T) {
	ours := &Times{}
	ours.Add(time.Millisecond)
	text, err := json.Marshal(ours)
	require.NoError(t, err)
	var got Times
	require.NoError(t, json.Unmarshal(text, &got))
	require.EqualValues(t, 1, got.Count())
	wide, err := hdr.New(1, math.MaxInt64, 5).Encode(hdr.V2CompressedEncodingCookieBase)
	require.NoError(t, err)
	for _, bad := range []string{string(wide), string(wide[:20]), "x", strings.Repeat("x", maxText+1)} {
		require.Error(t, got.UnmarshalJSON(fmt.Appendf(nil, `{"histogram":%q}`, bad)))
		require.Zero(t, got.Count())
	}
}
