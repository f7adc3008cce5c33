package meter

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// The two directions of one pass carry different data, so that data that returns to
// its sender is found too.
const (
	toServer = 1
	toClient = 2
)

// maxPiece is the largest Write and Read of a verifying pass, in bytes.
const maxPiece = 128 << 10

// pattern generates the pseudo-random bytes of one direction.
type pattern struct {
	data  *rand.ChaCha8
	sizes *rand.Rand
}

func newPattern(seed, direction uint64) *pattern {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], direction)
	return &pattern{rand.NewChaCha8(key), rand.New(rand.NewPCG(seed, direction))}
}

// piece returns how many bytes to send at once. Every order of magnitude from 1
// byte to maxPiece is equally likely, since each uses another path below.
func (p *pattern) piece(left uint64) int {
	n := 1 + p.sizes.IntN(1<<p.sizes.IntN(18))
	return int(min(uint64(n), left))
}

// writePattern writes total bytes in pieces of many sizes.
func writePattern(w io.Writer, p *pattern, total uint64) error {
	buf := make([]byte, maxPiece)
	for total > 0 {
		b := buf[:p.piece(total)]
		p.data.Read(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
		total -= uint64(len(b))
	}
	return nil
}

// mismatch describes the first byte that was wrong.
type mismatch struct {
	at        uint64
	got, want byte
}

func (m *mismatch) Error() string {
	return fmt.Sprintf("byte %d is %#02x, want %#02x", m.at, m.got, m.want)
}

// checkPattern reads and compares total bytes. It reads to the end even after a
// wrong byte, and returns the first one.
func checkPattern(r io.Reader, p *pattern, total uint64) (*mismatch, error) {
	var bad *mismatch
	got, want := make([]byte, maxPiece), make([]byte, maxPiece)
	for at := uint64(0); at < total; {
		n, err := r.Read(got[:p.piece(total-at)])
		p.data.Read(want[:n])
		if bad == nil && string(got[:n]) != string(want[:n]) {
			bad = firstDifference(got[:n], want[:n], at)
		}
		at += uint64(n)
		if err != nil && at < total {
			return bad, err
		}
	}
	return bad, nil
}

func firstDifference(got, want []byte, at uint64) *mismatch {
	for i := range got {
		if got[i] != want[i] {
			return &mismatch{at + uint64(i), got[i], want[i]}
		}
	}
	return nil
}
