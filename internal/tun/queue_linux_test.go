package tun

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is a queue whose frames leave at a rate, in a time of its own.
type wire struct {
	q    *Queue
	now  time.Duration
	end  time.Duration          // until when it runs
	rate float64                // bytes a second
	took map[byte]int           // bytes that left, by the last byte of the packet
	wait map[byte]time.Duration // the longest, likewise
}

// newWire returns a wire on which flows of protocols, from 1 on, do not share a bucket by chance.
func newWire(limit int, rate float64, protocols ...byte) *wire {
	w := &wire{rate: rate, took: map[byte]int{}, wait: map[byte]time.Duration{}}
	for {
		w.q = NewQueue(limit)
		used := map[*flow]bool{}
		for i, protocol := range protocols {
			used[w.q.bucket(packetOf(byte(i+1), protocol, 84))] = true
		}
		if len(used) == len(protocols) {
			return w
		}
	}
}

// packetOf returns the frame of a packet of a flow, of a length.
func packetOf(flow byte, protocol byte, n int) []byte {
	b := frameOf(virtio(0, 0, 0, 0, 0), ipPacket("10.77.0.1", "10.77.0.2", protocol, uint16(flow), 80, max(n-40, 0)))
	b[len(b)-1] = flow
	return b
}

// put queues a packet of a flow, of a length.
func (w *wire) put(flow byte, protocol byte, n int) {
	b := packetOf(flow, protocol, n)
	e := newEntry(len(b))
	e.b = e.b[:copy(e.b, b)]
	w.q.push(e, w.now)
}

// run has frames leave for a time.
func (w *wire) run(d time.Duration) {
	for w.end += d; w.now < w.end; {
		e := w.q.pop(w.now)
		if e == nil {
			w.now = w.end
			return
		}
		flow := e.b[len(e.b)-1]
		w.wait[flow] = max(w.wait[flow], w.now-e.at)
		w.took[flow] += len(e.b)
		w.now += time.Duration(float64(len(e.b)) / w.rate * float64(time.Second))
		e.release()
	}
}

// A flood of datagrams that is many times what the wire takes delays neither a ping nor a stream.
func TestAFloodStarvesNobody(t *testing.T) {
	const flood, stream, ping = 1, 2, 3
	for _, size := range []int{100, 1400, 60000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := newWire(1<<20, 100e6, protocolUDP, protocolTCP, 1)
			for ms := range 200 {
				for range max(1, 300e3/size) { // 300 MB/s
					w.put(flood, protocolUDP, size)
				}
				w.put(stream, protocolTCP, 30000) // 30 MB/s
				if ms%10 == 0 {
					w.put(ping, 1, 84)
				}
				w.run(time.Millisecond)
				require.LessOrEqual(t, w.q.Bytes(), 1<<20)
			}
			require.GreaterOrEqual(t, w.took[stream], 200*29000, "%v", w.took)
			require.GreaterOrEqual(t, w.took[ping], 19*84)
			require.Less(t, w.wait[ping], 2*time.Millisecond)
			require.NotZero(t, w.q.Overflows)
			require.InDelta(t, 20e6, w.took[flood]+w.took[stream]+w.took[ping], 3e6)
		})
	}
}

// Flows that want the same get the same, whatever the length of their packets.
func TestFlowsShareEqually(t *testing.T) {
	w := newWire(1<<20, 100e6, protocolTCP, protocolTCP, protocolTCP, protocolTCP)
	for range 500 {
		for flow := byte(1); flow <= 4; flow++ {
			for sum := 0; sum < 50000; { // half of the wire, each
				n := []int{0, 200, 1500, 9000, 50000}[flow]
				w.put(flow, protocolTCP, n)
				sum += n
			}
		}
		w.run(time.Millisecond)
	}
	for flow := byte(1); flow <= 4; flow++ {
		require.InDelta(t, 12.5e6, w.took[flow], 1.5e6, "flow %d", flow)
	}
}

// What waits for longer than the target for an interval is dropped, one now and then, and not where it waits for a moment.
func TestLongWaitsDrop(t *testing.T) {
	w := newWire(64<<20, 10e6)
	for range 300 { // a burst of 50 ms, each half a second
		for range 20 {
			w.put(1, protocolTCP, 25000)
		}
		w.run(500 * time.Millisecond)
	}
	require.Zero(t, w.q.Late)
	for range 5000 { // all the time
		w.put(1, protocolTCP, 12000)
		w.run(time.Millisecond)
	}
	require.NotZero(t, w.q.Late)
	require.Zero(t, w.q.Overflows)
}

func TestAQueueThatIsClearedIsEmpty(t *testing.T) {
	w := newWire(1<<20, 1e6)
	for flow := range byte(20) {
		w.put(flow, protocolUDP, 1000)
	}
	require.EqualValues(t, 20, w.q.clear())
	require.Zero(t, w.q.Bytes())
	require.Nil(t, w.q.pop(0))
	w.put(1, protocolUDP, 1000)
	require.NotNil(t, w.q.pop(w.now))
	require.Nil(t, w.q.pop(w.now))
}
