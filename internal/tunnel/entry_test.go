package tunnel

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// entry returns an entry of a body.
func entry(k entryKind, off uint32, n int, p ...byte) []byte {
	b := make([]byte, entryHeader+frame.Round8(len(p)))
	binary.LittleEndian.PutUint64(b, entryWord(k, 0, n)|uint64(off))
	copy(b[entryHeader:], p)
	return b
}

func TestEntriesOutsideOfTheWindowAreRefused(t *testing.T) {
	eight := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for name, c := range map[string]struct {
		body []byte
		ok   bool
	}{
		"data":                  {entry(entryData, 248, 8, eight...), true},
		"data of 3":             {entry(entryData, 250, 3, 1, 2, 3), true},
		"data of none at end":   {entry(entryData, 256, 0), true},
		"data past the end":     {entry(entryData, 249, 8, eight...), false},
		"data far outside":      {entry(entryData, 0xfffffff8, 8, eight...), false},
		"data without its data": {entry(entryData, 0, 100, eight...), false},
		"data of 16 MiB":        {entry(entryData, 0, 1<<24-1, eight...), false},
		"store":                 {entry(entryStore, 8, 8, eight...), true},
		"store not aligned":     {entry(entryStore, 4, 8, eight...), false},
		"store of 4":            {entry(entryStore, 0, 4, eight...), false},
		"publish":               {entry(entryPublish, 8, 8, eight...), true},
		"publish of 4":          {entry(entryPublish, 252, 4, eight...), true},
		"publish not aligned":   {entry(entryPublish, 9, 8, eight...), false},
		"publish of 2":          {entry(entryPublish, 8, 2, eight...), false},
		"publish past the end":  {entry(entryPublish, 256, 8, eight...), false},
		"publish without word":  {entry(entryPublish, 0, 8), false},
		"publish 4 without":     {entry(entryPublish, 0, 4), false},
		"kind 0":                {make([]byte, 8), false},
		"other kind":            {entry(9, 0, 8, eight...), false},
		"all ones":              {bytes.Repeat([]byte{0xff}, 16), false},
	} {
		m, check := guarded()
		body := ntb.AlignedBytes(len(c.body))
		copy(body, c.body)
		require.Equal(t, c.ok, m.apply(body), name)
		check(t)
	}
}

// guarded returns a window of 256 bytes in the middle of memory that must not
// change.
func guarded() (*sinkMemory, func(t testing.TB)) {
	all := ntb.AlignedBytes(256 + 512)
	for i := range all {
		all[i] = 0xa5
	}
	in := all[256:512:512]
	m := &sinkMemory{in: in, win: ntb.MappedWindow(in, ntb.Cacheable), published: func(int) {}}
	return m, func(t testing.TB) {
		for i, c := range all {
			if (i < 256 || i >= 512) && c != 0xa5 {
				t.Fatalf("byte %d beside the window changed", i-256)
			}
		}
	}
}

// Whatever a slot contains, nothing is stored outside of the window, and nothing
// panics.
func FuzzSlot(f *testing.F) {
	h := frame.Header{Kind: frame.Data, Length: 16}
	var b [frame.HeaderBytes]byte
	h.Encode(&b)
	binary.LittleEndian.PutUint64(b[:], h.First(1))
	f.Add(append(b[:], entry(entryPublish, 8, 8, 1, 2, 3, 4, 5, 6, 7, 8)...))
	f.Add(append(b[:], entry(entryData, 200, 56, 1, 2, 3, 4, 5, 6, 7, 8)...))
	f.Add(append(b[:], bytes.Repeat([]byte{0xff}, 64)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		slot := ntb.AlignedBytes(frame.HeaderBytes + 512)
		copy(slot, data)
		var got frame.Header
		if !frame.Read(slot, ntb.Load64(slot, 0), &got) {
			return
		}
		m, check := guarded()
		m.apply(slot[frame.HeaderBytes : frame.HeaderBytes+int(got.Length)])
		check(t)
	})
}
