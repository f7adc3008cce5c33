package meter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// The two directions of a stream carry different data, so that data that returns to
// its sender is found too.
const (
	toServer = 1
	toClient = 2
)

// maxPiece is the largest Write and Read of verify, in bytes.
const maxPiece = 128 << 10

// pattern generates the pseudo-random bytes of one direction, in pieces of many sizes. Every order of
// magnitude from 1 byte to maxPiece is equally likely, since each uses another path below.
type pattern struct {
	data      *rand.ChaCha8
	sizes     *rand.Rand
	buf, want [maxPiece]byte
}

func newPattern(seed, direction uint64) *pattern {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], direction)
	return &pattern{data: rand.NewChaCha8(key), sizes: rand.New(rand.NewPCG(seed, direction))}
}

// piece returns the buffer of the next piece.
func (p *pattern) piece(left uint64) []byte {
	return p.buf[:min(uint64(1+p.sizes.IntN(1<<p.sizes.IntN(18))), left)]
}

// write writes total bytes.
func (p *pattern) write(w io.Writer, total uint64) error {
	for total > 0 {
		b := p.piece(total)
		p.data.Read(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
		total -= uint64(len(b))
	}
	return nil
}

// check reads and compares total bytes. It reads to the end even after a wrong byte, and returns where
// the first one was, and what.
func (p *pattern) check(r io.Reader, total uint64) (bad string, err error) {
	for at := uint64(0); at < total; {
		got := p.piece(total - at)
		if _, err := io.ReadFull(r, got); err != nil {
			return bad, err
		}
		want := p.want[:len(got)]
		p.data.Read(want)
		if bad == "" && !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			bad = fmt.Sprintf("byte %d is %#02x, want %#02x", at+uint64(i), got[i], want[i])
		}
		at += uint64(len(got))
	}
	return bad, nil
}
