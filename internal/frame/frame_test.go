package frame

import (
	"encoding/binary"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func TestFrameIsReadAsItWasWritten(t *testing.T) {
	want := Header{
		Kind: Data, Hops: 0x1234, Src: 0x11111111, Dst: 0x22222222, To: 3, From: 4, Epoch: 5,
		Seq: 6, Ack: 7, Length: 64, States: 9, Arg: 10, Ask: 11,
	}
	slot := ntb.AlignedBytes(256)
	var b [HeaderBytes]byte
	want.Encode(&b)
	copy(slot, b[:])
	binary.LittleEndian.PutUint64(slot, want.First(99))
	var got Header
	require.True(t, Read(slot, ntb.Load64(slot, 0), &got))
	require.Equal(t, want, got)
	require.Equal(t, uint32(99), ntb.Load32(slot, 0))
	for name, bad := range map[string]func(s []byte){
		"kind 0":           func(s []byte) { s[4] = 0 },
		"kind too large":   func(s []byte) { s[4] = byte(LinkState) + 1 },
		"other version":    func(s []byte) { s[5] = Version + 1 },
		"length too large": func(s []byte) { binary.LittleEndian.PutUint32(s[36:], 200) },
		"length not of 8":  func(s []byte) { s[36] = 63 },
		"length huge":      func(s []byte) { binary.LittleEndian.PutUint32(s[36:], 0xfffffff8) },
	} {
		s := ntb.AlignedBytes(256)
		copy(s, slot)
		bad(s)
		require.False(t, Read(s, ntb.Load64(s, 0), &got), name)
	}
}
