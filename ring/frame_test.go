package ring

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func TestFrameIsReadAsItWasWritten(t *testing.T) {
	want := frame{
		kind: frameData, hops: 0x1234, src: 0x11111111, dst: 0x22222222, to: 3, from: 4, epoch: 5,
		seq: 6, ack: 7, length: 64, states: 9, arg: 10, ask: 11,
	}
	slot := ntb.AlignedBytes(256)
	var b [frameHeader]byte
	want.encode(&b)
	copy(slot, b[:])
	binary.LittleEndian.PutUint64(slot, want.first(99))
	var got frame
	require.True(t, readFrame(slot, ntb.Load64(slot, 0), &got))
	require.Equal(t, want, got)
	require.Equal(t, uint32(99), ntb.Load32(slot, 0))
	for name, bad := range map[string]func(s []byte){
		"kind 0":           func(s []byte) { s[4] = 0 },
		"kind too large":   func(s []byte) { s[4] = byte(frameLinkState) + 1 },
		"other version":    func(s []byte) { s[5] = linkVersion + 1 },
		"length too large": func(s []byte) { binary.LittleEndian.PutUint32(s[36:], 200) },
		"length not of 8":  func(s []byte) { s[36] = 63 },
		"length huge":      func(s []byte) { binary.LittleEndian.PutUint32(s[36:], 0xfffffff8) },
	} {
		s := ntb.AlignedBytes(256)
		copy(s, slot)
		bad(s)
		require.False(t, readFrame(s, ntb.Load64(s, 0), &got), name)
	}
}

// entry returns an entry of a body.
func entry(k entryKind, off uint32, n int, p ...byte) []byte {
	b := make([]byte, entryHeader+round8(len(p)))
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
	h := frame{kind: frameData, length: 16}
	var b [frameHeader]byte
	h.encode(&b)
	binary.LittleEndian.PutUint64(b[:], h.first(1))
	f.Add(append(b[:], entry(entryPublish, 8, 8, 1, 2, 3, 4, 5, 6, 7, 8)...))
	f.Add(append(b[:], entry(entryData, 200, 56, 1, 2, 3, 4, 5, 6, 7, 8)...))
	f.Add(append(b[:], bytes.Repeat([]byte{0xff}, 64)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		slot := ntb.AlignedBytes(frameHeader + 512)
		copy(slot, data)
		var got frame
		if !readFrame(slot, ntb.Load64(slot, 0), &got) {
			return
		}
		m, check := guarded()
		m.apply(slot[frameHeader : frameHeader+int(got.length)])
		check(t)
	})
}
