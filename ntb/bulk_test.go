package ntb

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// neighbours are two processors, as the stores of one to memory of the other take time. Times are
// of 64 KiB, in microseconds.
type neighbours struct {
	ordinary, streamed float64
}

var (
	near = neighbours{ordinary: 2, streamed: 2.5}
	far  = neighbours{ordinary: 21, streamed: 3}
)

// pieces has b store n pieces of 64 KiB, and returns how many by non-temporal stores. Of the pieces
// that are timed, one in 32 takes a millisecond, as if the thread was stopped.
func (w neighbours) pieces(b *Bulk, n int) (streamed int) {
	const size = 64 << 10
	for range n {
		b.next()
		kind := b.chosen
		if b.pieces%sampleEvery == 0 {
			kind = b.sample()
			us := w.streamed
			switch {
			case b.pieces/sampleEvery%32 == 5:
				us = 1000
			case kind == ordinary:
				us = w.ordinary
			}
			b.took(kind, size, time.Duration(us*1000))
		}
		if kind == nonTemporal {
			streamed++
		}
	}
	return streamed
}

func TestBulkStoresByTheKindThatIsFaster(t *testing.T) {
	var b Bulk
	const settle, many = 2 * mostStint, 1_000_000
	near.pieces(&b, settle)
	assert.Less(t, near.pieces(&b, many), many/100, "processors with a cache in common")
	far.pieces(&b, settle)
	assert.Greater(t, far.pieces(&b, many), many-many/100, "the system has moved one of them")
	near.pieces(&b, settle)
	assert.Less(t, near.pieces(&b, many), many/100, "and back")
}

// A wrong choice at first is over after leastStint pieces.
func TestBulkTriesOrdinaryStoresAgainSoon(t *testing.T) {
	var b Bulk
	far.pieces(&b, 32*sampleEvery)
	require.Equal(t, nonTemporal, b.chosen)
	near.pieces(&b, leastStint)
	assert.Equal(t, ordinary, b.chosen)
	near.pieces(&b, 1000*sampleEvery)
	assert.Equal(t, ordinary, b.chosen)
}

// A stream begins to use non-temporal stores within 34 MiB.
func TestBulkLearnsFromTheFirstPieces(t *testing.T) {
	var b Bulk
	far.pieces(&b, 32*sampleEvery)
	assert.Equal(t, nonTemporal, b.chosen)
}

func TestBulkKeepsToOrdinaryStores(t *testing.T) {
	for name, w := range map[string]neighbours{
		"a clock that stands still": {},
		"slow memory":               {ordinary: 60, streamed: 50},
		"a small queue":             {ordinary: 7, streamed: 2.5},
	} {
		var b Bulk
		w.pieces(&b, 5000)
		assert.Equal(t, ordinary, b.chosen, name)
	}
}

func TestBulkHasNoChoice(t *testing.T) {
	mem := AlignedBytes(2 * leastStreamed)
	for name, w := range map[string]Window{
		"write-combining": MappedWindow(mem, WriteCombining),
		"uncached":        MappedWindow(mem, Uncached),
		"a sink":          SinkWindow(Basic(discard{}), len(mem)),
	} {
		b := Bulk{chosen: nonTemporal, stint: mostStint}
		for range 10 * sampleEvery {
			b.Write(&w, 8, mem[leastStreamed:])
		}
		assert.Zero(t, b.Streamed(), name)
	}
	w, b := MappedWindow(mem, Cacheable), Bulk{chosen: nonTemporal, stint: mostStint}
	b.Write(&w, 0, mem[:leastStreamed-1])
	assert.Zero(t, b.Streamed(), "a small piece")
}

type discard struct{}

func (discard) Store(int, []byte)        {}
func (discard) Publish(int, uint64, int) {}

// What non-temporal stores have stored is there before the word that is published next. Two
// goroutines check it, each piece by numbers that are other ones than in the piece before. On most
// processors this holds without the barrier too, which TestCompiledStoresSuitABridge looks for.
func TestStreamedBytesArriveBeforeTheWord(t *testing.T) {
	const size, pieces, slots = 8 << 10, 5000, 4
	mem := AlignedBytes(64 + slots*(size+64))
	w := MappedWindow(mem, Cacheable)
	if !w.Streams() {
		t.Skip("there are no non-temporal stores here")
	}
	credit := AlignedBytes(64)
	back := MappedWindow(credit, Cacheable)
	at := func(i uint64) int { return 64 + int(i%slots)*(size+64) + 24 } // not at the beginning of a line
	done := make(chan uint64)
	go func() {
		var bad uint64
		for i := range uint64(pieces) {
			for Load64(mem, 0) <= i {
				runtime.Gosched()
			}
			piece := mem[at(i) : at(i)+size]
			for j := 0; j < size; j += 8 {
				if binary.LittleEndian.Uint64(piece[j:]) != i<<16|uint64(j) {
					bad++
				}
			}
			back.Publish64(0, i+1)
		}
		done <- bad
	}()
	b := Bulk{chosen: nonTemporal}
	piece := make([]byte, size)
	for i := range uint64(pieces) {
		for i-Load64(credit, 0) >= slots {
			runtime.Gosched()
		}
		for j := 0; j < size; j += 8 {
			binary.LittleEndian.PutUint64(piece[j:], i<<16|uint64(j))
		}
		b.store(nonTemporal, &w, at(i), piece)
		w.Publish64(0, i+1)
	}
	require.Zero(t, <-done)
	assert.EqualValues(t, pieces, b.Streamed())
}

// Write stores the same bytes by either kind.
func TestBulkWritesBytes(t *testing.T) {
	src := make([]byte, 3*leastStreamed)
	for i := range src {
		src[i] = byte(i * 7)
	}
	mem := AlignedBytes(4 * leastStreamed)
	w := MappedWindow(mem, Cacheable)
	for _, chosen := range []storeKind{ordinary, nonTemporal} {
		b := Bulk{chosen: chosen, stint: mostStint}
		for i := range 40 * sampleEvery {
			off, n := i*31%leastStreamed, len(src)-i
			clear(mem)
			b.Write(&w, off, src[:n])
			require.True(t, bytes.Equal(src[:n], mem[off:off+n]), "piece %d", i)
		}
		assert.Equal(t, w.Streams(), b.Streamed() > 0)
	}
}
